package subject

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// The libraries' outcomes when three of five servers, the first of them, are gone. One that goes on
// trying is ended by its caller.
func TestMajorityGone(t *testing.T) {
	f := start(t)
	says := map[string]string{
		"redquorum":                record.NoQuorum,
		"redquorum-noguard":        record.NoQuorum,
		"redquorum-fenced":         record.NoQuorum,
		"redquorum-fair":           record.NoQuorum,
		"redquorum-permits":        record.NoQuorum,
		"redquorum-serve":          record.NoQuorum,
		"redquorum-hold":           record.NoQuorum,
		"redsync":                  record.Gave,
		"redsync-failfast":         record.Gave,
		"redsync-goredis-failfast": record.Gave,
		"rueidislock":              record.Gave,
		"bsm":                      record.NoQuorum, // after go-redis has dialled for two seconds
	}
	clients, held := map[string]Client{}, map[string]Lock{}
	for _, s := range libraries() {
		clients[s.Name] = open(t, s, f.URLs())
	}
	for name, c := range clients {
		held[name] = acquire(t, c, "held:"+name)
	}
	for i := range 3 {
		require.NoError(t, f.Kill(t.Context(), i))
	}
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t, brief)
			if says[name] != record.Gave {
				ctx = within(t, testLimit)
			}
			_, err := c.Acquire(ctx, "wanted:"+name)
			require.Error(t, err)
			assert.Equal(t, says[name], Outcome(err), "%v", err)

			// By now the lock may have been lost, or its keys be gone; in any case it is not
			// released. rueidislock does not say so before the end of the TTL.
			err = held[name].Release(within(t, testLimit))
			if name != "rueidislock" {
				require.Error(t, err)
				assert.Contains(t, []string{record.NoQuorum, record.Lost}, Outcome(err), "%v", err)
			}
		})
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	// No server listens on port 1, and the error must not show the password.
	urls := []string{"redis://somebody:secret@127.0.0.1:1"}
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cfg := within(t, testLimit), Config{TTL: ttl, Callers: 1}
			err := func() error {
				if s.Drive != nil {
					return s.Drive(ctx, urls, cfg, nil)
				}
				c, err := s.Open(ctx, urls, cfg)
				if err != nil {
					return err
				}
				_, err = c.Acquire(within(t, brief), "any")
				require.NoError(t, c.Close())
				return err
			}()
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestURLsAreCheckedWithoutRepeatingPasswords(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"redis://user:secret@host:port", "user:secret@host:1", "http://:secret@host", "redis://:secret@host/x"} {
		for _, s := range All() {
			var err error
			if s.Drive != nil {
				err = s.Drive(t.Context(), []string{bad}, Config{TTL: ttl, Callers: 1}, nil)
			} else {
				_, err = s.Open(t.Context(), []string{bad}, Config{TTL: ttl, Callers: 1})
			}
			require.Error(t, err, "%s: %s", s.Name, bad)
			assert.NotContains(t, err.Error(), "secret", s.Name)
		}
	}
}

// ending is a context that has ended.
func ending(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
