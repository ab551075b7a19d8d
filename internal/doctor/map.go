package doctor

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/redlock"
)

// A MapReport says where a change of the map of the groups stands.
type MapReport struct {
	Version  int        `json:"version"`  // that was given
	Changing bool       `json:"changing"` // the version before was given, too
	Complete bool       `json:"complete"` // clients may have Version alone
	Groups   []MapGroup `json:"groups"`
	Findings []Finding  `json:"findings"`
}

// A MapGroup is what the servers of one group tell of the map.
type MapGroup struct {
	Group   string `json:"group"`
	Joining bool   `json:"joining,omitempty"`
	Leaving bool   `json:"leaving,omitempty"`
	Version int    `json:"version"`           // that clients have; 0: none has been here
	Retired bool   `json:"retired,omitempty"` // no client can come that has Version as its newest
	Error   string `json:"error,omitempty"`   // why too few servers told
}

// Worst returns the severity of the worst finding.
func (r *MapReport) Worst() Severity { return worst(r.Findings) }

func (r *MapReport) add(f Finding) { r.Findings = append(r.Findings, f) }

// ExamineMap judges what the servers of the groups of a map tell of it.
func ExamineMap(state *redlock.MapState, m redlock.Map) *MapReport {
	r := &MapReport{Version: state.Version, Changing: state.Changing, Complete: state.Complete}
	given := map[string]redlock.Group{}
	for _, g := range m.Groups {
		given[g.Name] = g
	}
	for _, g := range state.Groups {
		at := MapGroup{Group: g.Name, Joining: given[g.Name].Joining, Leaving: given[g.Name].Leaving, Version: g.Version, Retired: g.Retired}
		if g.Err != nil {
			at.Error = g.Err.Error()
			r.add(Finding{Warning, checkMap, fmt.Sprintf("the servers of group %s do not tell the version of the map: %v", g.Name, g.Err),
				"names of the group cannot be locked by clients that are not at work yet, nor can a change of the map be completed if the group was there before it", "see above what ails its servers"})
		}
		r.Groups = append(r.Groups, at)
	}
	r.judge()
	return r
}

// judge adds what is known of the version that was given. newest is the version of the clients that
// have come furthest.
func (r *MapReport) judge() {
	newest, retired := 0, false
	for _, g := range r.Groups {
		if g.Version > newest {
			newest, retired = g.Version, false
		}
		retired = retired || g.Version == newest && g.Retired
	}
	base := r.Version
	if r.Changing {
		base--
	}
	const anotherMap = "clients with the map that is given here get no lock"
	switch {
	case newest > r.Version || newest == r.Version && retired:
		r.add(Finding{Fatal, checkMap, fmt.Sprintf("version %d of the map is over", r.Version), anotherMap, "give the map that the other clients have, which is a later one"})
	case r.Complete && r.Changing:
		r.add(Finding{Note, checkMap, fmt.Sprintf("the change to version %d of the map is complete", r.Version), "it is safe now for clients to have that version alone",
			r.lastStep()})
	case r.Complete:
		r.add(Finding{OK, checkMap, fmt.Sprintf("version %d of the map is in use, and complete", r.Version), "", ""})
	case newest == 0 && r.silent() == "":
		r.add(Finding{Note, checkMap, "no client has used the map yet", fmt.Sprintf("the first one begins with version %d", base), ""})
	case newest > 0 && newest < base:
		r.add(Finding{Fatal, checkMap, fmt.Sprintf("version %d of the map is in use, and not version %d", newest, base), anotherMap,
			fmt.Sprintf("first give all clients versions %d and %d: all groups of both, those that are new as joining, and those that are not to stay as leaving", newest, newest+1)})
	case r.Changing:
		r.changing(base)
	case r.silent() != "":
		r.add(Finding{Warning, checkMap, fmt.Sprintf("whether version %d of the map is complete cannot be told without group %s", r.Version, r.silent()),
			"new clients get no lock until it can", "bring the servers of the group back"})
	default:
		r.add(Finding{Note, checkMap, fmt.Sprintf("the first client begins with version %d of the map at the moment", r.Version), "", ""})
	}
}

// lastStep says what to do when the change is complete.
func (r *MapReport) lastStep() string {
	do := fmt.Sprintf("give clients version %d without --joining", r.Version)
	if leaving := r.names(func(g MapGroup) bool { return g.Leaving }); leaving != "" {
		do += " and --leaving, and without group " + leaving + "; when all have it, end the servers of the group that no other group has"
	}
	return do
}

// changing says what a change waits for that is under way.
func (r *MapReport) changing(base int) {
	waits := r.names(func(g MapGroup) bool { return !g.Joining && !(g.Version == base && g.Retired) && g.Error == "" })
	means := fmt.Sprintf("it is not safe yet for clients to have version %d alone; names that move are locked in both of their groups, so an outage of either is one for them", r.Version)
	const do = "go on giving all clients the map with the groups of both versions; when all have it, and one of them has locked and stays for a minute, the change completes by itself"
	if waits != "" {
		r.add(Finding{Warning, checkMap, fmt.Sprintf("the change to version %d of the map is not complete: clients may be left that have version %d alone, in group %s", r.Version, base, waits), means, do})
		return
	}
	if silent := r.silent(); silent != "" {
		r.add(Finding{Warning, checkMap, fmt.Sprintf("the change to version %d of the map is not complete, as far as is known without group %s", r.Version, silent), means, "bring the servers of the group back; then go on"})
		return
	}
	r.add(Finding{Warning, checkMap, fmt.Sprintf("the change to version %d of the map is about to be complete: no client has version %d alone", r.Version, base), means, "wait; a client that has both versions completes it within a minute"})
}

// silent returns the groups whose servers did not tell.
func (r *MapReport) silent() string { return r.names(func(g MapGroup) bool { return g.Error != "" }) }

// names returns the names of the groups that are meant.
func (r *MapReport) names(meant func(MapGroup) bool) string {
	var names []string
	for _, g := range r.Groups {
		if meant(g) {
			names = append(names, g.Group)
		}
	}
	return strings.Join(names, ", ")
}
