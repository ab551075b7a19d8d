package record

import (
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key is the key of the record on a server, behind the prefix of the clients.
const Key = "redlock:epoch"

// PrimaryKey is where a server is confirmed as the primary of a node with standbys (package pool). It
// has no prefix, because all who lock by a server must find it.
const PrimaryKey = "redlock:primary"

// DrawLife draws the lifetime of a record: 139 years and up to 35 more, in whole
// milliseconds. Each change that other clients must notice draws a new one: they see it by
// the time that is left.
func DrawLife() time.Duration {
	return (1<<42 + rand.N[time.Duration](1<<40)) * time.Millisecond
}

// New returns the record of a new generation, for the server run and clients that make
// their quorum of so many nodes.
func New(run string, nodes int) Record {
	return Record{Run: run, Generation: cryptorand.Text()[:20], Nodes: nodes, Born: Now}
}

// Now stands in a Record for the moment at which the server writes it. In the text it is
// the sign that OpAdmit replaces by the server's clock.
const Now time.Duration = -1

const now = "@"

// version begins the text. A client refuses the text of another version, because it
// cannot know its meaning.
const version = "2"

// Apart is how far the clocks of servers may be from each other, less the Off of their records: a server whose clock is
// farther from those of a quorum has no vote.
const Apart = time.Second

// Off returns what a record says of a clock that is d ahead of the other servers' clocks. Clocks that agree leave no
// trace in the text.
func Off(d time.Duration) time.Duration {
	if d.Abs() < Apart/2 {
		return 0
	}
	return d.Round(time.Millisecond)
}

// Unknown is the Run of a server that does not tell who it is.
const Unknown = "-"

// OwnData is the data set of a process that has not taken over another's.
const OwnData = "own"

// MayVote reports whether a server of this role may vote. The role is that of ROLE or INFO replication,
// and empty for a server that does not tell it. Besides "slave" there are "replica" and KeyDB's
// "active-replica", which take what another server grants, and "sentinel".
func MayVote(role string) bool { return role == "" || role == "master" }

// DataSet names a server's data set by what the server tells of it: the fields master_replid,
// second_repl_offset and total_net_repl_input_bytes of INFO, and what stands under PrimaryKey.
//
// A server that was demoted has taken over another's data and has forgotten what that lacked; its
// master_replid changes when it is promoted again. But so it does for a first replica, also that of
// a backup (redis-cli --rdb), and when repl-backlog-ttl is over without one. A process that has
// read no byte from a primary since it began has its own data all the same. Servers before 7.0 do
// not tell, and CONFIG RESETSTAT sets the count back. So second_repl_offset, which is set by a
// promotion and cleared repl-backlog-ttl later, must be unset as well: by then the locks of the time
// before the promotion have expired, unless their TTL is longer than that.
//
// The servers of a node with standbys have a name for each promotion, with data or without, because
// one may be confirmed while another was the primary in between.
func DataSet(id, secondOffset, taken, primary string) string {
	if secondOffset == "-1" && taken == "0" && primary == "" {
		return OwnData
	}
	return id
}

// InCluster names the data set of a server in cluster mode, by its cluster_my_epoch; without one it returns data.
// The epoch rises when a slot comes to the server. A slot that has left and come back has none of its locks, and the
// record, which is in a slot of its own, would not tell.
func InCluster(data, epoch string) string {
	if epoch == "" {
		return data
	}
	return data + "#" + epoch
}

// Errors of Parse.
var (
	// ErrVersion: the text is that of another version of this library.
	ErrVersion = errors.New("was written by another version")
	// ErrText: the text is none of this library's.
	ErrText = errors.New("is invalid")
)

// A Basis says how well Forgot is known.
type Basis int

// The bases, each better than the one before.
const (
	Open  Basis = iota // other servers have yet to be asked
	Tried              // a client has tried in vain to reach those that were not asked, for its longest TTL
	Asked              // all others were asked after the birth, and too few of them remember
	Proof              // enough others remember to exclude any longer lock
)

// A Record is a server's note of its own memory.
type Record struct {
	Run        string        // the process and the data set that had the keys, or Unknown
	Generation string        // random: tells this record from those before
	Nodes      int           // of which the clients make their quorum
	Groups     string        // hash of the clients' groups of servers, see package groups; empty: they have none
	Born       time.Duration // when the generation began
	Off        time.Duration // how far the server's clock was ahead of the other servers' then; zero if less than Apart / 2
	Forgot     time.Duration // the longest TTL of a lock that may have been forgotten at the birth, by what others remember
	Alone      time.Duration // the same as one other tells alone; believed up to a limit
	Basis      Basis         // of both
	Failed     time.Duration // when a client first failed to ask the others, long after the birth; zero: none has
	Steps      []Step        // the TTLs of locks that the server has voted for since the birth
	More       []string      // fields that this version does not know, kept as they are
}

// A Step says that locks with a TTL up to this one were voted for.
type Step struct {
	TTL     time.Duration
	Entered time.Duration // before the first such vote counted
	Used    time.Duration // not longer than a Window before the last
}

// Window is for how long a use of a step covers later ones. A longer window makes the
// record be written less often; a shorter one makes a long TTL fade sooner.
func Window(ttl time.Duration) time.Duration { return max(ttl/4, 10*time.Minute) }

// Until is when no lock of the step can be alive any more.
func (s Step) Until() time.Duration { return s.Used + s.TTL + Window(s.TTL) }

// Covers reports whether the step stands for a vote at the time clock for a lock of ttl.
func (s Step) Covers(ttl, clock time.Duration) bool {
	return s.TTL >= ttl && clock <= s.Used+Window(s.TTL)
}

// Covers reports whether a vote at the time clock for a lock of ttl is on record, which
// it must be before it counts.
func (r *Record) Covers(ttl, clock time.Duration) bool {
	return slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Covers(ttl, clock) })
}

// few is how many steps are kept as they are asked for. Beyond that they are doubled, so
// that there is one for each power of two at most.
const few = 16

// Enter puts a lock of ttl on record at the time clock, and drops the steps that had
// faded by earliest: the same, but for a client that does not know the time well. A step
// that is at most a quarter longer is used for it, so that clients who draw their TTLs make
// no long lists; but not one that is about to fade, because others may take it for faded
// before the lock ends. It reports whether the step is new.
func (r *Record) Enter(ttl, earliest, clock time.Duration) bool {
	r.Steps = slices.DeleteFunc(slices.Clone(r.Steps), func(s Step) bool { return s.Until() < earliest })
	most := ttl + ttl/4
	if len(r.Steps) >= few {
		most = 2 * ttl
	}
	for i, s := range r.Steps {
		if s.TTL >= ttl && s.TTL <= most && s.Until() >= clock+ttl/2 {
			r.Steps[i].Used = Now
			return false
		}
	}
	if len(r.Steps) >= few {
		ttl = min(most, longest)
	}
	r.Steps = append(r.Steps, Step{TTL: ttl, Entered: Now, Used: Now})
	return true
}

// IsOf reports whether the record is of the memory of the server run. It is a record of a server with
// its own data, too, if it names the same process with another data set: the name has changed, and
// the data has not.
func (r *Record) IsOf(run string) bool {
	isRun, isEpoch, _ := strings.Cut(run, "#")
	ofRun, ofEpoch, _ := strings.Cut(r.Run, "#")
	process, isOwn := strings.CutSuffix(isRun, "/"+OwnData)
	return isEpoch == ofEpoch && (isRun == ofRun || isOwn && strings.HasPrefix(ofRun, process+"/"))
}

// Loss returns the record's part about forgotten locks.
func (r *Record) Loss() Loss { return Loss{r.Forgot, r.Alone, r.Basis} }

// Quarantine returns for how long a client that comes at the time clock gives the server no
// vote. assumed is the longest TTL that the client assumes of others. Where the basis is
// Open the client waits for assumed in any case, unless it can ask the other servers.
func (r *Record) Quarantine(clock, assumed time.Duration) time.Duration {
	return max(0, r.Loss().Wait(assumed)-max(0, clock-r.Born))
}

// String returns the text.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s run=%s gen=%s nodes=%d born=%s forgot=%s basis=%d steps=",
		version, r.Run, r.Generation, r.Nodes, text(r.Born), text(r.Forgot), r.Basis)
	for i, s := range r.Steps {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s:%s", text(s.TTL), text(s.Entered), text(s.Used))
	}
	if r.Off != 0 {
		fmt.Fprintf(&b, " off=%d", r.Off.Milliseconds())
	}
	if r.Alone > 0 {
		fmt.Fprintf(&b, " alone=%s", text(r.Alone))
	}
	if r.Failed != 0 {
		fmt.Fprintf(&b, " failed=%s", text(r.Failed))
	}
	if r.Groups != "" {
		fmt.Fprintf(&b, " groups=%s", r.Groups)
	}
	for _, field := range r.More {
		b.WriteByte(' ')
		b.WriteString(field)
	}
	return b.String()
}

func text(d time.Duration) string {
	if d == Now {
		return now
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// Parse reads the text of a record, in which the server has put its clock.
func Parse(s string) (*Record, error) {
	fields := strings.Fields(s)
	if len(fields) == 0 || strings.Contains(s, now) {
		return nil, ErrText
	}
	if fields[0] != version {
		if n, err := strconv.Atoi(fields[0]); err == nil && n > 0 {
			return nil, ErrVersion
		}
		return nil, ErrText
	}
	r := &Record{}
	missing := map[string]bool{"run": true, "gen": true, "nodes": true, "born": true, "forgot": true, "basis": true, "steps": true}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "run":
			r.Run = value
		case "gen":
			r.Generation = value
		case "nodes":
			r.Nodes, err = strconv.Atoi(value)
		case "born":
			r.Born, err = duration(value)
		case "forgot":
			r.Forgot, err = duration(value)
		case "off":
			r.Off, err = signed(value)
			missing[key] = true // it may be
		case "alone":
			r.Alone, err = duration(value)
			missing[key] = true
		case "failed":
			r.Failed, err = duration(value)
			missing[key] = true
		case "groups":
			r.Groups = value
			missing[key] = true
		case "basis":
			var n int
			n, err = strconv.Atoi(value)
			r.Basis = Basis(n)
		case "steps":
			r.Steps, err = steps(value)
		default:
			r.More = append(r.More, field)
			continue
		}
		if err != nil || value == "" && key != "steps" || !missing[key] {
			return nil, fmt.Errorf("%w: its field %s", ErrText, key)
		}
		delete(missing, key)
	}
	if len(missing) > 0 || r.Nodes < 1 || r.Basis < Open || r.Basis > Proof {
		return nil, ErrText
	}
	return r, nil
}

func steps(s string) (list []Step, err error) {
	if s == "" {
		return nil, nil
	}
	for _, item := range strings.Split(s, ",") {
		parts := strings.Split(item, ":")
		if len(parts) != 3 {
			return nil, ErrText
		}
		var ms [3]time.Duration
		for i, part := range parts {
			if ms[i], err = duration(part); err != nil {
				return nil, err
			}
		}
		list = append(list, Step{TTL: ms[0], Entered: ms[1], Used: ms[2]})
	}
	return list, nil
}

// longest is above any time or TTL that is meant: 120 years, times are since 1970. The
// moment when a step fades is at most 2.25 times that, and a time.Duration has 292 years.
const longest = 120 * 365 * 24 * time.Hour

func duration(s string) (time.Duration, error) {
	d, err := signed(s)
	if d < 0 {
		return 0, ErrText
	}
	return d, err
}

func signed(s string) (time.Duration, error) {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || max(ms, -ms) > longest.Milliseconds() {
		return 0, ErrText
	}
	return time.Duration(ms) * time.Millisecond, nil
}
