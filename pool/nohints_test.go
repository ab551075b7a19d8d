package pool

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// A doubt is written by any of a node's goroutines, and read while they run.
type doubts struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *doubts) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *doubts) polls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Count(d.text.String(), "poll")
}

func (d *doubts) log() Option { return Log(slog.New(slog.NewTextHandler(d, nil))) }

// idle: nobody listens, nor will before the next connection.
func idle(n redlock.Node) bool {
	h := &n.(*node).hints
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused && !h.listening
}

func TestAServerThatGivesNoHintsIsPolled(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	for user, rule := range map[string]string{
		"tracking":  "-client|tracking",
		"caching":   "-client|caching",
		"id":        "-client|id",
		"subscribe": "-subscribe",
		"channel":   "resetchannels",
	} {
		s.do("ACL", "SETUSER", user, "on", ">hunter2", "~*", "&*", "+@all", rule)
		t.Run("ACL "+rule, func(t *testing.T) {
			t.Parallel()
			s := live{s.Fleet, t}
			var log doubts
			n := openNode(t, "redis://"+user+":hunter2@"+strings.TrimPrefix(s.url(), "redis://"), log.log())
			w := wait(t, n, user)
			if rule == "-client|caching" {
				w.next() // it looks as if it could
			}
			require.Equal(t, redlock.Granted, do(t, n, acquire(user, "v")).Outcome)
			assert.Equal(t, redlock.Refused, w.ask().Outcome)
			eventually(t, func() bool { return idle(n) }, "the listener is given up")
			assert.Equal(t, redlock.Refused, w.ask().Outcome)
			require.Equal(t, redlock.Granted, do(t, n, release(user, "v")).Outcome)
			wait(t, n, user).stop()
			assert.True(t, idle(n), "and not tried again")
			assert.Empty(t, w.hints)
			assert.Equal(t, 1, log.polls())

			// The next connection may be permitted to, and is not told of again.
			s.killOf(user)
			answers(t, n)
			if rule == "-client|caching" {
				w.next()
			}
			assert.Equal(t, redlock.Granted, w.ask().Outcome)
			eventually(t, func() bool { return idle(n) }, "given up again")
			s.do("ACL", "SETUSER", user, "&*", "+@all")
			s.killOf(user)
			w.next()
			w.ask()
			s.do("SET", user, "x")
			w.next()
			assert.Equal(t, 1, log.polls(), "said once")
		})
	}
}

// killOf ends the data connection of the user, and returns when there is another.
func (s live) killOf(user string) {
	s.t.Helper()
	find := func() (id string) {
		for _, c := range s.clients("redlock") {
			if c["user"] == user {
				id = c["id"]
			}
		}
		return id
	}
	old := find()
	s.do("CLIENT", "KILL", "ID", old)
	eventually(s.t, func() bool { id := find(); return id != "" && id != old }, "connected again")
}

// answers returns when n is connected: what it answers comes from a connection
// that the server has not killed.
func answers(t *testing.T, n redlock.Node) {
	t.Helper()
	eventually(t, func() bool {
		req := redlock.Request{Op: redlock.OpInspect, Key: "none", Timeout: patience}
		to := make(replies, 1)
		return n.Submit(&req, 0, to) == nil && to.next(t).Outcome == redlock.Granted
	}, "it answers")
}

// miniredis, as some proxies, does not know the command.
func TestAServerWithoutTrackingIsPolled(t *testing.T) {
	t.Parallel()
	var log doubts
	r := newRig(t)
	n := r.open(log.log())
	w := wait(t, n, "k")
	eventually(t, func() bool { return idle(n) }, "the listener is given up")
	assert.Equal(t, redlock.Granted, w.ask().Outcome)
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Equal(t, redlock.Refused, w.ask().Outcome)
	assert.Len(t, r.commands("CLIENT TRACKING ON"), 1)
	assert.Empty(t, w.hints)
	assert.Equal(t, 1, log.polls())
}

func TestWithoutWatchersNothingIsAddedToARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	require.Equal(t, redlock.Refused, do(t, n, redlock.Request{Op: redlock.OpWatch, Key: "k"}).Outcome)
	require.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome)
	assert.Equal(t, []string{"1 CLIENT SETNAME redlock", "1 CLIENT ID"}, r.commands("CLIENT"))
	assert.Equal(t, 1, r.connections())
}

// CLIENT CACHING holds for the next command, whatever that is.
func TestNothingComesBetweenAWatchAndWhatMakesItOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("first", "v")).Outcome) // so the data connection is number 1
	watched := wait(t, n, "w")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 50 {
				key := fmt.Sprint(i, "-", j)
				set := acquire(key, "v")
				set.Epoch = "e"
				a, b := submit(t, n, set), submit(t, n, redlock.Request{Op: redlock.OpWatch, Key: "w"})
				c := submit(t, n, release(key, "v"))
				a.next(t)
				assert.Equal(t, redlock.Granted, b.next(t).Outcome)
				assert.Equal(t, redlock.Granted, c.next(t).Outcome, "replies belong to their requests")
			}
		})
	}
	all.Wait()
	watched.next()
	watched.ask()
	said := 0
	lines := r.sentBy(1)
	for i, line := range lines {
		if line == "1 CLIENT CACHING YES" {
			said++
			require.Equal(t, "1 PTTL w", lines[i+1])
		}
	}
	assert.Positive(t, said)
}

// sentBy returns what a connection has sent, but not what scripts did.
func (r *rig) sentBy(id int) []string {
	var lines []string
	for _, line := range r.commands("") {
		if strings.HasPrefix(line, fmt.Sprint(id, " ")) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A number belongs to the process that gave it: in another one it may be that
// of a stranger.
func TestHintsAreNotSentToAnotherProcessesClient(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.mu.Lock()
	r.runID = "run2" // says the listener
	r.mu.Unlock()
	w := wait(t, n, "k")
	eventually(t, func() bool { return n.(*node).redirectNow().client != 0 }, "there is a listener")
	w.ask()
	assert.Empty(t, r.commands("CLIENT TRACKING", "CLIENT CACHING"))
	assert.Empty(t, w.hints)
}

func pinging(every time.Duration) Option {
	return func(s *settings) error {
		s.ping = every
		return nil
	}
}

func TestAListenerThatComesTooLateGoesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	r.hangAt("SUBSCRIBE")
	n := r.open(lingering(time.Millisecond), DialTimeout(patience))
	h := &n.(*node).hints
	is := func(what *bool) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return *what
	}
	w := wait(t, n, "k")
	eventually(t, func() bool { return r.connections() == 2 }, "it is being made")
	w.stop()
	eventually(t, func() bool { return !is(&h.wanted) }, "nobody wants it any more")
	r.goOn()
	eventually(t, func() bool { return !is(&h.listening) }, "it has gone")
	assert.Empty(t, w.hints)
}

func TestAListenerThatHangsIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	r.hangAt("PING")
	n := r.open(pinging(time.Millisecond), StallTimeout(50*time.Millisecond))
	w := wait(t, n, "k")
	w.next()
	w.next() // from the next listener
	assert.GreaterOrEqual(t, len(r.commands("SUBSCRIBE")), 2)
}

func TestAListenerThatHearsNothingIsKept(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]string{"answers": "", "may not be pinged": "NOPERM this user has no permissions"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.tracks = true
			r.fail("PING", failure)
			n := r.open(pinging(time.Millisecond))
			w := wait(t, n, "k")
			w.next()
			eventually(t, func() bool { return len(r.commands("PING")) >= 5 }, "it is looked after")
			assert.Equal(t, 2, r.connections())
		})
	}
}
