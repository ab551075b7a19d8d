package fence

import "sync"

// A Gate lets writers through that come with the highest token so far, or a higher one. It
// remembers one number for each key in memory, for as long as it lives. Data that outlives the
// process must store its token beside itself; see Do.
//
// The zero value is ready. A Gate must not be copied. Its methods are safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	keys map[string]*seen
}

// seen is locked during the writes to its key, so that those to others go on.
type seen struct {
	mu      sync.Mutex
	highest int64
}

// Do runs write and returns what it returns. If a higher token than token has been seen for key, it
// does not, and returns a *StaleError, which matches ErrStale. Writes to one key run one at a time,
// in no particular order; write must not call Do for the same key.
//
// The token counts as seen even if write fails or panics, because it may have written something by
// then.
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

// Announce tells the Gate the token of a lock that has just been granted, before its holder reads or
// writes. It waits for a write to the key that is running. After it no write with a lower token
// runs. Announce also tells a new Gate the token that is stored with the data. Its errors are those
// of Do.
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
