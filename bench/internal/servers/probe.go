package servers

import (
	"context"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

// Probe PINGs every node each interval until ctx ends, and returns the probes by node. An answer
// that has not come within the interval counts as none. A connection that broke is dialled anew,
// and the time that takes is part of the answer's.
func Probe(ctx context.Context, urls []string, start time.Time, interval time.Duration) [][]record.Probe {
	probes := make([][]record.Probe, len(urls))
	var all sync.WaitGroup
	for i, raw := range urls {
		e, err := endpoint.Parse(raw)
		if err != nil {
			continue // Dial says so
		}
		all.Go(func() {
			p := prober{interval: interval, dial: func(ctx context.Context) (*conn, error) {
				return dial(ctx, e, newTraffic())
			}}
			defer p.drop()
			probes[i] = p.run(ctx, start)
		})
	}
	all.Wait()
	return probes
}

const noAnswer = time.Duration(-1)

// A prober asks one node.
type prober struct {
	interval time.Duration
	dial     func(context.Context) (*conn, error)

	conn    *conn // nil: none
	answers <-chan error
	dropped chan struct{}
	reading sync.WaitGroup
	pending time.Time // when the PING was sent that is not answered yet; zero: none
}

func (p *prober) run(ctx context.Context, start time.Time) []record.Probe {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	var probes []record.Probe
	for {
		began := time.Now()
		took := p.probe(ctx, began)
		if ctx.Err() != nil {
			return probes // cut short, it says nothing about the node
		}
		probes = append(probes, record.Probe{At: began.Sub(start), Took: took})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return probes
		}
	}
}

func (p *prober) probe(ctx context.Context, began time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, p.interval)
	defer cancel()
	p.takeLate()
	if !p.pending.IsZero() || (p.conn == nil && p.connect(ctx) != nil) {
		return noAnswer
	}
	if p.conn.Send("PING") != nil || p.conn.Flush() != nil {
		p.drop()
		return noAnswer
	}
	p.pending = began
	select {
	case err := <-p.answers:
		if p.answered(err); err == nil {
			return time.Since(began)
		}
	case <-ctx.Done():
	}
	return noAnswer
}

// takeLate takes the answer to an earlier PING, or the connection's end, if it has come. Until then
// no other PING is sent, and no other connection made: a node that hangs would collect them by the
// hundred, at the expense of the clients that it is there for. But after a second of silence the
// connection itself may be dead.
func (p *prober) takeLate() {
	select {
	case err := <-p.answers:
		p.answered(err)
	default:
		if !p.pending.IsZero() && time.Since(p.pending) > askTimeout {
			p.drop()
		}
	}
}

func (p *prober) answered(err error) {
	p.pending = time.Time{}
	if err != nil && p.conn.Err() != nil {
		p.drop()
	}
}

func (p *prober) connect(ctx context.Context) error {
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	answers, dropped := make(chan error), make(chan struct{})
	p.conn, p.answers, p.dropped = c, answers, dropped
	p.reading.Go(func() {
		for c.Err() == nil {
			_, err := redis.ReceiveWithTimeout(c.Conn, 0) // not c, which hides that it can
			select {
			case answers <- err:
			case <-dropped:
				return
			}
		}
	})
	return nil
}

func (p *prober) drop() {
	if p.conn == nil {
		return
	}
	p.conn.Close()
	close(p.dropped)
	p.reading.Wait()
	p.conn, p.answers, p.pending = nil, nil, time.Time{}
}
