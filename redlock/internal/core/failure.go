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

// A Kind is the reason a caller did not get the lock.
type Kind uint8

// The kinds of Failures.
const (
	ByOther      Kind = iota + 1 // another client holds the lock
	ByUs                         // another caller of this process holds the lock
	NoQuorum                     // too many nodes failed or did not answer
	InQuarantine                 // too many nodes may have forgotten locks, or need another attempt
	ClockBehind                  // like InQuarantine, because this machine's clock is wrong
	Stale                        // a quorum granted the lock too late
	AfterClose                   // the Locker was closed
	Unknown                      // no attempt was made yet
	NotHeld                      // the lock had ended, or a majority does not hold it
	NoToken                      // a quorum granted the lock without a common fencing token
)

// A Failure is the reason a caller did not get the lock, by the answers of nodes. It never changes.
type Failure struct {
	Kind      Kind
	At        clock.Instant
	Nodes     int           // nodes asked; zero for none
	Votes     int           // nodes that granted
	Answers   []Answer      // answers of nodes that did not grant, or granted without the token
	Silent    quorum.Set    // nodes that did not answer in time
	Remaining time.Duration // time until a quorum is free and can vote; protocol.NoTTL for never; zero if unknown
	Outage    time.Duration // time without an answer from a quorum
	Took      time.Duration // time since the request
	Owner     string        // label of the holder, if any
	IsEarly   bool          // nodes had to record the TTL first, and grant the next ballot

	// Beside is set if a caller got no permits although some are free: another caller holds permits
	// with this count, or, if Beside is 1, a lock without permits.
	Beside int
	// Full means that a quorum called none of the permits free.
	Full bool

	// For a failure of several keys: the index of the failed key, and of all keys that others hold.
	Key  int
	Held []int
}

// Worst combines the failures of keys with the indexes from on; nil without a failure. The most severe failure counts, with the fewest votes and the longest Remaining of all.
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

// severity ranks the kinds for Worst: an outage of one key is more severe than a holder of another.
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

// During returns the failure with the duration of the outage.
func (f *Failure) During(since, now clock.Instant) *Failure {
	if f.Kind != NoQuorum || since == 0 {
		return f
	}
	told := *f
	told.Outage = now.Sub(since)
	return &told
}

// IsSplit reports whether the attempt won some nodes, and other clients the rest.
func (f *Failure) IsSplit() bool { return f.Kind == ByOther && f.Votes > 0 }

// IsPermanent reports whether waiting is useless, because too many nodes reject for good.
func (f *Failure) IsPermanent() bool {
	n := 0
	for _, a := range f.Answers {
		if permanent := protocol.PermanentError(""); errors.As(a.Err, &permanent) {
			n++
		}
	}
	return n > 0 && n >= quorum.Tally{Nodes: f.Nodes}.Blocking()
}

// failure creates the failure of a ballot.
func (b *Ballot) failure(kind Kind, now clock.Instant) *Failure {
	f := &Failure{Kind: kind, At: now, Nodes: b.tally.Nodes, Votes: b.tally.Granted, Answers: slices.Clone(b.answers), Took: now.Sub(b.Start)}
	if now >= b.timeout() {
		f.Silent = b.open()
	}
	early := b.early()
	f.IsEarly = early > 0 && f.Votes+early+b.parked.Size() >= b.tally.Quorum()
	return f
}

// explain creates the failure of a lost attempt.
func (b *Ballot) explain(now clock.Instant) *Failure {
	f, t := b.failure(ByOther, now), b.tally
	forgetful, behind := 0, false
	if t.Verdict() == quorum.Pending {
		t.Faults += t.Pending() // the other nodes did not answer in time
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

// quarantine returns the reason a node has no vote, or nil.
func (a *Answer) quarantine() *protocol.QuarantineError {
	var q *protocol.QuarantineError
	errors.As(a.Err, &q)
	return q
}

// learn adds the refusing nodes' answers to the release: the TTL and the owner of the key that
// blocks the lock. Only the release shows that a key has another type.
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

// Weigh derives the kind, the owner and Remaining from the answers.
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

// ownerIn returns the label of all refusing nodes, or of enough of them to prevent a quorum. Other labels may belong to contenders.
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

// freeIn returns the time until a quorum is free and can vote, if no holder renews. Nodes that
// granted count as free, because the attempt is rolled back there, and so do silent nodes.
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

// After returns the failure with Remaining counted from now.
func (f *Failure) After(now clock.Instant) *Failure {
	if f.Remaining <= 0 {
		return f
	}
	later := *f
	later.Remaining = max(f.Remaining-now.Sub(f.At), time.Millisecond)
	return &later
}
