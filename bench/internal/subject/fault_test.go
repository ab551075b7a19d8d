package subject

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMajorityGone: when three of five servers, the first of them, are gone, no library gives a lock, or
// says that one was released.
func TestMajorityGone(t *testing.T) {
	f := start(t)
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
			_, err := c.Acquire(within(t, 3*ttl), "wanted:"+name) // by then, locks that were held are lost
			require.Error(t, err)
			err = held[name].Release(within(t, testLimit))
			if name != "rueidislock" { // it does not say so before the end of the TTL
				require.Error(t, err)
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
