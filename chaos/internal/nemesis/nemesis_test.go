package nemesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stage is a world of which only the record is real. It is its own fleet and clients.
type stage struct {
	fleet.Fleet
	mu     sync.Mutex
	did    []string
	broken string // what fails
}

func (s *stage) do(what string, i int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did = append(s.did, fmt.Sprint(what, " ", i))
	if what == s.broken {
		return errors.New("cannot " + what)
	}
	return nil
}

func (s *stage) Pause(_ context.Context, i int) error  { return s.do("pause", i) }
func (s *stage) Resume(_ context.Context, i int) error { return s.do("resume", i) }
func (s *stage) Kill(_ context.Context, i int) error   { return s.do("kill", i) }
func (s *stage) Restart(_ context.Context, i int, m fleet.Memory) error {
	return s.do([]string{fleet.Kept: "restart kept", fleet.Lost: "restart lost"}[m], i)
}

func (s *stage) Flush(_ context.Context, i int) error   { return s.do("flush", i) }
func (s *stage) Promote(_ context.Context, i int) error { return s.do("promote", i) }
func (s *stage) Fork(_ context.Context, i int) error    { return s.do("fork", i) }
func (s *stage) GoBack(_ context.Context, i int) error  { return s.do("go back", i) }
func (s *stage) SetClock(i int, ahead time.Duration) error {
	return s.do(fmt.Sprint("set ahead by ", ahead, ":"), i)
}
func (s *stage) Demote(_ context.Context, i int) error { return s.do("demote", i) }

// processes are the clients, or the daemons.
type processes struct {
	*stage
	of string
}

func (p processes) Pause(_ context.Context, i int) error  { return p.do("pause "+p.of, i) }
func (p processes) Resume(_ context.Context, i int) error { return p.do("resume "+p.of, i) }
func (p processes) PauseOne(_ context.Context, i int) error {
	return p.do("pause one of "+p.of, i)
}
func (p processes) ResumeOne(_ context.Context, i int) error {
	return p.do("resume one of "+p.of, i)
}
func (p processes) Replace(_ context.Context, i int) error { return p.do("replace "+p.of, i) }
func (p processes) End(_ context.Context, i int) error     { return p.do("end "+p.of, i) }

func world(s *stage, record *bytes.Buffer) World {
	return World{
		Fleet: s, Writes: []fleet.Persistence{fleet.None, fleet.EverySecond, fleet.Always}, Clients: processes{s, "client"}, Daemons: processes{s, "daemon"}, Servers: s,
		Log: history.NewLog(record),
	}
}

func TestEachFaultIsMadeAndUndone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    Kind
		victims []int
		did     string
	}{
		{PauseServer, []int{1}, "pause 1, resume 1"},
		{KillServer, []int{0}, "kill 0, restart lost 0"},
		{KillServer, []int{1}, "kill 1, restart kept 1"},
		{RestartMajority, []int{2}, "kill 2, restart kept 2"},
		{RestartMajority, []int{0, 1}, "kill 0, kill 1, restart kept 1, restart lost 0"},
		{Flush, []int{2}, "flush 2"},
		{FailOver, []int{1}, "promote 1, demote 1"},
		{ThereAndBack, []int{1}, "fork 1, go back 1"},
		{ClockAtBoot, []int{1}, "set ahead by 0s: 1, restart lost 1, set ahead by 0s: 1"},
		{PauseClient, []int{3}, "pause client 3, resume client 3"},
		{StopServer, []int{1}, "pause 1, resume 1"},
		{StopProcess, []int{3}, "pause one of client 3, resume one of client 3"},
		{KillClient, []int{3}, "replace client 3"},
		{PauseDaemon, []int{1}, "pause daemon 1, resume daemon 1"},
		{KillDaemon, []int{1}, "replace daemon 1"},
		{EndDaemon, []int{1}, "end daemon 1"},
	} {
		var s stage
		var record bytes.Buffer
		plan := Plan{{{Kind: c.kind, Victims: c.victims, For: time.Millisecond}}}
		w := world(&s, &record)
		require.NoError(t, Run(t.Context(), plan, w))
		if len(c.victims) > 1 { // they are struck at the same time, and healed likewise
			slices.Sort(s.did[:2])
			slices.Sort(s.did[2:])
		}
		assert.Equal(t, c.did, strings.Join(s.did, ", "), c.kind)
		assert.Positive(t, w.Log.Last(history.Fault, c.kind))
	}
}

func TestAnInterruptedPlanIsUndoneAtOnce(t *testing.T) {
	t.Parallel()
	var s stage
	var record bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	plan := Plan{
		{{Kind: PauseServer, Victims: []int{1}, For: time.Hour}, {At: time.Hour, Kind: Flush, Victims: []int{1}}},
		{{Kind: PauseClient, Victims: []int{0}, For: time.Hour}},
	}
	w := world(&s, &record)
	done := make(chan error, 1)
	go func() { done <- Run(ctx, plan, w) }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.did) == 2
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	slices.Sort(s.did)
	assert.Equal(t, []string{"pause 1", "pause client 0", "resume 1", "resume client 0"}, s.did)
}

func TestAFaultThatCannotBeMadeOrUndoneEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"pause", "resume"} {
		s := stage{broken: broken}
		var record bytes.Buffer
		plan := Plan{
			{{Kind: PauseServer, Victims: []int{1}}},
			{{At: time.Hour, Kind: Flush, Victims: []int{1}}},
		}
		err := Run(t.Context(), plan, world(&s, &record))
		require.ErrorContains(t, err, "cannot "+broken)
		assert.ErrorContains(t, err, "pause-server nodes [1]")
	}
}

func TestOneWayFaultsGoOneWay(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind][2]any{
		DropRequests: {relay.Requests, relay.Drop}, HoldRequests: {relay.Requests, relay.Hold},
		DelayRequests: {relay.Requests, relay.Delay}, LateRequests: {relay.Requests, relay.Late},
		DropReplies: {relay.Replies, relay.Drop}, HoldReplies: {relay.Replies, relay.Hold},
		DelayReplies: {relay.Replies, relay.Delay}, LateReplies: {relay.Replies, relay.Late},
		HoldAnswers: {relay.Replies, relay.Hold}, DelayAnswers: {relay.Replies, relay.Delay},
	} {
		way, mode := network(kind)
		assert.Equal(t, want, [2]any{way, mode}, kind)
	}
}
