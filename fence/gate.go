package fence

import "sync"

// A Gate lets a write through if no higher token has been seen. It keeps one number per key in
// memory. Data that outlives the process must be stored together with its token; see Do.
//
// The zero value is ready to use. A Gate must not be copied. Its methods are safe for concurrent
// use.
type Gate struct {
	mu   sync.Mutex
	keys map[string]*seen
}

// A seen is locked during writes to its key, so that writes to other keys can proceed.
type seen struct {
	mu      sync.Mutex
	highest int64
}

// Do calls write and returns its error. If a higher token has been seen for key, Do does not call
// write and returns a *StaleError, which matches ErrStale. Writes to one key run one at a time, in
// no particular order. write must not call Do for the same key.
//
// The token counts as seen even if write fails or panics, because write may have changed something
// first.
//
// A nil write only announces the token: see Announce.
func (g *Gate) Do(key string, token int64, write func() error) error {
	if err := Check(token); err != nil {
		return err
	}
	s := g.seen(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.highest {
		return &StaleError{Key: key, Token: token, Highest: s.highest}
	}
	s.highest = token
	if write == nil {
		return nil
	}
	return write()
}

// Announce registers the token of a lock that was just granted, before its holder reads or writes.
// It waits for a running write to the key. After it, no write with a lower token runs. Announce
// also initializes a new Gate with the token that is stored with the data. Its errors are the
// errors of Do.
func (g *Gate) Announce(key string, token int64) error { return g.Do(key, token, nil) }

func (g *Gate) seen(key string) *seen {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.keys[key]
	if s == nil {
		if g.keys == nil {
			g.keys = map[string]*seen{}
		}
		s = new(seen)
		g.keys[key] = s
	}
	return s
}
