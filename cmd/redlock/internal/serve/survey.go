package serve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
)

// A Survey is what the servers hold, and how they are, at one moment. It is what the page shows, and
// GET /v1/survey answers. Names, owners and errors in it come from others. Times are milliseconds.
type Survey struct {
	Locks   []LockState   `json:"locks"`
	Servers []ServerState `json:"servers"`
	CutOff  bool          `json:"cut_off,omitempty"` // there may be more locks
}

// A LockState is one lock, or one permit of it.
type LockState struct {
	Name    string    `json:"name"`
	Group   string    `json:"group,omitempty"`
	Permit  *int      `json:"permit,omitempty"` // which of several it is, from 0 on
	State   string    `json:"state"`            // as "redlock status" has it
	Kind    string    `json:"kind"`             // exclusive, shared or permits
	Votes   int       `json:"votes"`            // servers that hold the value
	Servers int       `json:"servers"`
	Holder  string    `json:"holder,omitempty"` // the beginning of the value, as "redlock status" shows it
	Owner   string    `json:"owner,omitempty"`
	Since   string    `json:"since,omitempty"`   // by the holder's clock
	Left    *int64    `json:"left_ms,omitempty"` // unless it is renewed; -1: for ever
	Fence   int64     `json:"fence,omitempty"`   // the highest token that a server has accepted
	Readers Members   `json:"readers,omitzero"`
	Waiters Members   `json:"waiters,omitzero"` // in their order: one or more for each process that waits
	Clients Members   `json:"clients,omitzero"` // who wait in this process, which the Server knows
	Waiting int       `json:"waiting"`          // both: see clientsOf.addTo
	Keys    []HeldKey `json:"keys,omitempty"`   // of one lock that was asked for: what each server holds
}

// id tells one row from another. No two differ in nothing but a NUL, which no name of a group has.
func (l *LockState) id() string {
	permit := -1
	if l.Permit != nil {
		permit = *l.Permit
	}
	return fmt.Sprintf("%s\x00%d\x00%s", l.Group, permit, l.Name)
}

// Members are readers, or those who wait.
type Members struct {
	Count int      `json:"count"`
	First []Member `json:"first"` // of them
}

// A Member is one of them.
type Member struct {
	ID     string `json:"id,omitempty"` // the beginning of its value or ticket; a client has none
	Owner  string `json:"owner,omitempty"`
	Votes  int    `json:"votes"`               // servers that know it
	Waited int64  `json:"waited_ms,omitempty"` // of one that waits
	Left   int64  `json:"left_ms"`             // how long it still counts if it does not ask again
}

// A HeldKey is what one server holds for a lock.
type HeldKey struct {
	Server string `json:"server"`
	State  string `json:"state"`
	Holder string `json:"holder,omitempty"`
	Left   *int64 `json:"left_ms,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A ServerState is how one server is. The findings are those of "redlock doctor", which are some
// seconds old.
type ServerState struct {
	Server   string           `json:"server"`
	Group    string           `json:"group,omitempty"`
	Error    string           `json:"error,omitempty"` // why it did not answer this time
	Health   string           `json:"health"`          // in a word, which the Server makes of the rest: see health
	Timing   *Timing          `json:"timing,omitempty"`
	Findings []doctor.Finding `json:"findings"`
}

// A Timing is what "redlock doctor" has measured, in microseconds.
type Timing struct {
	Trip    int64 `json:"trip_us"` // the median of some round trips,
	Longest int64 `json:"longest_us"`
	Ahead   int64 `json:"ahead_us"`  // of our clock; below zero: behind it,
	Within  int64 `json:"within_us"` // give or take this
}

// health says in a word or two how a server is, for people: its findings say more. It is empty where that
// is not known yet.
func (s *ServerState) health() string {
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
	case isThere("quarantine", doctor.Warning):
		return "in quarantine"
	case isThere("latency", doctor.Note, doctor.Warning), isThere("reachable", doctor.Warning): // it answers, and did not in time
		return "slow"
	case len(s.Findings) == 0:
		return ""
	}
	return "well"
}

// sort puts what needs a look before what is as it should be.
func (s *Survey) sort() {
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

// matches reports whether a text that people filter by is in what a lock shows.
func (l *LockState) matches(filter string) bool {
	for _, text := range []string{l.Name, l.Owner, l.Group, l.State, l.Kind, l.Holder} {
		if strings.Contains(strings.ToLower(text), filter) {
			return true
		}
	}
	return false
}

// changes returns what has become different since an earlier survey.
func (s *Survey) changes(before *Survey) (events []Event) {
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

// unsure reports whether so few servers answered that a lock which is not seen may be held.
func (s *Survey) unsure() bool {
	silent := 0
	for _, server := range s.Servers {
		if server.Error != "" {
			silent++
		}
	}
	return silent > 0 && 2*silent >= len(s.Servers)
}

// by says who holds a lock, for people.
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
	Time   string `json:"time"` // when it happened, or was seen
	Lock   string `json:"lock,omitempty"`
	What   string `json:"what"`
	Text   string `json:"text"`
	By     string `json:"by"` // "this process", or "servers" if a survey shows it
}
