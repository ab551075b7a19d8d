package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

func TestFaultsAreRead(t *testing.T) {
	t.Parallel()
	trial := record.Load{Nodes: 5, Duration: 20 * time.Second}
	got, err := parseFault("kill 2 at 5s for 6s", trial)
	require.NoError(t, err)
	assert.Equal(t, fault{"kill", 2, 5 * time.Second, 6 * time.Second}, got)
	for line, want := range map[string]string{
		"": "such as", "kill": "such as", "burn 2 at 5s for 5s": "such as", "kill at 5s for 5s": "such as", "kill 0 at 5s for 5s": "such as",
		"kill 2 for 5s": "such as", "kill 2 at 5s for 5": "such as", "kill 2 at 0s for 5s": "such as", "kill 2 at 5s for -5s": "such as",
		"kill 2 at 5s for 5s in 5s": "such as", "kill 6 at 5s for 5s": "there are 5 nodes", "kill 1 at 15s for 5s": "within the trial of 20s",
		"kill 1 at 2562047h for 2562047h": "within the trial", "kill 1 at 1s for 20s": "within the trial",
	} {
		_, err := parseFault(line, trial)
		assert.ErrorContains(t, err, want, line)
	}
}

// A stage is three nodes in virtual time that note what happens to them, and take 10 ms for it.
type stage struct {
	fleet.Fleet
	broken string // the note that fails, without its time

	began time.Time
	mu    sync.Mutex
	did   []string
}

func (s *stage) URLs() []string                        { return make([]string, 3) }
func (s *stage) Pause(_ context.Context, i int) error  { return s.note("pause", i) }
func (s *stage) Resume(_ context.Context, i int) error { return s.note("resume", i) }
func (s *stage) Kill(ctx context.Context, i int) error {
	return errors.Join(ctx.Err(), s.note("kill", i))
}
func (s *stage) Restart(ctx context.Context, i int, m fleet.Memory) error {
	return errors.Join(ctx.Err(), s.note(fmt.Sprint("restart as ", m), i))
}

func (s *stage) note(what string, node int) error {
	what = fmt.Sprint(what, " ", node)
	s.mu.Lock()
	s.did = append(s.did, fmt.Sprintf("%.2fs %s", time.Since(s.began).Seconds(), what))
	s.mu.Unlock()
	if what == s.broken {
		return errors.New("it will not " + what)
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

func TestFaultHappensAndEndsOnTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   string
		ends   time.Duration // the context
		broken string
		want   string
		err    string
	}{
		{line: "kill 2 at 1s for 2s", want: "1.00s kill 0, 1.00s kill 1, 3.00s restart as 1 0, 3.00s restart as 1 1"},
		{line: "pause 1 at 1s for 58s", want: "1.00s pause 0, 59.00s resume 0"},
		{line: "kill 1 at 1s for 30s", ends: 5 * time.Second, want: "1.00s kill 0, 5.00s restart as 1 0"},
		// A node that is half dead when the context ends must be killed and repaired.
		{line: "kill 1 at 1s for 30s", ends: 1005 * time.Millisecond, want: "1.00s kill 0, 1.01s restart as 1 0"},
		{line: "kill 1 at 1s for 30s", ends: 5 * time.Millisecond},
		{line: "pause 2 at 2s for 1s", broken: "pause 1", want: "2.00s pause 0, 2.00s pause 1, 2.01s resume 0", err: "pause 2 of 3: it will not pause 1"},
		{line: "pause 2 at 2s for 1s", broken: "resume 0", want: "2.00s pause 0, 2.00s pause 1, 3.00s resume 0, 3.00s resume 1", err: "pause 2 of 3: it will not resume 0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{broken: c.broken, began: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.ends, time.Hour))
			defer cancel()
			f, err := parseFault(c.line, record.Load{Nodes: 3, Duration: time.Hour})
			require.NoError(t, err)
			did, err := f.play(ctx, s.began, s, fleet.Lost)
			slices.Sort(s.did)
			assert.Equal(t, c.want, strings.Join(s.did, ", "))
			if c.err != "" {
				assert.EqualError(t, err, c.err)
			} else {
				assert.NoError(t, err)
			}
			assert.Equal(t, c.want != "", did != nil)
			if c.line == "pause 1 at 1s for 58s" {
				assert.Equal(t, &record.Fault{What: "pause 1 of 3", From: time.Second, To: 59*time.Second + 10*time.Millisecond}, did)
			}
		})
	}
}
