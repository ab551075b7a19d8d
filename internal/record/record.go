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

// Key is the key of the record on a server, after the prefix of the clients.
const Key = "redlock:epoch"

// PrimaryKey is the key that confirms a server as the primary of a node with standbys (package
// pool). It has no prefix, because all clients that lock on a server must find it.
const PrimaryKey = "redlock:primary"

// DrawLife returns a random lifetime of a record: 139 to 174 years, in whole milliseconds. Each
// change that other clients must notice gets a new lifetime, so they notice it by the remaining
// time.
func DrawLife() time.Duration {
	return (1<<42 + rand.N[time.Duration](1<<40)) * time.Millisecond
}

// New returns the record of a new generation, for the server run and clients with this number of
// nodes.
func New(run string, nodes int) Record {
	return Record{Run: run, Generation: cryptorand.Text()[:20], Nodes: nodes, Born: Now}
}

// Now stands for the time at which the server writes the record. In the text it is the character
// that OpAdmit replaces by the server's clock.
const Now time.Duration = -1

const now = "@"

// version is the start of the text. A client refuses the text of another version, because it cannot
// know its meaning.
const version = "2"

// Apart is the greatest difference between the clocks of servers, minus the Off of their records. A
// server whose clock differs more from the clocks of a quorum has no vote.
const Apart = time.Second

// Off returns the value of Record.Off for a clock that is d ahead of the other servers' clocks.
// Clocks that agree leave no trace in the text.
func Off(d time.Duration) time.Duration {
	if d.Abs() < Apart/2 {
		return 0
	}
	return d.Round(time.Millisecond)
}

// Unknown is the Run of a server that hides its identity.
const Unknown = "-"

// OwnData is the data set of a process that has not taken over the data of another.
const OwnData = "own"

// MayVote reports whether a server with this role may vote. The role comes from ROLE or INFO
// replication, and is empty if the server hides it. Other roles are "slave", "replica" and KeyDB's
// "active-replica", which accept the grants of another server, and "sentinel".
func MayVote(role string) bool { return role == "" || role == "master" }

// DataSet names a server's data set. Its parameters are the fields master_replid,
// second_repl_offset and total_net_repl_input_bytes of INFO, and the value of PrimaryKey.
//
// A demoted server has taken over the data of another and has forgotten all data that was not in
// it. Its master_replid changes when it is promoted again. But the master_replid also changes when
// a server gets its first replica, even if that is only a backup (redis-cli --rdb), and when
// repl-backlog-ttl has expired without a replica. In these cases, a process that has read no byte
// from a primary since its start still has its own data. Servers before 7.0 do not report that
// number, and CONFIG RESETSTAT resets it. Therefore second_repl_offset must be unset as well. A
// promotion sets it, and it is cleared after repl-backlog-ttl. By that time the locks from before
// the promotion have expired, unless their TTL is longer than that.
//
// The servers of a node with standbys have a new name for each promotion, with or without new data,
// because one server may be confirmed although another was the primary in between.
func DataSet(id, secondOffset, taken, primary string) string {
	if secondOffset == "-1" && taken == "0" && primary == "" {
		return OwnData
	}
	return id
}

// InCluster names the data set of a server in cluster mode, by its cluster_my_epoch. Without an
// epoch it returns data. The epoch rises when the server receives a slot. A slot that has left and
// returned has lost its locks, and the record, which may be in another slot, would not show it.
func InCluster(data, epoch string) string {
	if epoch == "" {
		return data
	}
	return data + "#" + epoch
}

// Errors of Parse.
var (
	// ErrVersion means that another version of this library wrote the text.
	ErrVersion = errors.New("was written by another version")
	// ErrText means that this library did not write the text.
	ErrText = errors.New("is invalid")
)

// A Basis is the quality of the knowledge of Forgot.
type Basis int

// The bases, in order of quality.
const (
	Open  Basis = iota // other servers have not been asked yet
	Tried              // a client could not reach the servers that were not asked, for its longest TTL
	Asked              // all others were asked after the birth, and too few of them remember
	Proof              // enough others remember to exclude any longer lock
)

// A Record describes a server's memory.
type Record struct {
	Run        string        // process and data set that had the keys, or Unknown
	Generation string        // random: distinguishes this record from earlier ones
	Nodes      int           // nodes of the clients, which determine their quorum
	Groups     string        // hash of the clients' groups of servers, see keys.Groups; empty without groups
	Born       time.Duration // start of the generation
	Off        time.Duration // lead of the server's clock over the other servers' clocks at the birth; zero if less than Apart / 2
	Forgot     time.Duration // longest TTL of a lock that may have been forgotten at the birth, according to the other servers
	Alone      time.Duration // longest TTL according to a single other server; trusted up to a limit
	Basis      Basis         // of both
	Failed     time.Duration // first time a client failed to ask the others, long after the birth; zero if none has
	Steps      []Step        // TTLs of locks for which the server has voted since the birth
	More       []string      // unknown fields, kept unchanged
}

// A Step means that the server voted for locks with a TTL up to this one.
type Step struct {
	TTL     time.Duration
	Entered time.Duration // before the first such vote counted
	Used    time.Duration // at most a Window before the last such vote
}

// Window returns the time for which a use of a step covers later uses. With a longer window the
// record is written less often; with a shorter one a long TTL fades sooner.
func Window(ttl time.Duration) time.Duration { return max(ttl/4, 10*time.Minute) }

// Until returns the time after which no lock of the step can be alive.
func (s Step) Until() time.Duration { return s.Used + s.TTL + Window(s.TTL) }

// Covers reports whether the step covers a vote at the time clock for a lock of ttl.
func (s Step) Covers(ttl, clock time.Duration) bool {
	return s.TTL >= ttl && clock <= s.Used+Window(s.TTL)
}

// Covers reports whether a step of the record covers a vote at the time clock for a lock of ttl.
// Otherwise the vote must not count.
func (r *Record) Covers(ttl, clock time.Duration) bool {
	return slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Covers(ttl, clock) })
}

// few is the number of steps that are kept with their exact TTLs. Above it TTLs are rounded up to
// powers of two, so that there is at most one step for each.
const few = 16

// Enter puts a lock of ttl on record at the time clock, and drops the steps that had faded at
// earliest. The two times differ if the client does not know the time exactly. A step that is at
// most a quarter longer is reused, so that random TTLs do not make long lists. A step that is about
// to fade is not reused, because other clients may treat it as faded before the lock ends. Enter
// reports whether the step is new.
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

// IsOf reports whether the record describes the memory of the server run. It also does if the
// server has its own data and the record names the same process with another data set: then the
// name has changed, but not the data.
func (r *Record) IsOf(run string) bool {
	isRun, isEpoch, _ := strings.Cut(run, "#")
	ofRun, ofEpoch, _ := strings.Cut(r.Run, "#")
	process, isOwn := strings.CutSuffix(isRun, "/"+OwnData)
	return isEpoch == ofEpoch && (isRun == ofRun || isOwn && strings.HasPrefix(ofRun, process+"/"))
}

// Loss returns the fields of the record about forgotten locks.
func (r *Record) Loss() Loss { return Loss{r.Forgot, r.Alone, r.Basis} }

// Quarantine returns the time for which the server's votes do not count for a client at the time
// clock. assumed is the longest TTL that the client assumes of others. With the basis Open the
// client waits for assumed in any case, unless it can ask the other servers.
func (r *Record) Quarantine(clock, assumed time.Duration) time.Duration {
	return max(0, r.Loss().Wait(assumed)-max(0, clock-r.Born))
}

// String returns the text of the record.
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

// Parse parses the text of a record, in which the server has replaced Now by its clock.
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
			missing[key] = true // optional
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

// longest is above all valid times and TTLs: 120 years, with times since 1970. A step fades after
// at most 2.25 times that length, and a time.Duration can hold 292 years.
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
