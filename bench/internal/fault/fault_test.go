package fault

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
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

func parsed(t *testing.T, line string) Fault {
	t.Helper()
	f, err := Parse(line)
	require.NoError(t, err, line)
	return f
}

func TestWhatAFaultMeans(t *testing.T) {
	t.Parallel()
	assert.Equal(t, Fault{"kill", 2, 5 * time.Second, 6 * time.Second}, parsed(t, "kill 2 at 5s for 6s"))
	assert.Equal(t, Fault{"pause", 1, ms, ms}, parsed(t, " pause 1 at 1ms for\t1ms\n"))
	for _, line := range []string{
		"", "kill", "burn 2 at 5s for 5s", "kill at 5s for 5s", "kill 0 at 5s for 5s", "kill some at 5s for 5s",
		"kill 2 for 5s", "kill 2 at 5s", "kill 2 at 5s for", "kill 2 at 5s for 5", "kill 2 at 0s for 5s", "kill 2 at 5s for -5s",
		"kill 2 at 5s for 999us", "kill 2 at 5s for 5s in 5s", "kill 99999999999999999999 at 5s for 1s",
	} {
		_, err := Parse(line)
		assert.ErrorContains(t, err, "such as: kill 2 at 5s for 5s", line)
	}
}

func TestAFaultMustFitTheTrial(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"kill 6 at 5s for 5s":             "there are 5 nodes only",
		"kill 1 at 15s for 5s":            "would not end before the trial of 20s",
		"kill 1 at 2562047h for 2562047h": "would not end before the trial",
		"kill 1 at 1s for 20s":            "would not end before the trial",
	} {
		assert.ErrorContains(t, parsed(t, line).Fits(5, 20*time.Second), want)
	}
	assert.NoError(t, parsed(t, "kill 5 at 5s for 14999ms").Fits(5, 20*time.Second))
	assert.NoError(t, Fault{}.Fits(1, time.Second))
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
	time.Sleep(10 * ms)
	return nil
}

// TestAFaultComesAndGoesWhenTheLineSays, or is undone when the context ends.
func TestAFaultComesAndGoesWhenTheLineSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   string
		ends   time.Duration // the context
		broken string
		want   string
		err    string
	}{
		{line: "kill 2 at 1s for 2s", want: "1.00s kill 0, 1.00s kill 1, 3.00s restart as 1 0, 3.00s restart as 1 1"},
		{line: "pause 3 at 1s for 58s", want: "1.00s pause 0, 1.00s pause 1, 1.00s pause 2, 59.00s resume 0, 59.00s resume 1, 59.00s resume 2"},
		{line: "kill 1 at 1s for 30s", ends: 5 * time.Second, want: "1.00s kill 0, 5.00s restart as 1 0"},
		// A node that is only half dead when the context ends must be killed and mended.
		{line: "kill 1 at 1s for 30s", ends: 1005 * ms, want: "1.00s kill 0, 1.01s restart as 1 0"},
		{line: "kill 1 at 1s for 30s", ends: 5 * ms},
		{line: "pause 2 at 2s for 1s", broken: "pause 1", want: "2.00s pause 0, 2.00s pause 1, 2.01s resume 0", err: "pause 2 of 3: it will not pause 1"},
		{line: "pause 2 at 2s for 1s", broken: "resume 0", want: "2.00s pause 0, 2.00s pause 1, 3.00s resume 0, 3.00s resume 1", err: "pause 2 of 3: it will not resume 0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{broken: c.broken, began: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.ends, time.Hour))
			defer cancel()
			done, err := parsed(t, c.line).Play(ctx, s.began, s, fleet.Lost)
			slices.Sort(s.did)
			assert.Equal(t, c.want, strings.Join(s.did, ", "))
			if c.err != "" {
				assert.EqualError(t, err, c.err)
			} else {
				assert.NoError(t, err)
			}
			assert.Equal(t, c.want != "", done != nil)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		done, err := parsed(t, "pause 1 at 10s for 1s").Play(t.Context(), time.Now(), &stage{}, fleet.Lost)
		require.NoError(t, err)
		assert.Equal(t, &record.Fault{What: "pause 1 of 3", From: 10 * time.Second, To: 11*time.Second + 10*ms}, done, "when it really was")
	})
	done, err := Fault{}.Play(t.Context(), time.Now(), nil, fleet.Lost)
	assert.NoError(t, err)
	assert.Nil(t, done)
}
