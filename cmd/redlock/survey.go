package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
	"github.com/redquorum/redquorum/redlock"
)

// A surveyor looks at the servers for the page of "redlock serve", by what "redlock status" and "redlock
// doctor" see. Its look is not called twice at a time.
type surveyor struct {
	servers *servers
	sets    []serverSet

	examined *examination // nil: not yet
	nextExam time.Time
}

const (
	surveyedLocks = 10_000           // of one set
	examinedEvery = 10 * time.Second // a visit of the doctor is some fifty commands
	namedMembers  = 20               // readers, and those who wait, of one lock
)

// look makes a survey. What is wrong with servers is in it.
func (y *surveyor) look(ctx context.Context) (*serve.Survey, error) {
	var exam sync.WaitGroup
	if now := time.Now(); now.After(y.nextExam) {
		exam.Go(func() {
			if found, err := y.servers.examine(ctx, y.sets); err == nil { // or a group has no quorum
				y.examined = found
			}
			y.nextExam = time.Now().Add(examinedEvery)
		})
	}
	read, err := y.servers.readAll(ctx, y.sets, func(serverSet) inspect.Question {
		return inspect.Question{Limit: surveyedLocks, Members: namedMembers, Beside: true}
	})
	exam.Wait()
	if err != nil {
		return nil, err
	}
	found := &serve.Survey{Locks: []serve.LockState{}}
	for i, h := range read {
		found.CutOff = found.CutOff || h.CutOff
		for n := range h.Locks {
			if l := surveyOf(h, &h.Locks[n]); l.State != inspect.Free {
				l.Group = y.sets[i].group
				found.Locks = append(found.Locks, l)
			}
		}
		for _, n := range h.Servers {
			s := serve.ServerState{Server: n.Name, Group: y.sets[i].group, Findings: []doctor.Finding{}}
			if n.Err != nil {
				s.Error = plain.Harmless(n.Err.Error())
			}
			y.examined.addTo(&s)
			found.Servers = append(found.Servers, s)
		}
	}
	return found, nil
}

func surveyOf(h *inspect.Holdings, of *inspect.Lock) serve.LockState {
	l := statusOf(h, of)
	a := serve.LockState{
		Name: l.Name, Permit: l.Permit, State: l.State, Kind: "exclusive", Votes: l.Votes, Servers: len(l.Nodes), Owner: l.Owner, Left: l.TTL,
	}
	if !utf8.ValidString(l.Name) {
		a.Name = strconv.QuoteToASCII(l.Name)
	}
	if l.Votes > 0 {
		a.Holder = l.shown()
	}
	if l.Since != nil {
		a.Since = l.Since.Format(time.RFC3339)
	}
	switch {
	case l.Readers:
		a.Kind = "shared"
	case l.Permit != nil:
		a.Kind = "permits"
	}
	var readers, waiters []inspect.Members
	for i, n := range l.Nodes {
		k := serve.HeldKey{Server: n.Node, State: n.state(), Left: n.TTL, Error: n.Error}
		if n.Held {
			k.Holder = n.shown()
		}
		a.Keys = append(a.Keys, k)
		a.Fence = max(a.Fence, of.On[i].Fence)
		readers, waiters = append(readers, of.On[i].Readers), append(waiters, of.On[i].Waiters)
	}
	a.Readers, a.Waiters = merge(readers), merge(waiters)
	return a
}

// merge returns the members that the servers have, in the order of the server that knows the most. A queue
// is on one server as long as that answers.
func merge(of []inspect.Members) (m serve.Members) {
	slices.SortStableFunc(of, func(a, b inspect.Members) int { return cmp.Compare(len(b.First), len(a.First)) })
	at := map[string]int{}
	for _, all := range of {
		m.Count = max(m.Count, all.Count)
		for _, one := range all.First {
			i, ok := at[one.ID]
			if !ok {
				i = len(m.First)
				at[one.ID] = i
				m.First = append(m.First, serve.Member{ID: valueShown(one.ID), Owner: redlock.HolderOf(one.ID).Owner})
			}
			known := &m.First[i]
			known.Votes++
			known.Waited, known.Left = max(known.Waited, one.Waited.Milliseconds()), max(known.Left, one.Left.Milliseconds())
		}
	}
	m.Count = max(m.Count, len(m.First))
	m.First = m.First[:min(len(m.First), namedMembers)]
	return m
}

func (e *examination) addTo(s *serve.ServerState) {
	if e == nil {
		return
	}
	for _, g := range e.Groups {
		at := slices.IndexFunc(g.Nodes, func(n doctor.NodeReport) bool { return n.Node == s.Server })
		if g.Group != s.Group || at < 0 {
			continue
		}
		if t := g.Nodes[at].Timing; t != nil {
			s.Timing = &serve.Timing{
				Trip: t.Trip.Microseconds(), Longest: t.Longest.Microseconds(),
				Ahead: t.Offset.Microseconds(), Within: t.Uncertainty.Microseconds(),
			}
		}
		s.Findings = append(s.Findings, g.Nodes[at].Findings...)
	}
}
