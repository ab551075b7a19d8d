package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/conformance"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
)

// The table ensures that this package and the simulation's nodes give the same answers, so that the
// simulation does not test a wrong model of Redis.
func TestServersAnswerLikeTheSimulation(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		answersOf(t, string(kind), kind, func(t *testing.T, url string) protocol.Node {
			nodes, err := pool.OpenWith([]string{url}, patient...)
			tr.NoError(t, err)
			return nodes[0]
		})
	}
	// A connection from the caller's dial function is written in a different way.
	answersOf(t, "a dial function", fleet.Embedded, func(t *testing.T, url string) protocol.Node {
		node, err := pool.FromDial("dial", func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, url)
		}, patient...)
		tr.NoError(t, err)
		return node
	})
}

// patient prevents a busy machine from looking like a broken server.
var patient = []pool.Option{pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute)}

func answersOf(t *testing.T, name string, kind fleet.Kind, open func(t *testing.T, url string) protocol.Node) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		testenv.NeedKind(t, kind)
		f, err := fleet.Start(t.Context(), kind, fleet.Options{Nodes: 1})
		tr.NoError(t, err)
		defer f.Close()
		c, err := redis.DialURL(f.URLs()[0])
		tr.NoError(t, err)
		defer c.Close()
		conformance.Run(t, func(t *testing.T, body conformance.Body) {
			body(t, open(t, f.URLs()[0]), poker{t, c})
		})
	})
}

// A poker changes a server over a separate connection.
type poker struct {
	t *testing.T
	c redis.Conn
}

func (p poker) do(args ...any) {
	p.t.Helper()
	_, err := p.c.Do(args[0].(string), args[1:]...)
	tr.NoError(p.t, err)
}

func (p poker) Flush() { p.do("FLUSHALL") }

func (p poker) Set(key, value string, ttl time.Duration) {
	p.do("SET", key, value)
	if ttl != protocol.NoTTL {
		p.do("PEXPIRE", key, ttl.Milliseconds())
	}
}

func (p poker) SetWrongType(key string) {
	p.do("DEL", key)
	p.do("HSET", key, "field", "value")
}

func (p poker) SetCounter(key string, score float64) { p.do("ZADD", key, score, "highest") }

// Advance waits in real time, because a server's TTLs use nothing else.
func (poker) Advance(d time.Duration) { <-time.After(d) }
