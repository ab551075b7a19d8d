//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// A served is a run of "redlock serve", and a client of it.
type served struct {
	*process
	t       *testing.T
	address string // as it says
	client  *http.Client
	headers map[string]string
}

var servingAt = regexp.MustCompile(`redlock: serving at (\S+)\n`)

// startServe starts a run, and waits until it serves.
func startServe(t *testing.T, f fleet.Fleet, args ...string) *served {
	t.Helper()
	return (&served{process: command(t, f.URLs(), append([]string{"serve"}, args...)...), t: t}).start()
}

func (s *served) start() *served {
	s.t.Helper()
	s.begin(s.t)
	s.says(servingAt.String())
	s.address = servingAt.FindStringSubmatch(s.stderr.String())[1]
	transport := &http.Transport{}
	if path, isUnix := strings.CutPrefix(s.address, "unix:"); isUnix {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	s.client = &http.Client{Transport: transport, Timeout: endless}
	s.t.Cleanup(transport.CloseIdleConnections)
	return s
}

// A reply has the fields of all answers that the tests read.
type reply struct {
	status   int
	body     string
	Lease    string
	Session  string
	Ending   bool
	ValidFor int64 `json:"valid_for_ms"`
}

// ask sends a request and returns the answer.
func (s *served) ask(method, path, body string) (a reply) {
	s.t.Helper()
	base, isUnix := s.address, strings.HasPrefix(s.address, "unix:")
	if isUnix {
		base = "http://redlock"
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, base+path, strings.NewReader(body))
	tr.NoError(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, text := range s.headers {
		r.Header.Set(name, text)
	}
	answer, err := s.client.Do(r)
	tr.NoError(s.t, err, s.stderr.String())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	tr.NoError(s.t, err)
	json.Unmarshal(text, &a)
	a.status, a.body = answer.StatusCode, string(text)
	return a
}

// take takes a lock in a session of its own.
func (s *served) take(name string) reply {
	s.t.Helper()
	a := s.ask("POST", "/v1/locks", fmt.Sprintf(`{"name":%q,"wait_ms":60000}`, name))
	tr.Equal(s.t, http.StatusCreated, a.status)
	tr.Positive(s.t, a.ValidFor)
	return a
}

// says waits until stderr matches a pattern.
func (s *served) says(pattern string) {
	s.t.Helper()
	is := regexp.MustCompile(pattern)
	deadline := time.Now().Add(endless)
	for !is.MatchString(s.stderr.String()) {
		tr.True(s.t, time.Now().Before(deadline), "%s: this is all that was written:\n%s", pattern, s.stderr)
		time.Sleep(time.Millisecond)
	}
}

// stop ends the run by a signal, and returns the exit code.
func (s *served) stop() int {
	s.client.CloseIdleConnections()
	s.signal(s.t, syscall.SIGTERM)
	return s.code(s.t)
}

// refusedToServe returns the exit code and the output of a run that does not start.
func refusedToServe(t *testing.T, f fleet.Fleet, args ...string) (code int, said string) {
	t.Helper()
	code, _, said = command(t, f.URLs(), append([]string{"serve"}, args...)...).outcome(t)
	return code, said
}

func TestServeListensAtASocket(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	assert.Equal(t, "unix:/run/redlock.sock", newServe().Flags().Lookup("listen").DefValue)
	path := filepath.Join(t.TempDir(), "s")
	isSocket := func(mode os.FileMode) {
		t.Helper()
		file, err := os.Stat(path)
		tr.NoError(t, err)
		assert.Equal(t, os.ModeSocket|mode, file.Mode())
	}
	s := startServe(t, f, "--listen", "unix:"+path)
	assert.Equal(t, "unix:"+path, s.address)
	isSocket(0o600)
	s.take("a")
	code, said := refusedToServe(t, f, "--listen", "unix:"+path)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, said, "redlock: --listen: "+path+": another process listens there: stop it, or use another path\n")
	s.take("b")

	tr.NoError(t, s.Process.Kill())
	s.Wait()
	isSocket(0o600) // of the dead
	again := command(t, f.URLs(), "serve", "--socket-mode", "0660")
	again.Env = append(again.Env, "REDLOCK_LISTEN=unix:"+path)
	s = (&served{process: again, t: t}).start()
	isSocket(0o660)
	s.ask("DELETE", "/v1/locks/"+s.take("c").Lease, "")
	assert.Zero(t, s.stop())
	assert.NoFileExists(t, path)
	assert.NotContains(t, s.stderr.String(), "released")

	tr.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	code, said = refusedToServe(t, f, "--listen", "unix:"+path)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, said, "redlock: --listen: "+path+" exists, and is not a socket: remove it, or use another path\n")
	assert.FileExists(t, path)
}

// TestSocketIsRemovedByItsOwnProcess: no other process removes the socket, or takes its path before
// that, even if the socket is gone.
func TestSocketIsRemovedByItsOwnProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first, err := listenUnix(path)
	tr.NoError(t, err)
	tr.NoError(t, os.Remove(path)) // like a person who considers it stale
	_, err = listenUnix(path)
	assert.ErrorContains(t, err, path+": another process listens there")
	other, err := net.Listen("unix", path) // a process without the lock
	tr.NoError(t, err)
	tr.NoError(t, first.Close())
	assert.FileExists(t, path, "it is another's")
	_, err = listenUnix(path)
	assert.ErrorContains(t, err, path+": another process listens there")
	tr.NoError(t, other.Close())

	second, err := listenUnix(path)
	tr.NoError(t, err)
	assert.NoError(t, first.Close(), "twice")
	assert.FileExists(t, path)
	tr.NoError(t, second.Close())
	assert.NoFileExists(t, path)
}

// certificate returns a self-signed certificate for 127.0.0.1, for servers and clients.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	tr.NoError(t, err)
	now := time.Now()
	of := &x509.Certificate{
		Subject: pkix.Name{CommonName: "a client"}, SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	tr.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	tr.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestServeLogsTheServersErrors: a candidate that cannot lead has no client that would get the
// error.
func TestServeLogsTheServersErrors(t *testing.T) {
	t.Parallel()
	f := five(t)
	for _, url := range f.URLs() {
		ask(t, url, "CONFIG", "SET", "maxmemory", "1")
	}
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--office", "office")
	s.says("OOM command not allowed")
	assert.Equal(t, http.StatusServiceUnavailable, s.ask("GET", "/leader", "").status)
	s.stop()
}

// TestServeForOtherMachinesNeedsTLS: it also needs the identity of its clients.
func TestServeForOtherMachinesNeedsTLS(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	pair, files, tokenFile := certificate(t), newPairFiles(t), filepath.Join(t.TempDir(), "token")
	files.write(pair)
	tr.NoError(t, os.WriteFile(tokenFile, []byte("0123456789abcdef\n"), 0o600))
	secure := []string{"--cert", files.cert, "--key", files.key}
	for _, args := range [][]string{nil, secure, {"--token-file", tokenFile}} {
		code, said := refusedToServe(t, f, append(args, "--listen", "0.0.0.0:0")...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, said, "can be reached from other machines: pass --cert and --key, and --tokens, --token-file or --client-ca")
	}

	anywhere := func(args ...string) *served {
		s := startServe(t, f, append(append(args, secure...), "--listen", "0.0.0.0:0")...)
		assert.Regexp(t, `^https://\[::\]:\d+$`, s.address)
		s.address = strings.Replace(s.address, "[::]", "127.0.0.1", 1)
		roots := x509.NewCertPool()
		roots.AddCert(pair.Leaf)
		s.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
		return s
	}
	s := anywhere("--token-file", tokenFile)
	assert.Equal(t, http.StatusUnauthorized, s.ask("GET", "/healthz", "").status)
	s.headers = map[string]string{"Authorization": "Bearer 0123456789abcdee"}
	assert.Equal(t, http.StatusUnauthorized, s.ask("POST", "/v1/locks", `{"name":"a"}`).status)
	s.headers = map[string]string{"Authorization": "Bearer 0123456789abcdef"}
	s.take("a")
	assert.NotContains(t, s.stderr.String(), "0123456789")

	s = anywhere("--client-ca", files.cert)
	unknown, err := http.NewRequestWithContext(t.Context(), "GET", s.address+"/healthz", nil)
	tr.NoError(t, err)
	_, err = s.client.Do(unknown)
	assert.ErrorContains(t, err, "certificate")
	s.client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	s.take("b")
}

// TestServeGivesClientsRights: the rights are from the file in docs/SERVE.md, for a token created
// as described there. An invalid file does not change the rights.
func TestServeGivesClientsRights(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Skip(err)
	}
	document, err := os.ReadFile("../../docs/SERVE.md")
	tr.NoError(t, err)
	_, example, _ := strings.Cut(string(document), "```yaml\n")
	example, making, _ := strings.Cut(example, "```")
	_, making, _ = strings.Cut(making, "```sh\n")
	making, _, _ = strings.Cut(making, "```")
	made := exec.Command("sh", "-euc", making)
	made.Dir = t.TempDir()
	hash, err := made.Output()
	tr.NoError(t, err)
	token, err := os.ReadFile(filepath.Join(made.Dir, "billing.token"))
	tr.NoError(t, err)
	const other, nobody = "a-token-of-payroll", "a-token-of-nobody"
	ofOther := fmt.Sprintf("%x", sha256.Sum256([]byte(other)))
	all := strings.Replace(example, "HASH", string(hash[:64]), 1) + "- {label: payroll, sha256: [" + ofOther + "], lock: [payroll]}\n"
	file := filepath.Join(t.TempDir(), "tokens")
	tr.NoError(t, os.WriteFile(file, []byte(all), 0o600))
	s := startServe(t, startFleet(t, fleet.Embedded, 3), "--listen", "127.0.0.1:0", "--tokens", file)
	bearing := func(token string) *served {
		s.headers = map[string]string{"Authorization": "Bearer " + token}
		return s
	}
	lease := "/v1/locks/" + bearing(string(token)).take("billing/nightly").Lease
	s.take("invoice:42")
	refused := bearing(other).ask("POST", "/v1/locks", `{"name":"billing/nightly"}`)
	assert.Equal(t, http.StatusForbidden, refused.status)
	assert.Contains(t, refused.body, `"right":"lock","pattern":"billing/nightly"`)
	assert.Equal(t, http.StatusNotFound, s.ask("DELETE", lease, "").status)

	tr.NoError(t, os.WriteFile(file, []byte(strings.Replace(all, ofOther, "the token itself", 1)), 0o600))
	s.signal(s.t, syscall.SIGHUP) // logs the mistake, and does not end the process
	s.says("SIGHUP: kept the last valid rights")
	tr.Contains(t, s.stderr.String(), "must be the 64 hexadecimal digits")
	s.take("payroll")
	s.signal(s.t, syscall.SIGHUP) // shows it again
	s.says(`(?s)SIGHUP: kept.*SIGHUP: kept the last valid rights \(entry 2 \("payroll"\): sha256 must be`)
	assert.Equal(t, http.StatusUnauthorized, bearing(nobody).ask("GET", lease, "").status)
	assert.Equal(t, http.StatusNoContent, bearing(string(token)).ask("DELETE", lease, "").status)
	said := s.stderr.String()
	assert.Equal(t, 1, strings.Count(said, "redlock: --tokens: "+file+": entry 2 (\"payroll\"): sha256 must be the 64 hexadecimal digits"), said)
	for _, secret := range []string{string(token), other, nobody, "the token itself"} {
		assert.NotContains(t, said, secret)
	}
}

// TestServeUsesTheSocketOfSystemd: serve also reports its state to systemd.
func TestServeUsesTheSocketOfSystemd(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	dir := t.TempDir()
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	tr.NoError(t, err)
	defer told.Close()
	tells := func(want string) {
		t.Helper()
		told.SetReadDeadline(time.Now().Add(endless))
		text := make([]byte, 100)
		n, err := told.Read(text)
		tr.NoError(t, err)
		tr.Equal(t, want, string(text[:n]))
	}
	// passed prepares a run that gets a socket. A shell sets the process ID and then becomes the
	// command, which keeps this ID.
	passed := func(socket *os.File) *process {
		p := command(t, f.URLs())
		p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `LISTEN_PID=$$ exec "$0" serve --listen unix:/nowhere/s --stop-within 1m`, self(t)}
		p.Env = append(p.Env, "LISTEN_FDS=1", "NOTIFY_SOCKET="+told.LocalAddr().String())
		p.ExtraFiles = []*os.File{socket}
		return p
	}
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	tr.NoError(t, err)
	l.SetUnlinkOnClose(false)
	socket, err := l.File()
	tr.NoError(t, err)
	tr.NoError(t, l.Close())
	s := (&served{process: passed(socket), t: t}).start()
	tr.NoError(t, socket.Close())
	assert.Equal(t, "unix:"+path, s.address)
	tells("READY=1")
	a := s.take("a")
	s.signal(t, syscall.SIGTERM)
	tells("STOPPING=1")
	s.ask("DELETE", "/v1/locks/"+a.Lease, "")
	s.client.CloseIdleConnections()
	assert.Zero(t, s.code(t))
	assert.FileExists(t, path, "it is systemd's")

	packets, err := told.File()
	tr.NoError(t, err)
	defer packets.Close()
	code, _, said := passed(packets).outcome(t)
	assert.Equal(t, exitConfig, code)
	assert.Contains(t, said, "redlock: the socket of systemd does not listen for streams")
}

// TestNodeTimeoutIsTheTimeForAnAnswer: an answer counts that arrives after the default StallTimeout.
func TestNodeTimeoutIsTheTimeForAnAnswer(t *testing.T) {
	t.Parallel()
	f := five(t)
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--node-timeout", "10s")
	s.take("a") // connects
	for _, url := range f.URLs() {
		ask(t, url, "CLIENT", "PAUSE", "2500")
	}
	answer := s.ask("POST", "/v1/locks", `{"name":"b"}`)
	assert.Equal(t, http.StatusCreated, answer.status, answer.body)
}

// TestServeEndsAfterItsClients: on a signal, serve waits until its clients have finished, for at
// most --stop-within.
func TestServeEndsAfterItsClients(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	others := client(t, f)
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--stop-within", "1m")
	s.headers = map[string]string{"Redlock-Session": s.ask("POST", "/v1/sessions", "").Session}
	a := s.take("a")
	s.signal(t, syscall.SIGTERM)
	eventually(t, "the client is told", func() bool { return s.ask("GET", "/v1/session", "").Ending })
	_, err := others.TryAcquire(t.Context(), "a")
	assert.Error(t, err, "the client works under it")
	assert.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+a.Lease, "").status)
	s.client.CloseIdleConnections()
	assert.Zero(t, s.code(t))
	assert.NotContains(t, s.stderr.String(), "released")

	s = startServe(t, f, "--listen", "127.0.0.1:0", "--stop-within", "10s", "--node-timeout", "8s")
	s.headers = map[string]string{"Redlock-Session": s.ask("POST", "/v1/sessions", `{"ttl_ms":60000}`).Session}
	tr.Equal(t, http.StatusCreated, s.ask("POST", "/v1/locks", `{"name":"b","ttl_ms":9000}`).status)
	tr.Equal(t, http.StatusCreated, s.ask("POST", "/v1/locks", `{"name":"c","ttl_ms":60000}`).status)
	assert.Zero(t, s.stop())
	assert.Contains(t, s.stderr.String(), "redlock: released 1 locks that clients had not released within 10s\n")
	assert.Contains(t, s.stderr.String(), "redlock: left 1 locks to expire: earlier answers permit clients to work for longer than --stop-within 10s\n")
	free(t, others, "b")
	_, err = others.TryAcquire(t.Context(), "c")
	assert.ErrorIs(t, err, redlock.ErrHeld, "its client may work for a minute")
}

// A pipes is a listener in memory. In a bubble of synctest its deadlines cost no time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// TestServeBoundsConnections: the number is limited regardless of the clients. A connection that
// has sent only part of a header, or nothing, makes room for others.
func TestServeBoundsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := &textLog{}
		over := (&connections{most: 3, limit: "--max-connections", log: said.add}).server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		p := make(pipes)
		done := make(chan struct{})
		go func() {
			defer close(done)
			over.Serve(p)
		}()
		defer func() { <-done }()
		defer close(p)
		asks := func(c net.Conn) error {
			go fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			a, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				a.Body.Close()
			}
			return err
		}
		for range 3 { // the same slots are released each time
			silent, half, idle := p.dial(), p.dial(), p.dial()
			go fmt.Fprint(half, "GET / HTTP/1.1\r\nHost: ")
			assert.NoError(t, asks(idle))
			assert.NoError(t, asks(idle))
			assert.Error(t, asks(p.dial()), "there are three")
			assert.Error(t, asks(p.dial()))
			began := time.Now()
			for _, c := range []net.Conn{silent, half} {
				io.Copy(io.Discard, c)
				assert.LessOrEqual(t, time.Since(began), 5*time.Second)
			}
			others := []net.Conn{p.dial(), p.dial()}
			for _, c := range others {
				assert.NoError(t, asks(c))
			}
			assert.Error(t, asks(p.dial()))
			for _, c := range append(others, idle) {
				assert.NoError(t, c.Close())
			}
			synctest.Wait()
		}
		assert.Equal(t, "clients are refused: there are 3 connections, which is --max-connections\n", said.String(), "once a minute")
	})
}

// TestServeReservesDescriptors: clients with many connections cannot use up the descriptors for the
// servers and --state.
func TestServeReservesDescriptors(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	within := func(files int, args ...string) *process {
		p := command(t, f.URLs())
		p.Path, p.Args = "/bin/sh", append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" serve --listen 127.0.0.1:0 "$@"`, files), self(t)}, args...)
		return p
	}
	code, _, said := within(44).outcome(t)
	assert.Equal(t, exitConfig, code)
	assert.Contains(t, said, "this process may open 44 files (ulimit -n), and needs 44 for the Redis servers and itself, and one for each client")

	s := (&served{process: within(64, "--state", filepath.Join(t.TempDir(), "state")), t: t}).start()
	assert.Contains(t, s.stderr.String(), "redlock: --max-connections is 20, not 10000: this process may open 64 files (ulimit -n), and keeps 44")
	s.take("a") // served by the first daemon
	for range 100 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.address, "http://"))
		tr.NoError(t, err)
		defer c.Close()
	}
	s.take("b")
	assert.Eventually(t, func() bool {
		return strings.Contains(s.ask("GET", "/metrics", "").body, "\nredlock_serve_connections 20\n")
	}, time.Minute, 10*time.Millisecond, "as soon as it has accepted them")
	assert.NotContains(t, s.stderr.String(), "cannot connect")
	assert.Zero(t, s.stop(), s.stderr.String())
}

// A full is a listener of a process that has reached its limit of open files.
type full struct{ net.Listener }

func (full) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// TestServeLogsFailedAccepts: serve does so once a minute.
func TestServeLogsFailedAccepts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said, read := &textLog{}, make(chan struct{})
		c := &connections{Listener: full{}, log: func(text string) {
			<-read // the reader of the log hangs
			said.add(text)
		}}
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) { // as http.Server does
			_, err := c.Accept()
			assert.ErrorIs(t, err, syscall.EMFILE)
		}
		close(read)
		synctest.Wait()
		assert.Equal(t, strings.Repeat("clients cannot connect: accept: accept4: too many open files\n", 3), said.String())
	})
}

// TestServeOutlivesTheReaderOfItsLog: serve drops log lines that it cannot write, and its clients
// keep their locks.
func TestServeOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "serve", "-v", "--listen", "127.0.0.1:0")
	p.Stderr = nil
	log, err := p.StderrPipe()
	tr.NoError(t, err)
	tr.NoError(t, p.Start())
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	text := ""
	for buf := make([]byte, 4096); !servingAt.MatchString(text); {
		n, err := log.Read(buf)
		tr.NoError(t, err, text)
		text += string(buf[:n])
	}
	tr.NoError(t, log.Close())
	s := &served{process: p, t: t, address: servingAt.FindStringSubmatch(text)[1], client: &http.Client{Timeout: endless}}
	defer s.client.CloseIdleConnections()
	for _, name := range []string{"a", "b"} {
		lease := s.take(name).Lease
		assert.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+lease, "").status)
	}
}

// TestHangupDoesNotEndServe: SIGHUP arrives while serve reads its rights, here from a slow pipe.
func TestHangupDoesNotEndServe(t *testing.T) {
	t.Parallel()
	rights := filepath.Join(t.TempDir(), "rights")
	tr.NoError(t, syscall.Mkfifo(rights, 0o600))
	s := &served{process: command(t, startFleet(t, fleet.Embedded, 3).URLs(), "serve", "--listen", "127.0.0.1:0", "--tokens", rights), t: t}
	s.begin(t)
	pipe, err := os.OpenFile(rights, os.O_WRONLY, 0) // opened when serve has opened its end
	tr.NoError(t, err)
	s.signal(t, syscall.SIGHUP)
	time.Sleep(200 * time.Millisecond) // until it has arrived
	s.signal(t, syscall.SIGHUP)
	_, err = fmt.Fprintf(pipe, "- {label: a, sha256: [%x]}\n", sha256.Sum256([]byte("a-token-of-a-client")))
	tr.NoError(t, errors.Join(err, pipe.Close()))
	s.says(servingAt.String())
	s.says("redlock: SIGHUP: read the rights again")
	s.signal(t, syscall.SIGTERM)
	assert.Zero(t, s.code(t), s.stderr.String())
}

// TestSignalEndsServeAfterAHangup: SIGTERM ends serve even if the reader of its log hangs.
func TestSignalEndsServeAfterAHangup(t *testing.T) {
	t.Parallel()
	p := command(t, startFleet(t, fleet.Embedded, 3).URLs(), "serve", "--listen", "127.0.0.1:0")
	log, stderr, err := os.Pipe()
	tr.NoError(t, err)
	p.Stderr = stderr
	tr.NoError(t, p.Start())
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	text := ""
	for buf := make([]byte, 4096); !servingAt.MatchString(text); {
		n, err := log.Read(buf)
		tr.NoError(t, err, text)
		text += string(buf[:n])
	}
	var written atomic.Int64
	var filling sync.WaitGroup
	filling.Go(func() {
		for {
			n, err := stderr.Write([]byte("full\n"))
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { log.Close(); filling.Wait(); stderr.Close() })
	eventually(t, "the pipe is full", func() bool {
		before := written.Load()
		time.Sleep(100 * time.Millisecond)
		return before > 0 && before == written.Load()
	})
	p.signal(t, syscall.SIGHUP)
	time.Sleep(200 * time.Millisecond)
	p.signal(t, syscall.SIGTERM)
	assert.Zero(t, p.code(t))
}
