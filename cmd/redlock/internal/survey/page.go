package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/redlock"
)

// A Survey has the locks on the servers, and the health of the servers, at one moment, for the page
// and for GET /v1/survey. Its names, owners and errors come from other programs. Times are
// milliseconds.
type Survey struct {
	Locks   []LockState   `json:"locks"`
	Servers []ServerState `json:"servers"`
	CutOff  bool          `json:"cut_off,omitempty"` // there may be more locks
}

// A LockState is one lock, or one permit of it.
type LockState struct {
	Name    string    `json:"name"`
	Group   string    `json:"group,omitempty"`
	Permit  *int      `json:"permit,omitempty"` // of several, counted from 0
	State   string    `json:"state"`            // state in the words of "redlock status"
	Kind    string    `json:"kind"`             // exclusive, shared or permits
	Votes   int       `json:"votes"`            // servers that hold the value
	Servers int       `json:"servers"`
	Holder  string    `json:"holder,omitempty"` // start of the value, as "redlock status" shows it
	Owner   string    `json:"owner,omitempty"`
	Since   string    `json:"since,omitempty"`   // by the holder's clock
	Left    *int64    `json:"left_ms,omitempty"` // remaining time without a renewal; -1: no limit
	Fence   int64     `json:"fence,omitempty"`   // the highest token that a server has accepted
	Readers Members   `json:"readers,omitzero"`
	Waiters Members   `json:"waiters,omitzero"` // waiters in order; one or more for each waiting process
	Clients Members   `json:"clients,omitzero"` // waiters of this process, added by the Server
	Waiting int       `json:"waiting"`          // Waiters and Clients together: see clientsOf.addTo
	Keys    []HeldKey `json:"keys,omitempty"`   // key on each server; only for a lock that was requested by name
}

// id identifies a row. A NUL separates its parts, because no name of a group has one.
func (l *LockState) id() string {
	permit := -1
	if l.Permit != nil {
		permit = *l.Permit
	}
	return fmt.Sprintf("%s\x00%d\x00%s", l.Group, permit, l.Name)
}

// Members are readers, or waiters.
type Members struct {
	Count int      `json:"count"`
	First []Member `json:"first"` // of them
}

// A Member is one reader or waiter.
type Member struct {
	ID     string `json:"id,omitempty"` // start of its value or ticket; empty for a client
	Owner  string `json:"owner,omitempty"`
	Votes  int    `json:"votes"`               // number of servers that know the member
	Waited int64  `json:"waited_ms,omitempty"` // for a waiter
	Left   int64  `json:"left_ms"`             // time until it no longer counts, if it does not ask again
}

// A HeldKey is the key of a lock on one server.
type HeldKey struct {
	Server string `json:"server"`
	State  string `json:"state"`
	Holder string `json:"holder,omitempty"`
	Left   *int64 `json:"left_ms,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A ServerState is the state of one server. The findings are from "redlock doctor", and a few seconds old.
type ServerState struct {
	Server   string           `json:"server"`
	Group    string           `json:"group,omitempty"`
	Error    string           `json:"error,omitempty"` // reason the server did not answer this time
	Health   string           `json:"health"`          // health in a word: see JudgeHealth
	Timing   *Timing          `json:"timing,omitempty"`
	Findings []doctor.Finding `json:"findings"`
}

// A Timing is a measurement of "redlock doctor", in microseconds.
type Timing struct {
	Trip    int64 `json:"trip_us"` // median of some round trips
	Longest int64 `json:"longest_us"`
	Ahead   int64 `json:"ahead_us"`  // lead of the server's clock over ours; negative: it is behind
	Within  int64 `json:"within_us"` // maximum error of Ahead
}

// NamedMembers is the number of readers, and the number of waiters, of one lock that are named.
const NamedMembers = 20

// StateOf returns the state of a lock for the page.
func StateOf(h *inspect.Holdings, of *inspect.Lock) LockState {
	l := LockOf(h, of)
	a := LockState{
		Name: l.Name, Permit: l.Permit, State: l.State, Kind: "exclusive", Votes: l.Votes, Servers: len(l.Nodes), Owner: l.Owner, Left: l.TTL,
	}
	if !utf8.ValidString(l.Name) {
		a.Name = strconv.QuoteToASCII(l.Name)
	}
	if l.Votes > 0 {
		a.Holder = l.Shown()
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
		k := HeldKey{Server: n.Node, State: n.State(), Left: n.TTL, Error: n.Error}
		if n.Held {
			k.Holder = n.Shown()
		}
		a.Keys = append(a.Keys, k)
		a.Fence = max(a.Fence, of.On[i].Fence)
		readers, waiters = append(readers, of.On[i].Readers), append(waiters, of.On[i].Waiters)
	}
	a.Readers, a.Waiters = merge(readers), merge(waiters)
	return a
}

// merge returns the members on all servers, in the order of the server with the most members. A
// queue is on one server while that server answers.
func merge(of []inspect.Members) (m Members) {
	slices.SortStableFunc(of, func(a, b inspect.Members) int { return cmp.Compare(len(b.First), len(a.First)) })
	at := map[string]int{}
	for _, all := range of {
		m.Count = max(m.Count, all.Count)
		for _, one := range all.First {
			i, ok := at[one.ID]
			if !ok {
				i = len(m.First)
				at[one.ID] = i
				m.First = append(m.First, Member{ID: Shown(one.ID), Owner: redlock.HolderOf(one.ID).Owner})
			}
			known := &m.First[i]
			known.Votes++
			known.Waited, known.Left = max(known.Waited, one.Waited.Milliseconds()), max(known.Left, one.Left.Milliseconds())
		}
	}
	m.Count = max(m.Count, len(m.First))
	m.First = m.First[:min(len(m.First), NamedMembers)]
	return m
}

// JudgeHealth returns the health of a server in one or two words, for people. The findings have the
// details. It returns "" if the health is not known yet.
func (s *ServerState) JudgeHealth() string {
	isThere := func(check string, severities ...doctor.Severity) bool {
		return slices.ContainsFunc(s.Findings, func(f doctor.Finding) bool {
			return (check == "" || f.Check == check) && slices.Contains(severities, f.Severity)
		})
	}
	switch {
	case s.Error != "":
		return "down"
	case isThere("", doctor.Fatal):
		return "unfit"
	case isThere(doctor.CheckQuarantine, doctor.Warning):
		return "in quarantine"
	case isThere(doctor.CheckLatency, doctor.Note, doctor.Warning), isThere(doctor.CheckReachable, doctor.Warning): // answers too late
		return "slow"
	case len(s.Findings) == 0:
		return ""
	}
	return "well"
}

// Sort puts locks that need attention first.
func (s *Survey) Sort() {
	odd := func(l *LockState) int {
		if l.State == "held" || l.State == "free" {
			return 1
		}
		return 0
	}
	slices.SortFunc(s.Locks, func(a, b LockState) int {
		return cmp.Or(cmp.Compare(odd(&a), odd(&b)), strings.Compare(a.Name, b.Name), strings.Compare(a.id(), b.id()))
	})
}

// Matches reports whether the row of a lock contains the text of a filter.
func (l *LockState) Matches(filter string) bool {
	for _, text := range []string{l.Name, l.Owner, l.Group, l.State, l.Kind, l.Holder} {
		if strings.Contains(strings.ToLower(text), filter) {
			return true
		}
	}
	return false
}

// Changes returns the events since an earlier survey.
func (s *Survey) Changes(before *Survey) (events []Event) {
	note := func(name, what, text string) {
		events = append(events, Event{Lock: name, What: what, Text: text, By: "servers"})
	}
	was := map[string]*LockState{}
	for i := range before.Locks {
		was[before.Locks[i].id()] = &before.Locks[i]
	}
	for i := range s.Locks {
		l := &s.Locks[i]
		old := was[l.id()]
		delete(was, l.id())
		switch {
		case old == nil || old.Holder == "" && l.Holder != "":
			note(l.Name, l.State, "by "+l.by())
		case old.Holder != l.Holder && l.Holder != "":
			note(l.Name, l.State, "passed from "+old.by()+" to "+l.by())
		case old.State != l.State:
			note(l.Name, l.State, "was "+old.State)
		}
	}
	if !s.CutOff {
		for _, l := range before.Locks { // in their order
			if was[l.id()] != nil && !s.unsure() {
				note(l.Name, "free", "was held by "+l.by())
			}
		}
	}
	for i, server := range s.Servers {
		if i >= len(before.Servers) {
			break
		}
		switch old := before.Servers[i]; {
		case old.Error == "" && server.Error != "":
			note("", "down", server.Server+": "+server.Error)
		case old.Error != "" && server.Error == "":
			note("", "answers", server.Server)
		case old.Health != "" && old.Health != server.Health:
			note("", server.Health, server.Server+" was "+old.Health)
		}
	}
	return events
}

// unsure reports whether too few servers answered to know that an unseen lock is free.
func (s *Survey) unsure() bool {
	silent := 0
	for _, server := range s.Servers {
		if server.Error != "" {
			silent++
		}
	}
	return silent > 0 && 2*silent >= len(s.Servers)
}

// by describes the holder of a lock, for people.
func (l *LockState) by() string {
	who := l.Holder
	switch {
	case l.Kind == "shared":
		who = "readers"
	case l.Owner != "":
		who = l.Owner + " (" + l.Holder + ")"
	}
	if l.Permit != nil {
		who += fmt.Sprintf(", permit %d", *l.Permit)
	}
	return who
}

// An Event is something that happened to a lock, or to a server if it names no lock.
type Event struct {
	Number int64  `json:"number"`
	Time   string `json:"time"` // time of the event, or of its survey
	Lock   string `json:"lock,omitempty"`
	What   string `json:"what"`
	Text   string `json:"text"`
	By     string `json:"by"` // "this process", or "servers" if a survey shows it
}
