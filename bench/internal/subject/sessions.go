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

// sessions are a Client: those of the callers of one process, one for each that is acquiring or
// holds a lock, kept for the next lock.
type sessions[S session] struct {
	open    func(context.Context) (S, error)
	lock    func(ctx context.Context, s S, name string) (unlock func(context.Context) error, err error)
	outcome func(error) string // that an error of either has; "": not known
	stop    func() error       // ends what the sessions have in common; may be nil
	ending  sync.WaitGroup

	mu   sync.Mutex
	free []S
}

// start opens as many as there are callers, so that no trial measures it.
func (p *sessions[S]) start(ctx context.Context, callers int) (Client, error) {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			s, err := p.open(ctx)
			if errs[i] = err; err == nil {
				p.put(s)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, errors.Join(err, p.Close()) // of many that say the same
		}
	}
	return p, nil
}

func (p *sessions[S]) Acquire(ctx context.Context, name string) (Lock, error) {
	s, err := p.take(ctx)
	if err != nil {
		return nil, failed(ctx, err, p.outcome(err))
	}
	unlock, err := p.lock(ctx, s, name)
	if err != nil {
		p.drop(s)
		return nil, failed(ctx, err, p.outcome(err))
	}
	return &sessionLock[S]{p, s, unlock}, nil
}

type sessionLock[S session] struct {
	sessions *sessions[S]
	session  S
	unlock   func(context.Context) error
}

// Release gives the session back. If it has ended, the lock was lost.
func (l *sessionLock[S]) Release(ctx context.Context) error {
	err := l.unlock(ctx)
	switch {
	case isLost(l.session):
		l.sessions.drop(l.session)
		return &failure{record.Lost, errors.Join(errors.New("the session has ended, and the lock with it"), err)}
	case err != nil:
		l.sessions.drop(l.session)
		return failed(ctx, err, l.sessions.outcome(err))
	}
	l.sessions.put(l.session)
	return nil
}

// Until is long from now until the client is told of the session's end: it is told of no time, and
// relies on the lock until then.
func (l *sessionLock[S]) Until() time.Time {
	if isLost(l.session) {
		return time.Time{}
	}
	return time.Now().Add(time.Hour)
}

func (l *sessionLock[S]) Lost() <-chan struct{} { return l.session.lost() }

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

func (p *sessions[S]) Close() error {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	for _, s := range free {
		p.drop(s)
	}
	p.ending.Wait()
	if p.stop != nil {
		return p.stop()
	}
	return nil
}

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
