package serve

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/redlock"
)

// inspectedName returns the name in GET /v1/locks?name=NAME.
func inspectedName(r *request) ([]string, error) {
	names, err := surveyed(r)
	if names == nil {
		err = api.Bad("name=NAME is missing: specify the lock")
	}
	return names, err
}

// inspect answers GET /v1/locks?name=NAME: at once, or when the holders differ from the holders that
// the client has seen.
func (s *Server) inspect(w http.ResponseWriter, r *request) error {
	permits, err := api.Number(r.Request, "permits", 1, "the number of its permits")
	if err != nil {
		return err
	}
	seen, wait, err := api.LongPoll(r.Request)
	if err != nil {
		return err
	}
	of := target{r.URL.Query().Get("name"), int(min(permits, math.MaxInt32))}
	found, err := s.inspected(r, of, seen, wait)
	if err != nil {
		return err
	}
	return api.Write(w, http.StatusOK, found)
}

// inspectionOf returns the holders of a lock, by the states of its permits and the leases of this
// server among the holders.
func inspectionOf(name string, permits []*redlock.Inspection, own holdings) *api.Inspection {
	a := &api.Inspection{Name: name, Holders: []api.Holder{}, Servers: len(permits[0].Nodes)}
	for _, n := range permits[0].Nodes {
		if n.Err == nil {
			a.Votes++
		}
	}
	var holders []string // identities of the holders, with secrets
	for i, p := range permits {
		value, left, ok := p.Holder()
		if !ok {
			continue
		}
		by := redlock.HolderOf(value)
		h := api.Holder{Owner: by.Owner, Left: max(-1, left.Milliseconds())}
		if !by.Since.IsZero() {
			h.Since = by.Since.Format(time.RFC3339)
		}
		if len(permits) > 1 {
			h.Permit = &i
		}
		holder := strconv.Itoa(i) + " " + value
		if l := own[i]; l != nil { // a value may be handed from one lease to the next
			h.Fence = max(l.granted.Fence, l.granted.Fences[name])
			holder += " " + l.id
		}
		a.Holders, holders = append(a.Holders, h), append(holders, holder)
	}
	a.Held, a.Version = len(a.Holders) > 0, versionOf(holders)
	return a
}

// inspectHolders returns the holders of a lock, with the fencing tokens of this server's leases.
func (s *Server) inspectHolders(ctx context.Context, of target) (*api.Inspection, error) {
	before := s.table.holding(of.name)
	found, err := s.locker.InspectPermits(ctx, of.name, of.permits)
	var vote *redlock.QuorumError
	if err != nil && !errors.As(err, &vote) && !errors.Is(err, redlock.ErrClosed) {
		return nil, api.Blame(err)
	} else if err != nil {
		return nil, err
	}
	return inspectionOf(of.name, found, before.still(s.table.holding(of.name))), nil
}

// inspected returns the holders of a lock at once, or within a time when their version differs from
// the version that the client has seen.
func (s *Server) inspected(r *request, of target, seen int64, within time.Duration) (*api.Inspection, error) {
	if within == 0 {
		return s.inspectHolders(r.Context(), of)
	}
	done, err := s.table.wait(r.client)
	if err != nil {
		return nil, err
	}
	defer done()
	found, err := s.await(r, of, seen, within)
	if err != nil {
		return nil, err
	}
	return found, s.mayStill(r, rights.Look, []string{of.name})
}

// await is like inspected, for a request that waits.
func (s *Server) await(r *request, of target, seen int64, limit time.Duration) (*api.Inspection, error) {
	w := s.watch(of)
	defer s.unwatch(of, w)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s.watches.mu.Lock()
		found, wrong, began, looked := w.found, w.wrong, w.began, w.looked
		s.watches.mu.Unlock()
		if wrong != nil {
			return nil, wrong
		}
		// An inspection that began before the request may be older than the one that the client has
		// seen.
		if found != nil && found.Version != seen && !began.Before(r.since) {
			return found, nil
		}
		select {
		case <-looked:
		case <-timer.C:
			return s.inspectHolders(r.Context(), of)
		case <-r.Context().Done():
			return nil, api.ErrLeft
		case <-s.waiting.Done():
			return nil, api.ErrEnding
		}
	}
}

// watch returns the watch of a lock for one more request, which calls unwatch at its end.
func (s *Server) watch(of target) *watch {
	all := &s.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.all[of]
	if w == nil {
		w = &watch{looked: make(chan struct{})}
		all.all[of] = w
		var ctx context.Context
		ctx, w.stop = context.WithCancel(s.waiting)
		if !all.isClosed {
			all.run.Go(func() { s.look(ctx, of, w) })
		}
	}
	w.requests++
	return w
}

func (s *Server) unwatch(of target, w *watch) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if w.requests--; w.requests == 0 {
		w.stop()
		delete(s.watches.all, of)
	}
}

// look inspects a lock until ctx ends. A failed inspection is repeated, like any other, unless the
// request is malformed.
func (s *Server) look(ctx context.Context, of target, w *watch) {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		var wrong *api.Problem
		if found, err := s.inspectHolders(ctx, of); err == nil || errors.As(err, &wrong) {
			s.watches.mu.Lock()
			w.found, w.wrong, w.began = found, wrong, began
			close(w.looked)
			w.looked = make(chan struct{})
			s.watches.mu.Unlock()
		}
		select {
		case <-every.C:
		case <-ctx.Done():
		}
	}
}
