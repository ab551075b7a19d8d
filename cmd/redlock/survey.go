package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

// A surveyor looks at the servers for the page of "redlock serve", like "redlock status" and
// "redlock doctor". Only one call of look runs at a time.
type surveyor struct {
	servers *servers
	sets    []serverSet

	examined *examination // nil: not yet
	nextExam time.Time
}

const (
	surveyedLocks = 10_000           // of one set
	examinedEvery = 10 * time.Second // an examination takes about fifty commands
)

// look returns a survey, which includes the faults of servers.
func (y *surveyor) look(ctx context.Context) (*survey.Survey, error) {
	var exam sync.WaitGroup
	if now := time.Now(); now.After(y.nextExam) {
		exam.Go(func() {
			if found, err := y.servers.examine(ctx, y.sets); err == nil { // an error means that a group has no quorum
				y.examined = found
			}
			y.nextExam = time.Now().Add(examinedEvery)
		})
	}
	read, err := y.servers.readAll(ctx, y.sets, func(serverSet) inspect.Question {
		return inspect.Question{Limit: surveyedLocks, Members: survey.NamedMembers, Beside: true}
	})
	exam.Wait()
	if err != nil {
		return nil, err
	}
	found := &survey.Survey{Locks: []survey.LockState{}}
	for i, h := range read {
		found.CutOff = found.CutOff || h.CutOff
		for n := range h.Locks {
			if l := survey.StateOf(h, &h.Locks[n]); l.State != inspect.Free {
				l.Group = y.sets[i].group
				found.Locks = append(found.Locks, l)
			}
		}
		for _, n := range h.Servers {
			s := survey.ServerState{Server: n.Name, Group: y.sets[i].group, Findings: []doctor.Finding{}}
			if n.Err != nil {
				s.Error = plain.Harmless(n.Err.Error())
			}
			y.examined.addTo(&s)
			found.Servers = append(found.Servers, s)
		}
	}
	return found, nil
}

func (e *examination) addTo(s *survey.ServerState) {
	if e == nil {
		return
	}
	for _, g := range e.Groups {
		at := slices.IndexFunc(g.Nodes, func(n doctor.NodeReport) bool { return n.Node == s.Server })
		if g.Group != s.Group || at < 0 {
			continue
		}
		if t := g.Nodes[at].Timing; t != nil {
			s.Timing = &survey.Timing{
				Trip: t.Trip.Microseconds(), Longest: t.Longest.Microseconds(),
				Ahead: t.Offset.Microseconds(), Within: t.Uncertainty.Microseconds(),
			}
		}
		s.Findings = append(s.Findings, g.Nodes[at].Findings...)
	}
}
