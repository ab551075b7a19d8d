//go:build unix

package subject

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// products are the subjects that lock on servers of other products than Redis.
func products() []Spec { return slices.Concat(etcds(), zooKeepers(), []Spec{ofPostgreSQL()}) }

// A session is what servers tie locks to: they are gone when it is. It holds one lock at a time,
// because the mutexes of one session do not exclude each other everywhere.
type session interface {
	// lost is closed when the client knows that the session has ended. Nil: it does not notice by
	// itself.
	lost() <-chan struct{}
	// end gives up what the session holds. It returns when no goroutine of it is left.
	end()
}

// sessions are those of the callers of one process: one for each that is acquiring or holds a lock,
// kept for the next lock.
type sessions[S session] struct {
	open   func(context.Context) (S, error)
	ending sync.WaitGroup

	mu   sync.Mutex
	free []S
}

// newSessions opens as many as there are callers, so that no trial measures it.
func newSessions[S session](ctx context.Context, callers int, open func(context.Context) (S, error)) (*sessions[S], error) {
	p := &sessions[S]{open: open}
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			s, err := open(ctx)
			if errs[i] = err; err == nil {
				p.put(s)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			p.close()
			return nil, err // of many that say the same
		}
	}
	return p, nil
}

// take returns a session that is not known to have ended.
func (p *sessions[S]) take(ctx context.Context) (S, error) {
	for {
		p.mu.Lock()
		n := len(p.free)
		if n == 0 {
			p.mu.Unlock()
			return p.open(ctx)
		}
		s := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		if !isLost(s) {
			return s, nil
		}
		p.drop(s)
	}
}

func isLost(s session) bool {
	select {
	case <-s.lost():
		return true
	default:
		return false
	}
}

// put keeps the session for the next lock.
func (p *sessions[S]) put(s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// drop ends a session of which it is not known what it holds, and does not wait for servers that
// may not answer.
func (p *sessions[S]) drop(s S) { p.ending.Go(s.end) }

func (p *sessions[S]) close() {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	for _, s := range free {
		p.drop(s)
	}
	p.ending.Wait()
}

// released takes the session of a lock back whose release had this error. If the session has ended,
// the lock was lost; of other errors outcome knows the meaning.
func (p *sessions[S]) released(ctx context.Context, s S, err error, outcome func(error) string) error {
	switch {
	case isLost(s):
		p.drop(s)
		return &failure{record.Lost, errors.Join(errSessionEnded, err)}
	case err != nil:
		p.drop(s)
		return failed(ctx, err, outcome(err))
	}
	p.put(s)
	return nil
}

// untilEnded is the validity of a lock whose client is told of the session's end and of no time: it
// relies on the lock until then.
func untilEnded(s session) time.Time {
	if isLost(s) {
		return time.Time{}
	}
	return time.Now().Add(time.Hour)
}

var errSessionEnded = errors.New("the session has ended, and the lock with it")

// addresses takes the scheme from the URLs of a product's servers. The errors do not repeat them:
// others may hold passwords.
func addresses(urls []string, scheme string) ([]string, error) {
	var all []string
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != scheme || u.User != nil {
			return nil, fmt.Errorf("URL %d: not a server of %s, which the benchmark starts itself", i, scheme)
		}
		all = append(all, u.Host)
	}
	if len(all) == 0 {
		return nil, errors.New("no servers")
	}
	return all, nil
}
