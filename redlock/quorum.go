package redlock

// A tally counts the outcomes of one request to n nodes. It is pure: no I/O,
// no time, no locking.
//
// Both thresholds follow from q = n/2+1. Any two sets of q nodes share one, so
// two holders cannot both have q grants; and once n-q+1 nodes did not grant,
// the rest are fewer than q. For odd n the two numbers are equal, for even n
// they are not: with four nodes, three grants win but two refusals lose.
type tally struct {
	n       int
	granted int
	refused int
	faults  int // failed and unknown: neither can be counted on
}

func (t *tally) add(o Outcome) {
	switch o {
	case Granted:
		t.granted++
	case Refused:
		t.refused++
	default:
		t.faults++
	}
}

func (t tally) quorum() int { return t.n/2 + 1 }

// blocking is how many nodes are enough to keep a quorum out of reach.
func (t tally) blocking() int { return t.n - t.quorum() + 1 }

func (t tally) pending() int { return t.n - t.granted - t.refused - t.faults }

// verdict is what the replies so far decide.
type verdict uint8

const (
	votePending verdict = iota // more replies can still decide either way
	voteWon                    // a quorum granted
	voteLost                   // no quorum can grant any more
)

func (t tally) verdict() verdict {
	switch {
	case t.granted >= t.quorum():
		return voteWon
	case t.refused+t.faults >= t.blocking():
		return voteLost
	default:
		return votePending
	}
}

// outage reports whether faults alone keep a quorum out of reach. Where it is
// false and the verdict is lost, somebody else holds the key on some node.
func (t tally) outage() bool { return t.faults >= t.blocking() }

// gone reports whether refusals alone keep a quorum out of reach: for an
// extension or a release, a majority no longer has our value.
func (t tally) gone() bool { return t.refused >= t.blocking() }
