package fence

import "sync"

// A Gate lets writers through that come with the highest token so far, or a
// higher one. It remembers one number for each key, in memory and for good:
// forgetting one would let a late writer through. A process that restarts has
// forgotten all, so the tokens belong beside the data, if that outlives the
// process; see Do.
//
// The zero value is ready. A Gate must not be copied. Its methods are safe for
// concurrent use.
type Gate struct {
	mu   sync.Mutex
	keys map[string]*seen
}

// seen is locked during the writes to its key, so that those to others go on.
type seen struct {
	mu      sync.Mutex
	highest int64
}

// Do runs write, unless a higher token than token has been seen for key: then it
// returns a *StaleError, which matches ErrStale. Writes to one key run one at a
// time, each with its check, in no particular order; write must not call Do for the
// same key.
//
// Otherwise Do returns what write returns. The token counts as seen even if
// write fails or panics, because it may have written something by then, and
// because a lower token is late in any case.
//
// A nil write does nothing but show the token: before reading what one is going to
// write, or to tell a new Gate the token that is stored with the data.
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
