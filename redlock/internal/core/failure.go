package core

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Kind is why a caller has not got the lock.
type Kind uint8

// The kinds of Failures.
const (
	ByOther      Kind = iota + 1 // another client holds it
	ByUs                         // another caller of this process holds it
	NoQuorum                     // too many nodes failed or did not answer
	InQuarantine                 // too many nodes may have forgotten locks, or have to be asked again
	ClockBehind                  // the same, because this machine's clock is wrong
	Stale                        // a quorum granted, but too late to be of use
	AfterClose                   // the Locker was closed
	Unknown                      // no vote has been taken yet
	NotHeld                      // it had ended, or a majority does not have it
	NoToken                      // a quorum granted it, but not one fencing token
)

// A Failure is why a caller has not got the lock, as far as the nodes have told. It does not change.
type Failure struct {
	Kind      Kind
	At        clock.Instant
	Nodes     int           // that were asked; zero: none was
	Votes     int           // nodes that granted
	Answers   []Answer      // of nodes that did not, or have granted without the token
	Silent    quorum.Set    // nodes that have not answered in time
	Remaining time.Duration // until a quorum of nodes is free and has a vote; protocol.NoTTL: never; zero: not known
	Outage    time.Duration // how long no quorum has answered
	Took      time.Duration // since the nodes were asked
	Owner     string        // the label of the holder, if it has one
	IsEarly   bool          // nodes had to record the TTL first; they grant the next ballot

	// Beside is what has kept a caller from permits of which some are free: permits of that number, or
	// with 1 a lock without permits. Zero: neither.
	Beside int

	// Of a failure of several keys together: whose failure this is, and which others hold, by their places.
	Key  int
	Held []int
}

// Worst makes one failure of those of several keys, the first of which has the place from; nil: there is none. It is
// that of the key that says most of the whole, with the fewest votes and the longest time Remaining.
func Worst(from int, each []*Failure) *Failure {
	worst, votes, left, held := -1, math.MaxInt, time.Duration(0), []int(nil)
	for i, f := range each {
		if f == nil {
			continue
		}
		if worst < 0 || f.Kind.severity() > each[worst].Kind.severity() {
			worst = i
		}
		if f.isHeld() {
			held = append(held, from+i)
		}
		if left != protocol.NoTTL && (f.Remaining == protocol.NoTTL || f.Remaining > left) {
			left = f.Remaining
		}
		votes = min(votes, f.Votes)
	}
	if worst < 0 {
		return nil
	}
	all := *each[worst]
	all.Key, all.Held, all.Votes, all.Remaining = from+worst, held, votes, left
	return &all
}

// severity is how much a failure says of the whole: an outage of one key is more than that another is held.
func (k Kind) severity() int {
	switch k {
	case ByOther, ByUs:
		return 1
	case NoQuorum:
		return 2
	case AfterClose:
		return 3
	}
	return 0
}

// isHeld reports whether another caller holds the key.
func (f *Failure) isHeld() bool {
	return f.Kind == ByOther || f.Kind == ByUs || count(f.Answers, func(a Answer) bool { return a.Outcome == protocol.Refused }) > 0
}

// During returns the failure with how long the outage has lasted.
func (f *Failure) During(since, now clock.Instant) *Failure {
	if f.Kind != NoQuorum || since == 0 {
		return f
	}
	told := *f
	told.Outage = now.Sub(since)
	return &told
}

// IsSplit reports whether the vote had won some nodes, and others had won the rest.
func (f *Failure) IsSplit() bool { return f.Kind == ByOther && f.Votes > 0 }

// ownerOf returns what stands behind the random part of a value: the owner's label, if there is one.
func ownerOf(value string) string {
	if len(value) > randomLength && value[randomLength] == ' ' {
		return value[randomLength+1:]
	}
	return ""
}

// randomLength is that of the random part of a value, in bytes.
const randomLength = 40

// IsPermanent reports whether waiting is useless: too many nodes reject the request for good.
func (f *Failure) IsPermanent() bool {
	n := 0
	for _, a := range f.Answers {
		if permanent := protocol.PermanentError(""); errors.As(a.Err, &permanent) {
			n++
		}
	}
	return n > 0 && n >= quorum.Tally{Nodes: f.Nodes}.Blocking()
}

// failure makes that of a ballot.
func (b *Ballot) failure(kind Kind, now clock.Instant) *Failure {
	f := &Failure{Kind: kind, At: now, Nodes: b.tally.Nodes, Votes: b.tally.Granted, Answers: slices.Clone(b.answers), Took: now.Sub(b.Start)}
	if now >= b.timeout() {
		f.Silent = b.open()
	}
	early := b.early()
	f.IsEarly = early > 0 && f.Votes+early+b.parked.Size() >= b.tally.Quorum()
	return f
}

// explain makes the failure of a vote that was lost.
func (b *Ballot) explain(now clock.Instant) *Failure {
	f, t := b.failure(ByOther, now), b.tally
	forgetful, behind := 0, false
	if t.Verdict() == quorum.Pending {
		t.Faults += t.Pending() // the others did not answer in time
		forgetful = b.parked.Size()
	}
	for _, a := range b.answers {
		if q := a.quarantine(); q != nil {
			forgetful++
			behind = behind || q.Behind
		}
	}
	switch {
	case !t.Outage():
	case t.Faults-forgetful >= t.Blocking():
		f.Kind = NoQuorum
	case behind:
		f.Kind = ClockBehind
	default:
		f.Kind = InQuarantine
	}
	f.Remaining = f.freeIn(b.tally)
	return f
}

// quarantine is why a node has no vote; nil: it has one.
func (a *Answer) quarantine() *protocol.QuarantineError {
	var q *protocol.QuarantineError
	errors.As(a.Err, &q)
	return q
}

// learn adds what the refusers answered to the release: how long the key in the way still lives, and who
// owns it. A key of another type refuses a vote as well, and only the release shows that it is no lock.
func (f *Failure) learn(undo *Ballot) {
	for _, told := range undo.answers {
		i := slices.IndexFunc(f.Answers, func(a Answer) bool { return a.Node == told.Node })
		if i < 0 || f.Answers[i].Outcome != protocol.Refused {
			continue
		}
		switch {
		case told.Outcome == protocol.Refused:
			f.Answers[i].TTL, f.Answers[i].Owner = told.TTL, told.Owner
		case errors.Is(told.Err, protocol.ErrWrongType):
			f.Answers[i].Outcome, f.Answers[i].Err = told.Outcome, told.Err
		}
	}
	f.Weigh()
}

// Weigh sets what the answers tell: that it is an outage, and when the key is free.
func (f *Failure) Weigh() {
	t := quorum.Tally{Nodes: f.Nodes, Granted: f.Votes}
	for _, a := range f.Answers {
		t.Add(a.Outcome)
	}
	switch {
	case f.Kind != ByOther:
	case t.Outage():
		f.Kind = NoQuorum
	default:
		f.Owner = ownerIn(f.Answers, t)
	}
	f.Remaining = f.freeIn(t)
}

// ownerIn returns the label that the refusers tell: one that all of them tell, or so many that no quorum can be
// had without them. Others may be of callers that compete.
func ownerIn(answers []Answer, t quorum.Tally) string {
	isKey := func(a Answer) bool { return a.Outcome == protocol.Refused && a.TTL != 0 }
	keys := count(answers, isKey)
	for _, a := range answers {
		same := count(answers, func(o Answer) bool { return isKey(o) && o.Owner == a.Owner })
		if isKey(a) && (same == keys || same >= t.Blocking()) {
			return a.Owner
		}
	}
	return ""
}

func count(answers []Answer, what func(Answer) bool) (n int) {
	for _, a := range answers {
		if what(a) {
			n++
		}
	}
	return n
}

// freeIn returns how long it takes until a quorum of nodes is free and has a vote, if no holder renews.
// Nodes that granted count as free, since the lock is being given back there, and so do those that were not heard.
func (f *Failure) freeIn(t quorum.Tally) time.Duration {
	left := make([]time.Duration, f.Votes+t.Pending(), t.Nodes)
	for _, a := range f.Answers {
		switch q := a.quarantine(); {
		case q != nil:
			left = append(left, q.Left)
		case a.Outcome == protocol.Refused && a.TTL == protocol.NoTTL:
			left = append(left, math.MaxInt64)
		case a.Outcome == protocol.Refused && a.TTL > 0:
			left = append(left, a.TTL)
		}
	}
	slices.Sort(left)
	switch q := t.Quorum(); {
	case len(left) < q:
		return 0
	case left[q-1] == math.MaxInt64:
		return protocol.NoTTL
	default:
		return left[q-1]
	}
}

// After returns the failure with its Remaining as of now.
func (f *Failure) After(now clock.Instant) *Failure {
	if f.Remaining <= 0 {
		return f
	}
	later := *f
	later.Remaining = max(f.Remaining-now.Sub(f.At), time.Millisecond)
	return &later
}
