package main

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/redlock"
)

// A status is what is known of the locks at one moment. With --json it is printed
// as it stands here.
type status struct {
	Time     time.Time    `json:"time"`
	Quorum   int          `json:"quorum"`
	Answered int          `json:"answered"` // nodes
	Nodes    []nodeStatus `json:"nodes"`
	Locks    []lockStatus `json:"locks"`
	CutOff   bool         `json:"cut_off,omitempty"` // there may be more locks
}

type nodeStatus struct {
	Node  string `json:"node"`
	Error string `json:"error,omitempty"` // why it did not answer
}

// A lockStatus is one name. Bytes that are no text are also there as they are, in
// base64.
type lockStatus struct {
	Name      string    `json:"name"`
	NameBytes []byte    `json:"name_base64,omitempty"`
	State     string    `json:"state"`
	Votes     int       `json:"votes"`           // nodes that hold the value
	Value     string    `json:"value,omitempty"` // the one that most nodes hold
	Bytes     []byte    `json:"value_base64,omitempty"`
	TTL       *int64    `json:"ttl_ms,omitempty"` // -1: for ever
	Nodes     []keyTold `json:"nodes"`
}

// A keyTold is what one node holds for a name.
type keyTold struct {
	Node  string `json:"node"`
	Held  bool   `json:"held"` // there is a key
	Value string `json:"value,omitempty"`
	Bytes []byte `json:"value_base64,omitempty"`
	TTL   *int64 `json:"ttl_ms,omitempty"`
	Error string `json:"error,omitempty"`
}

// The states of a lock.
const (
	stateHeld    = "held"
	stateFree    = "free"
	statePartial = "partial"
	stateSplit   = "split"
	stateStuck   = "stuck"
	stateUnknown = "unknown"
)

// at a time: so many names are asked for.
const atATime = 64

// look asks for all names. Its error is no server's.
func (w *watcher) look(ctx context.Context) (*status, error) {
	st := &status{Time: time.Now(), Locks: []lockStatus{}}
	names := w.names
	if w.finder != nil {
		names, st.Nodes, st.CutOff = w.finder.find(ctx)
	}
	found := make([]*redlock.Inspection, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atATime)
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = w.locker.Inspect(ctx, name)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, in := range found {
		switch {
		case in == nil && w.finder != nil: // too long for a lock's name
			continue
		case in == nil:
			return nil, &exitError{code: exitUsage, err: errs[i]}
		}
		st.Locks = append(st.Locks, judge(in))
		if st.Nodes == nil {
			st.Nodes = make([]nodeStatus, len(in.Nodes))
		}
		for j, n := range in.Nodes {
			st.Nodes[j].Node = n.Node
			if n.Err != nil && !errors.Is(n.Err, redlock.ErrWrongType) {
				st.Nodes[j].Error = nodeError(n.Err)
			}
		}
	}
	st.Quorum = len(st.Nodes)/2 + 1
	for _, n := range st.Nodes {
		if n.Error == "" {
			st.Answered++
		}
	}
	return st, nil
}

// nodeError is what a node has against us, without its name.
func nodeError(err error) string {
	var e *redlock.NodeError
	if errors.As(err, &e) {
		return harmless(e.Err.Error())
	}
	return harmless(err.Error())
}

// judge says what the nodes' answers come to.
func judge(in *redlock.Inspection) lockStatus {
	l := lockStatus{Name: in.Name, NameBytes: bytesOf(in.Name)}
	holders, silent, stuck := map[string]int{}, 0, false
	most := "" // the value that most nodes hold
	for _, n := range in.Nodes {
		k := keyTold{Node: n.Node}
		switch {
		case n.Err != nil:
			k.Error = nodeError(n.Err)
			silent++
		case n.TTL != 0:
			k.Held, k.Value, k.Bytes, k.TTL = true, n.Value, bytesOf(n.Value), millis(n.TTL)
			holders[n.Value]++
			if c := holders[n.Value]; c > holders[most] || len(holders) == 1 {
				most = n.Value
			}
			stuck = stuck || n.Stuck
		}
		l.Nodes = append(l.Nodes, k)
	}
	q := len(in.Nodes)/2 + 1
	_, left, held := in.Holder()
	if len(holders) > 0 {
		l.Value, l.Bytes, l.Votes = most, bytesOf(most), holders[most]
	}
	switch {
	case held && left != redlock.NoTTL:
		l.State, l.TTL = stateHeld, millis(left)
	case stuck:
		l.State, l.TTL = stateStuck, millis(redlock.NoTTL)
	case l.Votes+silent >= q:
		l.State = stateUnknown
	case len(holders) == 0:
		l.State = stateFree
	case len(holders) == 1:
		l.State = statePartial
	default:
		l.State = stateSplit
	}
	return l
}

// millis rounds up: a key with less than a millisecond is still there.
func millis(ttl time.Duration) *int64 {
	ms := int64(-1)
	if ttl != redlock.NoTTL {
		ms = int64((ttl + time.Millisecond - 1) / time.Millisecond)
	}
	return &ms
}

// bytesOf is s where JSON cannot hold it.
func bytesOf(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// allHeld is the answer to -q. That one is not held is certain even if another's
// state is not known.
func (st *status) allHeld() error {
	unknown := false
	for _, l := range st.Locks {
		switch {
		case l.Votes >= st.Quorum:
		case l.State == stateUnknown:
			unknown = true
		default:
			return &exitError{code: exitFailed}
		}
	}
	if unknown {
		return &exitError{code: exitNoQuorum}
	}
	return nil
}
