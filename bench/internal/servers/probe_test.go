package servers

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

const ms = time.Millisecond

// A host is a server in virtual time: it reads what comes, and answers each PING after a while.
type host struct {
	slow    time.Duration // each answer
	far     time.Duration // each dial
	serving sync.WaitGroup

	mu    sync.Mutex
	hung  chan struct{} // closed when it goes on; nil: it does not hang
	dead  bool
	conns []net.Conn
	dials int
}

func (h *host) dial(context.Context) (*conn, error) {
	time.Sleep(h.far)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials++
	if h.dead {
		return nil, errors.New("refused")
	}
	client, server := net.Pipe()
	h.conns = append(h.conns, server)
	h.serving.Go(func() { h.serve(server) })
	return newConn(client, newTraffic()), nil
}

func (h *host) serve(c net.Conn) {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if lines.Text() != "PING" {
			continue // the lengths of the protocol
		}
		h.serving.Go(func() {
			h.mu.Lock()
			hung := h.hung
			h.mu.Unlock()
			if hung != nil {
				<-hung
			}
			time.Sleep(h.slow)
			c.Write([]byte("+PONG\r\n"))
		})
	}
}

func (h *host) hang(hung chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hung = hung
}

func (h *host) die(dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = dead
	for _, c := range h.conns {
		c.Close()
	}
	h.conns = nil
}

// probed is what probes every 10 ms see of the host for so long, and meanwhile what happens to it.
func probed(t *testing.T, h *host, lasts time.Duration, meanwhile func()) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var other sync.WaitGroup
	other.Go(meanwhile)
	p := prober{interval: 10 * ms, dial: h.dial}
	probes := p.run(ctx, time.Now().Add(-time.Second))
	p.drop()
	other.Wait()
	h.die(true)
	h.serving.Wait()
	var took []time.Duration
	for i, p := range probes {
		assert.Equal(t, time.Second+time.Duration(i)*10*ms, p.At)
		took = append(took, p.Took)
	}
	return took
}

const none = noAnswer

func TestProbesTellHowLongAnswersTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := probed(t, &host{slow: 2 * ms, far: 2 * ms}, 35*ms, func() {})
		assert.Equal(t, []time.Duration{4 * ms, 2 * ms, 2 * ms, 2 * ms}, took, "the first dials")
	})
}

func TestAHungNodeIsNotPiledUpOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{slow: ms, far: ms}
		took := probed(t, h, 78*ms, func() {
			time.Sleep(15 * ms)
			hung := make(chan struct{})
			h.hang(hung)
			time.Sleep(40 * ms)
			h.hang(nil)
			close(hung) // the one PING that it got is answered now
		})
		assert.Equal(t, []time.Duration{2 * ms, ms, none, none, none, none, ms, ms}, took)
		assert.Equal(t, 1, h.dials)
	})
}

func TestAConnectionThatStaysSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{slow: ms, far: ms, hung: make(chan struct{})}
		took := probed(t, h, 2500*ms, func() {
			time.Sleep(2490 * ms)
			close(h.hung)
		})
		assert.NotContains(t, took, ms)
		assert.Equal(t, 3, h.dials, "each second one")
	})
}

func TestADeadNodeIsDialledUntilItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{slow: ms, far: ms}
		took := probed(t, h, 55*ms, func() {
			time.Sleep(15 * ms)
			h.die(true)
			time.Sleep(20 * ms)
			h.die(false)
		})
		assert.Equal(t, []time.Duration{2 * ms, ms, none, none, 2 * ms, ms}, took)
	})
}

func TestAConnectionThatBrokeBetweenProbesCostsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{slow: ms, far: ms}
		took := probed(t, h, 28*ms, func() {
			time.Sleep(5 * ms)
			h.die(false)
		})
		assert.Equal(t, []time.Duration{2 * ms, 2 * ms, ms}, took)
	})
}

func TestALateAnswerIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{slow: 15 * ms}
		assert.Equal(t, []time.Duration{none, none, none, none, none, none}, probed(t, h, 55*ms, func() {}))
		assert.Equal(t, 1, h.dials)
	})
}

func TestProbesOfRealNodes(t *testing.T) {
	t.Parallel()
	f, _ := start(t, fleet.Embedded, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
	defer cancel()
	probes := Probe(ctx, append(f.URLs(), "not a URL", "redis://127.0.0.1:1"), time.Now(), 50*ms)
	answered := func(ps []record.Probe) (n int) {
		for _, p := range ps {
			if p.Took >= 0 {
				n++
			}
		}
		return n
	}
	assert.Len(t, probes, 4)
	assert.Positive(t, answered(probes[0]))
	assert.Positive(t, answered(probes[1]))
	assert.Empty(t, probes[2])
	assert.NotEmpty(t, probes[3])
	assert.Zero(t, answered(probes[3]))
}
