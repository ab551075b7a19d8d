package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

const operatingPage = "../docs/OPERATING.md"

// operatedTTL is the only TTL in these tests, so it is also the length of a quarantine.
const operatedTTL = time.Second

// procedures are the procedures of the page, by heading. Each begins with three new servers that
// have been reset.
var procedures = map[string]func(*testing.T, *operator){
	"A new set of servers": func(t *testing.T, o *operator) {
		for i := range 3 {
			o.r.must(t, i, "DEL", record.Key)
		}
		o.env = append(o.env, "REDLOCK_MAX_TTL=10s") // for redlock run
		o.follow(t, nil)
		o.start(t)
	},
	"Restart a server": func(t *testing.T, o *operator) {
		o.start(t)
		o.follow(t, steps{"ssh 10.0.0.3 systemctl restart redis-server": func() { o.restart(t, 2, fleet.Lost) }})
	},
	"Upgrade Redis": func(t *testing.T, o *operator) { // restarts servers that keep their data
		o.start(t)
		for i := 2; i >= 0; i-- {
			o.third = i
			o.follow(t, steps{"ssh 10.0.0.3 apt-get install --yes --only-upgrade redis-server": func() { o.restart(t, i, fleet.Kept) }})
		}
	},
	"Back up a server": func(t *testing.T, o *operator) {
		for i := range 3 {
			o.r.must(t, i, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
		}
		o.section = strings.ReplaceAll(o.section, "/tmp", t.TempDir())
		o.start(t)
		o.follow(t, nil)
	},
	"Replace a server at its address": func(t *testing.T, o *operator) {
		o.start(t)
		o.follow(t, steps{
			"ssh 10.0.0.3 systemctl disable --now redis-server": func() { o.r.fail(t, killed, 2) },
			"# Start an empty server at 10.0.0.3.":              func() { o.replace(t, 2) },
		})
	},
	"Give a server a standby": func(t *testing.T, o *operator) {
		o.start(t)
		o.follow(t, steps{
			"# 1. Start each client again with the standby in its list, one after the other.": func() { o.roll(t) },
			"# 2. From here on the standby may take over.": func() {
				assert.EqualValues(t, 1, o.r.must(t, 2, "EXISTS", "redlock:primary"))
			},
		})
		o.r.fail(t, killed, 2) // the former primary, needed only for the next failover
		o.goOn(t)
	},
	"Change the servers or the groups": func(t *testing.T, o *operator) {
		o.start(t)
		before := o.nodes()
		o.follow(t, steps{
			"# Stop all clients for the longest TTL.": func() { o.stop(t) },
			"# Start all clients with the new list.":  func() { o.start(t) },
		})
		o.stop(t)
		overlooked := open(t, before, guarding(steadyTTL)...)
		_, err := overlooked.Acquire(context.Background(), "orders")
		assert.ErrorIs(t, err, redlock.ErrMap)
	},
	"A majority lost its data": func(t *testing.T, o *operator) {
		o.outage = true
		o.start(t)
		o.r.forget(t, flushed, "", 0, 2)
		o.follow(t, nil)
	},
	"Records that make no sense": func(t *testing.T, o *operator) {
		o.outage = true
		o.start(t)
		o.r.must(t, 0, "SET", record.Key, "garbage")
		// Immediately, because a client that finds no record writes one.
		o.r.must(t, 1, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'no', 'string')", 1, record.Key)
		o.follow(t, steps{
			"# Stop all clients.":  func() { o.stop(t) },
			"# Start all clients.": func() { o.start(t) },
		})
	},
	"Free what a dead machine holds": freeTheDead,
}

// freeTheDead releases the locks of dead holders without renewal. Other locks must stay.
func freeTheDead(t *testing.T, o *operator) {
	value := func(begins string) string { return begins + strings.Repeat("0", 40-len(begins)) }
	locks := map[string]string{
		"nightly": value("4be2f09a1c77"), keys.Slot("convert", 1): value("81c3d0e57f2a"), keys.Slot("convert", 2): value("another"),
		"account:3": value("5d19e7a04b6c"), "account:7": value("c2f80a931e4d"), "catalogue": protocol.ReadersValue,
	}
	readers := keys.Readers.Of("catalogue")
	for i := range 3 {
		for key, value := range locks {
			o.r.must(t, i, "SET", key, value, "PX", time.Hour.Milliseconds())
		}
		for _, reader := range []string{"0f6b2c94d8e3", "another"} {
			o.r.must(t, i, "ZADD", readers, time.Now().Add(time.Hour).UnixMilli(), value(reader))
		}
	}
	o.start(t)
	o.follow(t, nil)
	for i := range 3 {
		for key := range locks {
			stays := int64(0)
			if key == keys.Slot("convert", 2) || key == "catalogue" {
				stays = 1
			}
			assert.Equal(t, stays, o.r.must(t, i, "EXISTS", key), key)
		}
		left, err := redis.Strings(o.r.do(i, "ZRANGE", readers, 0, -1))
		assert.NoError(t, err)
		assert.Equal(t, []string{value("another")}, left)
		o.r.must(t, i, "DEL", "catalogue", readers, keys.Slot("convert", 2))
	}
}

// TestLocksOfADeadMachineAreFreed runs the procedure of freeTheDead without containers.
func TestLocksOfADeadMachineAreFreed(t *testing.T) {
	t.Parallel()
	operate(t, newRig(t, fleet.Options{Nodes: 3}), "Free what a dead machine holds", freeTheDead)
}

// TestEveryProcedureIsTested: each section of the page with steps is in procedures.
func TestEveryProcedureIsTested(t *testing.T) {
	t.Parallel()
	var written []string
	for heading, section := range sections(t) {
		if len(blocks(section, "sh")) > 0 {
			written = append(written, heading)
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(procedures)), written)
}

// TestOperating carries out the procedures of docs/OPERATING.md, with the commands of the page,
// while clients are working. No lock may have two holders, no majority may be without a vote unless
// the procedure says so, and each client gets locks again after each step. Unless all tests run in
// containers, only the first procedure runs in containers.
func TestOperating(t *testing.T) {
	t.Parallel()
	need(t, inContainers)
	testenv.NeedProgram(t, "redis-cli")
	headings := slices.Sorted(maps.Keys(procedures))
	if !testenv.Containers() {
		headings = headings[:1]
	}
	for _, heading := range headings {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			r := take(t, inContainers)
			r.sweeps(t)
			operate(t, r, heading, procedures[heading])
		})
	}
}

// TestUpgradeToAnotherServer runs "Upgrade Redis" with two versions: the server named in
// REDLOCK_TEST_SERVER replaces one of three servers, and keeps its data.
func TestUpgradeToAnotherServer(t *testing.T) {
	older, err := exec.LookPath("redis-server")
	newer := os.Getenv(fleet.ServerEnv)
	if err != nil || newer == "" {
		t.Skipf("it takes redis-server on the PATH, and another in %s", fleet.ServerEnv)
	}
	testenv.NeedRedis(t)
	testenv.NeedProgram(t, "redis-cli")
	version, err := exec.CommandContext(t.Context(), newer, "--version").Output()
	require.NoError(t, err)
	if strings.Contains(string(version), "v=6.") {
		t.Skip("Redis 6 cannot read the data of Redis 7")
	}
	t.Setenv(fleet.ServerEnv, older)
	r := newRig(t, fleet.Options{Nodes: 3})
	t.Setenv(fleet.ServerEnv, newer)
	operate(t, r, "Upgrade Redis", func(t *testing.T, o *operator) {
		dir, err := redis.Strings(r.do(2, "CONFIG", "GET", "dir"))
		require.NoError(t, err)
		before := r.version(t, 2)
		o.start(t)
		o.follow(t, steps{"ssh 10.0.0.3 apt-get install --yes --only-upgrade redis-server": func() {
			require.NoError(t, r.Kill(context.Background(), 2))
			_, port, _ := strings.Cut(r.addr(2), ":")
			socket := startOnSocket(t, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", dir[1])
			require.NoError(t, fleet.AwaitReady(t.Context(), "unix://"+socket, nil))
			require.EqualValues(t, 1, r.must(t, 2, "EXISTS", record.Key), "it has the data")
		}})
		assert.NotEqual(t, before, r.version(t, 2))
	})
}

// commandDir is the directory of the command after a call of buildCommand. TestMain removes it.
var commandDir string

var buildCommand = sync.OnceValue(func() (err error) {
	if commandDir, err = os.MkdirTemp("", "redquorum"); err != nil {
		return err
	}
	return testenv.BuildCommand(commandDir)
})

// operate carries out a procedure on new servers that have been reset, and checks the locks that
// clients had during that time.
func operate(t *testing.T, r *rig, heading string, procedure func(*testing.T, *operator)) {
	t.Helper()
	require.NoError(t, buildCommand())
	o := &operator{r: r, section: sections(t)[heading], third: 2, history: newHistory()}
	o.env = append(os.Environ(), "PATH="+commandDir+":"+os.Getenv("PATH"), "REDLOCK_CONFIG=/dev/null",
		"REDISCLI_AUTH=CHANGE-ME-TOO", "REDLOCK_MAX_TTL="+operatedTTL.String(), "REDLOCK_DIAL_TIMEOUT=10s", "REDLOCK_NODE_TIMEOUT=8s")
	o.run(t, "export REDLOCK_NODES=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379")
	o.run(t, "redlock reset --yes")
	procedure(t, o)
	o.stop(t)
	o.judge(t)
}

// blocks returns the fenced blocks of a language.
func blocks(section, language string) (all []string) {
	for _, b := range strings.Split(section, "\n```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(b, "\n```\n")
		all = append(all, text+"\n")
	}
	return all
}

// sections returns the text of each section of the page by its heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(operatingPage)
	require.NoError(t, err)
	all := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		all[heading] = text
	}
	return all
}

// An operator carries out one procedure while clients are working.
type operator struct {
	r       *rig
	section string
	env     []string
	third   int  // index of the page's third server
	outage  bool // the procedure is about an outage

	*history
	clients []*operated // working clients
}

// steps contains a function for each of the page's commands for other machines, and for each
// instruction to people.
type steps map[string]func()

var exitsWith = regexp.MustCompile(`# exits with (\d+)`)

// follow carries out the section's steps, one line at a time. After each, all clients get locks
// again, unless they were stopped or wait for the end of an outage.
func (o *operator) follow(t *testing.T, by steps) {
	t.Helper()
	block := blocks(o.section, "sh")
	require.Len(t, block, 1)
	done := map[string]bool{}
	for line := range strings.Lines(block[0]) {
		line = strings.TrimSpace(line)
		command, _, _ := strings.Cut(line, "  #")
		command = strings.TrimSpace(command)
		if step, ok := by[command]; ok {
			step()
			done[command] = true
		} else {
			o.run(t, line)
		}
		if !o.outage {
			o.goOn(t)
		}
	}
	for command := range by {
		assert.True(t, done[command], "the page has no step %q", command)
	}
	o.goOn(t)
}

var (
	pageURL    = regexp.MustCompile(`redis://10\.0\.0\.(\d):6379`)
	pageClient = regexp.MustCompile(`redis-cli --user operator -h 10\.0\.0\.(\d)`)
	pageOther  = regexp.MustCompile(`10\.0\.0\.(\d)[: ]6379`) // address of a standby, or of a replica's primary
)

// run runs a line of the page with the addresses of the rig, and expects the exit code in its
// comment, or 0.
func (o *operator) run(t *testing.T, line string) {
	t.Helper()
	node := func(digit string) int {
		if digit == "3" {
			return o.third
		}
		return int(digit[0] - '1')
	}
	here := pageURL.ReplaceAllStringFunc(line, func(found string) string {
		return o.r.URLs()[pageURL.FindStringSubmatch(found)[1][0]-'1']
	})
	here = pageClient.ReplaceAllStringFunc(here, func(found string) string {
		i := node(pageClient.FindStringSubmatch(found)[1])
		o.r.must(t, i, "ACL", "SETUSER", "operator", "on", ">CHANGE-ME-TOO", "allkeys", "+@all") // the restarted server has lost the user
		host, port, _ := strings.Cut(o.r.addr(i), ":")
		return "redis-cli -e --user operator -h " + host + " -p " + port
	})
	here = pageOther.ReplaceAllStringFunc(here, func(found string) string {
		host, port, _ := strings.Cut(o.r.addr(node(pageOther.FindStringSubmatch(found)[1])), ":")
		return host + found[len("10.0.0.1"):len("10.0.0.1:")] + port
	})
	here = strings.ReplaceAll(here, "sleep 1;", "sleep 0.1;")
	require.NotRegexp(t, `10\.0\.0\.\d`, here, "the test does not know this step")
	if setting, ok := strings.CutPrefix(here, "export "); ok {
		o.env = append(o.env, strings.ReplaceAll(setting, "'", ""))
		return
	}
	if names, ok := strings.CutPrefix(here, "unset "); ok {
		for _, name := range strings.Fields(names) {
			o.env = append(o.env, name+"=")
		}
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*longTTL) // limit for loops of commands
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", here)
	c.Env, c.WaitDelay = o.env, time.Second
	out, err := c.CombinedOutput()
	want := "0"
	if code := exitsWith.FindStringSubmatch(line); code != nil {
		want = code[1]
	}
	require.Equal(t, want, fmt.Sprint(c.ProcessState.ExitCode()), "%s: %v\n%s", line, err, out)
}

// setting returns a variable of the clients' environment.
func (o *operator) setting(name string) string {
	for _, setting := range slices.Backward(o.env) {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			return value
		}
	}
	return ""
}

// nodes returns the clients' servers.
func (o *operator) nodes() []string {
	if list := o.setting("REDLOCK_NODES"); list != "" {
		return strings.Split(list, ",")
	}
	return regexp.MustCompile(`redis://[^, ]+`).FindAllString(o.setting("REDLOCK_GROUPS"), -1)
}

// open opens a client's Locker according to its environment.
func (o *operator) open(t *testing.T, opts []redlock.LockerOption) *redlock.Locker {
	t.Helper()
	groups := strings.Fields(o.setting("REDLOCK_GROUPS"))
	if len(groups) == 0 {
		return open(t, o.nodes(), opts...)
	}
	var of []redlock.Group
	for _, group := range groups {
		name, urls, _ := strings.Cut(group, "=")
		of = append(of, redlock.Group{Name: name, Nodes: members(t, strings.Split(urls, ","), nil)})
	}
	l, err := redlock.NewGroups(of, append([]redlock.LockerOption{redlock.NodeTimeout(nodeTimeout)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func (o *operator) restart(t *testing.T, i int, m fleet.Memory) {
	t.Helper()
	require.NoError(t, o.r.Restart(context.Background(), i, m))
}

// replace starts an empty server at the address of a stopped one. With Lost memory the fleet
// creates a new container.
func (o *operator) replace(t *testing.T, i int) {
	t.Helper()
	o.restart(t, i, fleet.Lost)
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	delete(o.r.broken, i)
}

// An operated is a client that works while the operator works.
type operated struct {
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	locker  *redlock.Locker
	callers []*caller // callers that acquire locks repeatedly
}

// start starts two clients. In each, one caller takes "orders" and another takes "invoices" for a
// moment. A third caller takes "leader" permanently. The third caller of the second client waits
// for this lock.
func (o *operator) start(t *testing.T) {
	t.Helper()
	for range 2 {
		o.clients = append(o.clients, o.client(t))
	}
	o.goOn(t)
}

// roll restarts the clients in turn.
func (o *operator) roll(t *testing.T) {
	t.Helper()
	for i, client := range o.clients {
		client.stop(t)
		o.clients[i] = o.client(t)
		o.goOn(t)
	}
}

// client starts one client.
func (o *operator) client(t *testing.T) *operated {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := &operated{cancel: cancel}
	t.Cleanup(func() { cancel(); client.ended.Wait() }) // ends the client even if the test fails
	judge := watch(func(e redlock.Event) bool {
		if (e.Kind == redlock.EventAttempt || e.Kind == redlock.EventLost) && !o.outage {
			assert.LessOrEqual(t, voteless(e.Err), 1, "%v: %v", e.Kind, e.Err)
		}
		return false
	})
	client.locker = o.open(t, guarding(operatedTTL, redlock.Observe(judge)))
	for _, c := range []*caller{{names: []string{"orders"}}, {names: []string{"invoices"}}, {names: []string{"leader"}, holds: longTTL}} {
		c.history, c.locker = o.history, client.locker
		if c.holds == 0 {
			client.callers = append(client.callers, c)
		}
		client.ended.Go(func() { c.work(ctx) })
	}
	return client
}

func (c *operated) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	c.ended.Wait()
	require.NoError(t, c.locker.Close())
}

// voteless returns the number of servers that are down or have no vote, according to the error of a
// failed attempt. Late servers have a vote: the machine is busy.
func voteless(err error) (n int) {
	var failure *redlock.QuorumError
	if !errors.As(err, &failure) || failure.Causes == nil {
		return 0
	}
	for _, cause := range failure.Causes.Errors {
		var quarantine *protocol.QuarantineError
		switch measure.Fault(cause) {
		case "quarantine": // a quarantine without a time: the record has changed, and the vote is requested again
			if errors.As(cause, &quarantine) && quarantine.Left > 0 {
				n++
			}
		case "settings", "refused", "disconnected", "loading":
			n++
		}
	}
	return n
}

// goOn waits until each working caller has had a lock again.
func (o *operator) goOn(t *testing.T) {
	t.Helper()
	var callers []*caller
	for _, client := range o.clients {
		callers = append(callers, client.callers...)
	}
	for _, c := range callers {
		before := c.turns.Load()
		poll(t, longTTL, func() error {
			if c.turns.Load() == before {
				return fmt.Errorf("nobody gets %q", c.names)
			}
			return nil
		})
	}
}

// stop ends all clients. It returns when no server has a client's connection any longer, because an
// open connection might still contain a request.
func (o *operator) stop(t *testing.T) {
	t.Helper()
	if len(o.clients) == 0 {
		return
	}
	for _, client := range o.clients {
		client.stop(t)
	}
	o.clients = nil
	for i, url := range o.r.URLs() {
		if slices.Contains(o.nodes(), url) {
			poll(t, longTTL, func() error {
				c, err := o.r.connect(i)
				if err != nil {
					return err
				}
				defer c.Close()
				return checkClients(c, i, 0)
			})
		}
	}
}
