package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/conformance"
	"github.com/redquorum/redquorum/internal/fleet"
	need "github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
)

// The table holds this package to the same answers as the simulation's nodes,
// so that the simulation does not test a wrong model of Redis.
func TestAnswersAreThoseOfTheSimulation(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process, fleet.Docker} {
		answersOf(t, string(kind), kind, func(t *testing.T, url string) protocol.Node {
			nodes, err := pool.OpenWith([]string{url}, patient...)
			tr.NoError(t, err)
			return nodes[0]
		})
	}
	// A connection of the caller's dial function is written on in another way.
	answersOf(t, "a dial function", fleet.Embedded, func(t *testing.T, url string) protocol.Node {
		node, err := pool.FromDial("dial", func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, url)
		}, patient...)
		tr.NoError(t, err)
		return node
	})
}

// patient keeps a busy machine from looking like a broken server.
var patient = []pool.Option{pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute)}

func answersOf(t *testing.T, name string, kind fleet.Kind, open func(t *testing.T, url string) protocol.Node) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		need.Kind(t, kind)
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

// A poker changes a server over a connection of its own.
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

// Advance lets real time pass: a server's TTLs run on nothing else.
func (poker) Advance(d time.Duration) { <-time.After(d) }
