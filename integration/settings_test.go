package integration_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// TestServerSettingsOfThePage starts a server with the settings of the page, and checks that they
// have no fault. Clients take all kinds of locks with the rights of the page.
func TestServerSettingsOfThePage(t *testing.T) {
	t.Parallel()
	server := serverOfThePage(t)
	conf := blocks(sections(t)["Server settings"], "conf")
	require.Len(t, conf, 2, "the settings, and those of TLS")
	acl := blocks(sections(t)["Server settings"], "acl")
	require.Len(t, acl, 1)
	// These replace the page's address and paths, which belong to another machine.
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	here := []string{"--bind", "127.0.0.1", "--dir", dir, "--aclfile", file("users.acl", []byte(acl[0]))}

	t.Run("on a socket", func(t *testing.T) {
		path := file("redis.conf", []byte(conf[0]))
		socket := startOnSocket(t, append([]string{path, "--port", "0"}, here...)...)
		everyKindOfLock(t, "unix://locks:CHANGE-ME@"+socket, "")
		// The page's patterns for a prefix replace all keys.
		patterns := regexp.MustCompile("`(~PREFIX\\* [^`]*)`").FindStringSubmatch(sections(t)["Server settings"])
		require.NotNil(t, patterns)
		_, rights, _ := strings.Cut(strings.Split(acl[0], "\n")[1], "resetchannels ")
		rights = strings.Replace(rights, "~*", strings.ReplaceAll(patterns[1], "PREFIX", "app:"), 1)
		operator := asOperator(t, "unix://operator:CHANGE-ME-TOO@"+socket)
		_, err := operator.Do("ACL", redis.Args{"SETUSER", "prefixed", "on", ">CHANGE-ME"}.AddFlat(strings.Fields(rights))...)
		require.NoError(t, err)
		_, err = operator.Do("ACL", "LOG", "RESET")
		require.NoError(t, err)
		l := open(t, []string{"unix://prefixed:CHANGE-ME@" + socket}, append(guarding(operatedTTL/2), redlock.Prefix("app:"))...)
		turn(t, l, "each", redlock.Fair())
		nothingIsRefused(t, operator)
		examined(t, "unix://operator:CHANGE-ME-TOO@"+socket, "")
	})
	t.Run("TLS", func(t *testing.T) {
		// Without a certificate the server does not start, and prints the reason.
		out, _ := exec.CommandContext(t.Context(), server, "--port", "0", "--tls-port", "1").CombinedOutput()
		if !strings.Contains(string(out), "Failed to configure TLS") {
			t.Skip("this server was built without TLS")
		}
		port := freePort(t)
		own := httptest.NewTLSServer(nil) // started for its certificate for 127.0.0.1
		defer own.Close()
		key, err := x509.MarshalPKCS8PrivateKey(own.TLS.Certificates[0].PrivateKey)
		require.NoError(t, err)
		cert := file("redis.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw}))
		path := file("redis-tls.conf", []byte(conf[0]+conf[1]))
		startOnSocket(t, append([]string{path, "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-ca-cert-file", cert,
			"--tls-key-file", file("redis.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))}, here...)...)
		trusting := x509.NewCertPool()
		trusting.AddCert(own.Certificate())
		everyKindOfLock(t, "rediss://locks:CHANGE-ME@"+fleet.Loopback(port), cert, pool.TLS(&tls.Config{RootCAs: trusting}))
	})
}

// serverOfThePage returns the server if it accepts the page's settings unchanged.
func serverOfThePage(t *testing.T) (server string) {
	t.Helper()
	testenv.NeedRedis(t)
	server, err := fleet.Server()
	require.NoError(t, err)
	version, err := exec.CommandContext(t.Context(), server, "--version").Output()
	require.NoError(t, err)
	if strings.Contains(string(version), "v=6.0.") {
		t.Skip("Redis 6.0 does not know channels in an ACL, as the page says")
	}
	return server
}

// freePort returns a port that is free, for this test alone.
func freePort(t *testing.T) (port int) {
	t.Helper()
	require.NoError(t, fleet.Options{}.OnPort(0, func(free int) error {
		l, err := net.Listen("tcp", fleet.Loopback(free))
		if err != nil {
			return fleet.ErrPortTaken
		}
		port = free
		return l.Close()
	}))
	t.Cleanup(func() { fleet.ReleasePort(port) })
	return port
}

// TestDoctorPassesWithTheSettingsOfThePage: three servers with the settings of the page, its users
// and its exports, at an address other than loopback. Each step of the page ends when redlock
// doctor exits with 0.
func TestDoctorPassesWithTheSettingsOfThePage(t *testing.T) {
	t.Parallel()
	serverOfThePage(t)
	require.NoError(t, buildCommand())
	page, err := os.ReadFile(operatingPage)
	require.NoError(t, err)
	env := append(os.Environ(), "REDLOCK_CONFIG=/dev/null", "REDLOCK_DIAL_TIMEOUT=10s", "REDLOCK_NODE_TIMEOUT=8s")
	exports := regexp.MustCompile(`export (\w+=\S+)`).FindAllStringSubmatch(blocks(string(page), "sh")[0], -1)
	require.Greater(t, len(exports), 1)
	for _, export := range exports {
		env = append(env, export[1])
	}
	var urls []string
	for range 3 {
		urls = append(urls, "redis://0.0.0.0:"+startAsThePage(t, "")) // this machine, at an address other than loopback
	}
	env = append(env, "REDLOCK_NODES="+strings.Join(urls, ","))
	redlock := func(user, password string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), filepath.Join(commandDir, "redlock"), args...)
		c.Env = append(env, "REDLOCK_USERNAME="+user, "REDLOCK_PASSWORD="+password)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s\n%s", args, out)
	}
	redlock("operator", "CHANGE-ME-TOO", "reset", "--yes")
	redlock("locks", "CHANGE-ME", "run", "first", "--", "true")
	for user, password := range map[string]string{"locks": "CHANGE-ME", "operator": "CHANGE-ME-TOO"} {
		redlock(user, password, "doctor")
	}
}

// startAsThePage starts a server with the settings and users of the page, plus further settings. It
// returns its port.
func startAsThePage(t *testing.T, more string) (port string) {
	t.Helper()
	dir := t.TempDir()
	conf, acl := filepath.Join(dir, "redis.conf"), filepath.Join(dir, "users.acl")
	all := sections(t)["Server settings"]
	require.NoError(t, os.WriteFile(conf, []byte(blocks(all, "conf")[0]+more), 0o600))
	require.NoError(t, os.WriteFile(acl, []byte(blocks(all, "acl")[0]), 0o600))
	port = strconv.Itoa(freePort(t))
	startOnSocket(t, conf, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--aclfile", acl)
	return port
}

// TestStandbyReplicatesWithTheSettingsOfThePage: the page's operator runs its commands, and servers
// use the credentials of the page.
func TestStandbyReplicatesWithTheSettingsOfThePage(t *testing.T) {
	t.Parallel()
	serverOfThePage(t)
	testenv.NeedProgram(t, "redis-cli")
	section := sections(t)["Give a server a standby"]
	ports := map[string]string{}
	for _, digit := range []string{"3", "4"} {
		ports[digit] = startAsThePage(t, strings.Join(blocks(section, "conf"), ""))
	}
	// The standby replicates, and so does the former primary after the standby was promoted.
	for _, line := range regexp.MustCompile(`(?m)^redis-cli .*REPLICAOF.*$`).FindAllString(section, -1) {
		line = regexp.MustCompile(`-h 10\.0\.0\.(\d)`).ReplaceAllStringFunc(line, func(found string) string {
			return "-e -p " + ports[found[len(found)-1:]]
		})
		line = regexp.MustCompile(`10\.0\.0\.(\d) 6379`).ReplaceAllStringFunc(line, func(found string) string {
			return "127.0.0.1 " + ports[found[len("10.0.0."):len("10.0.0.3")]]
		})
		c := exec.CommandContext(t.Context(), "sh", "-c", line)
		c.Env = append(os.Environ(), "REDISCLI_AUTH=CHANGE-ME-TOO")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		if strings.Contains(line, "NO ONE") {
			continue
		}
		replica, _, _ := strings.Cut(line[strings.Index(line, "-p ")+len("-p "):], " ")
		operator := asOperator(t, "redis://operator:CHANGE-ME-TOO@127.0.0.1:"+replica)
		require.Eventually(t, func() bool {
			state, err := redis.String(operator.Do("INFO", "replication"))
			return err == nil && strings.Contains(state, "master_link_status:up")
		}, failAfter, 10*time.Millisecond, line)
	}
}

// everyKindOfLock takes locks that need all rights, and runs doctor on them. The file ca contains
// the server's authority.
func everyKindOfLock(t *testing.T, url, ca string, opts ...pool.Option) {
	t.Helper()
	ctx := t.Context()
	var doubts bytes.Buffer
	opts = append(append(opts, patient...), pool.Log(slog.New(slog.NewTextHandler(&doubts, nil))))
	client := func(its ...redlock.LockerOption) *redlock.Locker {
		nodes, err := pool.OpenWith([]string{url}, opts...)
		require.NoError(t, err)
		l := newLocker(t, nodes, its...)
		connected(t, l)
		return l
	}
	guarded := client(guarding(operatedTTL / 2)...)
	trusted(t, guarded)
	require.NoError(t, guarded.Close())
	locker := client(redlock.Observe(watch(func(e redlock.Event) bool {
		assert.NotErrorIs(t, e.Err, pool.ErrPermission)
		return false
	})))
	for _, kind := range [][]redlock.Option{nil, {redlock.Fenced()}, {redlock.Fair()}, {redlock.Shared()}, {redlock.Permits(2)}} {
		lock, err := locker.Acquire(ctx, "each", kind...)
		require.NoError(t, err)
		waiting := make(chan error)
		go func() { waiting <- locker.Do(ctx, "each", func(context.Context) error { return nil }, kind...) }()
		require.NoError(t, lock.Extend(ctx))
		require.NoError(t, lock.Release(ctx))
		require.NoError(t, <-waiting)
	}
	set, err := locker.AcquireAll(ctx, []string{"a", "b"})
	require.NoError(t, err)
	require.NoError(t, set.Release(ctx))
	require.NoError(t, locker.Close())
	lacks := regexp.MustCompile(`DELEX|DELIFEQ`) // the page grants these only to servers that have them
	for line := range strings.Lines(doubts.String()) {
		assert.Regexp(t, lacks, line)
	}
	nothingIsRefused(t, asOperator(t, strings.Replace(url, "locks:CHANGE-ME", "operator:CHANGE-ME-TOO", 1), opts...))
	examined(t, url, "persistence", "--tls-ca", ca) // clients cannot check the persistence
}

// asOperator connects as the operator.
func asOperator(t *testing.T, url string, opts ...pool.Option) redis.Conn {
	t.Helper()
	_, dial, err := pool.Dialer(url, append(opts, patient...)...)
	require.NoError(t, err)
	c, err := dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// nothingIsRefused fails if the server's ACL LOG contains more than the deletions that the page
// grants only to servers that have them. Otherwise alerts on refusals would be useless.
func nothingIsRefused(t *testing.T, operator redis.Conn) {
	t.Helper()
	entries, err := redis.Values(operator.Do("ACL", "LOG", 100))
	require.NoError(t, err)
	for _, entry := range entries {
		fields, err := redis.Values(entry, nil)
		require.NoError(t, err)
		text := fmt.Sprintf("%s", fields)
		assert.Regexp(t, `(?i)delex|delifeq`, text)
	}
}

// examined fails if redlock doctor finds a fault, or notes on more than one check.
func examined(t *testing.T, url, noted string, flags ...string) {
	t.Helper()
	var report struct {
		Nodes []struct {
			Findings []struct{ Check, Severity, Summary, Do string }
		}
	}
	flags = append(flags, "--max-ttl", (operatedTTL / 2).String())
	require.NoError(t, json.Unmarshal(doctor(t, url, flags...), &report))
	for _, f := range report.Nodes[0].Findings {
		newer := f.Check == "rights" && strings.Contains(f.Do, "permit +del")
		assert.True(t, f.Severity == "ok" || f.Severity == "note" && (f.Check == noted || newer), "%+v", f)
	}
}

// doctor returns the output of redlock doctor --json for a server.
func doctor(t *testing.T, url string, flags ...string) []byte {
	t.Helper()
	require.NoError(t, buildCommand())
	c := exec.CommandContext(t.Context(), filepath.Join(commandDir, "redlock"), append([]string{"doctor", "--json", "--node", url}, flags...)...)
	c.Env = append(os.Environ(), "REDLOCK_CONFIG=/dev/null", "REDLOCK_DIAL_TIMEOUT=10s", "REDLOCK_NODE_TIMEOUT=8s")
	out, err := c.Output() // the exit code is the verdict
	require.NotEmpty(t, out, "%v", err)
	return out
}

// TestSizesOfThePage measures the memory and the commands of a lock, and compares them with
// OPERATING.md. Server versions differ by less than half.
func TestSizesOfThePage(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 1})
	locker := open(t, r.URLs())
	figure := func(row, unit string) float64 {
		found := regexp.MustCompile(`(?m)^\| ` + row + ` \|.*?(\d+) ` + unit).FindStringSubmatch(sections(t)["Sizing"])
		require.NotNil(t, found, row)
		n, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		return n
	}
	info := func(section, name string) float64 { return float64(r.statistic(t, 0, section, name)) }
	const n = 1000
	name := func(i int) string { return fmt.Sprintf("order:%08d", i) }
	commands := func() float64 { // without commands called by scripts
		calls := 0.0
		for _, name := range []string{"set", "evalsha", "delex", "delifeq", "pttl", "info"} {
			calls += info("commandstats", "cmdstat_"+name+":")
		}
		return calls
	}
	guarded := open(t, r.URLs(), guarding(steadyTTL)...)
	trusted(t, guarded)
	before := commands()
	in, out := info("stats", "total_net_input_bytes:"), info("stats", "total_net_output_bytes:")
	for i := range n { // releases of several callers would share a script
		lock, err := acquireLate(guarded, name(i))
		require.NoError(t, err)
		require.NoError(t, lock.Release(context.Background()))
	}
	each := (commands() - before) / n
	in, out = (info("stats", "total_net_input_bytes:")-in)/n, (info("stats", "total_net_output_bytes:")-out)/n
	t.Logf("an acquisition and its release: %.1f commands, %.0f bytes in and %.0f out", each, in, out)
	assert.InEpsilon(t, figure("an acquisition and its release", "commands"), each, 0.2)
	assert.InEpsilon(t, figure("an acquisition and its release", "bytes in"), in, 0.2)
	assert.InEpsilon(t, figure("an acquisition and its release", "out"), out, 0.2)

	before = info("memory", "used_memory:")
	share(8, n, func(i int) {
		_, err := locker.TryAcquire(context.Background(), name(i))
		assert.NoError(t, err)
	})
	poll(t, failAfter, func() error { // the holder gets hints after a moment
		if watched := info("stats", "tracking_total_keys:"); watched < n {
			return fmt.Errorf("%v of %v locks are watched", watched, n)
		}
		return nil
	})
	each = (info("memory", "used_memory:") - before) / n
	t.Logf("a lock that is held: %.0f bytes", each)
	assert.InEpsilon(t, figure("memory of a held lock", "bytes"), each, 0.5)
}
