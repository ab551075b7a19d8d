package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

const (
	counters   = 4  // processes
	goroutines = 4  // of each
	increments = 50 // of each of those
	victim     = counters
)

func TestProcessesExcludeEachOtherAndOutliveAKilledHolder(t *testing.T) {
	const (
		ttl       = 10 * time.Second
		victimTTL = time.Second
	)
	onEveryKind(t, func(t *testing.T, r *rig) {
		dir := t.TempDir()
		play := func(name string, who int, ttl time.Duration) *process {
			return start(t, role{Name: name, URLs: r.URLs(), Lock: "counter", TTL: ttl, Dir: dir, Who: who})
		}
		holder := play("hold", victim, victimTTL)
		holder.expect(t, "holding")
		var others []*process
		for who := range counters {
			others = append(others, play("count", who, ttl))
		}
		for _, p := range others {
			p.expect(t, "refused")
		}

		holder.kill()
		died := time.Now()
		journal, err := openJournal(dir)
		require.NoError(t, err)
		defer journal.Close()
		require.NoError(t, journal.write(leaves, victim))
		first := make(chan time.Time, counters)
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, p := range others {
			wg.Go(func() {
				if assert.Equal(t, "acquired", <-p.lines) {
					first <- time.Now()
				}
			})
		}
		select {
		case at := <-first:
			t.Logf("acquired %v after the holder was killed", at.Sub(died).Round(time.Millisecond))
			assert.Less(t, at.Sub(died), victimTTL+5*slack)
		case <-time.After(longTTL):
			t.Fatal("nobody acquires the killed holder's lock")
		}
		for _, p := range others {
			p.finish(t)
		}

		n, err := os.ReadFile(filepath.Join(dir, "counter"))
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(counters*goroutines*increments), string(n), "increments were lost")
		turns, changes := readJournal(t, dir)
		assert.Equal(t, counters*goroutines*increments+1, turns)
		t.Logf("%d of %d times the lock went to another process", changes, turns)
		assert.Greater(t, changes, counters, "the processes did not compete, they took turns")
	})
}

// holdOn takes the lock and keeps it until the process is killed.
func holdOn(r role) error {
	locker, err := r.locker()
	if err != nil {
		return err
	}
	journal, err := openJournal(r.Dir)
	if err != nil {
		return err
	}
	lock, err := locker.Acquire(context.Background(), r.Lock)
	if err != nil {
		return err
	}
	if err := journal.write(enters, r.Who); err != nil {
		return err
	}
	say("holding")
	<-lock.Context().Done()
	return fmt.Errorf("the lock has ended: %w", context.Cause(lock.Context()))
}

// countUp increments a counter in a file many times, by reading and writing it:
// two who do so at once lose an increment.
func countUp(r role) error {
	var refused, acquired sync.Once
	locker, err := r.locker(redlock.Observe(watch(func(e redlock.Event) bool {
		if e.Kind == redlock.EventAttempt && e.Err != nil {
			refused.Do(func() { say("refused") })
		}
		return false
	})))
	if err != nil {
		return err
	}
	journal, err := openJournal(r.Dir)
	if err != nil {
		return err
	}
	increment := func(context.Context) error {
		if err := journal.write(enters, r.Who); err != nil {
			return err
		}
		acquired.Do(func() { say("acquired") })
		path := filepath.Join(r.Dir, "counter")
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		n, _ := strconv.Atoi(string(text)) // no file is zero
		if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		return journal.write(leaves, r.Who)
	}
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for range increments {
				if err := locker.Do(context.Background(), r.Lock, increment); err != nil {
					errs <- err
					return
				}
				// Something else to do, or this process would hand the lock to its own
				// waiters until all of them are done, and compete with nobody.
				<-time.After(rand.N(20 * time.Millisecond))
			}
			errs <- nil
		}()
	}
	for range goroutines {
		if err := <-errs; err != nil {
			return err
		}
	}
	return locker.Close()
}

// A journal is a file to which the processes append when they enter and leave
// what the lock protects. Appends of a line are atomic, so the order of the lines
// is the order of what happened, without comparing clocks.
type journal struct{ *os.File }

const (
	enters = "enters"
	leaves = "leaves"
)

func openJournal(dir string) (journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return journal{f}, err
}

func (j journal) write(what string, who int) error {
	_, err := fmt.Fprintln(j.File, who, what)
	return err
}

// readJournal checks that nobody entered before the one before had left, and
// returns how often somebody did, and how often that was another process.
func readJournal(t *testing.T, dir string) (turns, changes int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "journal"))
	require.NoError(t, err)
	inside, last := "", ""
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		who, what, _ := strings.Cut(line, " ")
		switch what {
		case enters:
			require.Empty(t, inside, "line %d: %s enters while another is inside", n+1, who)
			turns++
			if last != "" && last != who {
				changes++
			}
			inside, last = who, who
		case leaves:
			require.Equal(t, inside, who, "line %d: left by one who is not inside", n+1)
			inside = ""
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	require.Empty(t, inside)
	return turns, changes
}
