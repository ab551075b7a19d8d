//go:build unix

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
)

// A pairFiles has the files of a certificate and its key. Tests replace them.
type pairFiles struct {
	t         *testing.T
	cert, key string
}

func newPairFiles(t *testing.T) pairFiles {
	dir := t.TempDir()
	return pairFiles{t, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

func (f pairFiles) writeCert(pair tls.Certificate) {
	f.t.Helper()
	tr.NoError(f.t, os.WriteFile(f.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
}

func (f pairFiles) writeKey(pair tls.Certificate) {
	f.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	tr.NoError(f.t, err)
	tr.NoError(f.t, os.WriteFile(f.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}

func (f pairFiles) write(pair tls.Certificate) {
	f.t.Helper()
	f.writeCert(pair)
	f.writeKey(pair)
}

// TestFileWithTheSameTimeAndSizeIsReadAgain.
func TestFileWithTheSameTimeAndSizeIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	tr.NoError(t, os.WriteFile(file, []byte("the-token-of-before\n"), 0o600))
	was, err := os.Stat(file)
	tr.NoError(t, err)
	s := &entrance{cli: &cli{}, tokenFile: file}
	tokens, err := s.rights()
	tr.NoError(t, err)
	isKnown := func(token string) bool { return tokens.Current().OfToken(token) != nil }
	assert.True(t, isKnown("the-token-of-before"))

	tr.NoError(t, os.WriteFile(file, []byte("the-token-behind-it"), 0o600))
	tr.NoError(t, os.Chtimes(file, was.ModTime(), was.ModTime()))
	assert.True(t, isKnown("the-token-behind-it"))
	assert.False(t, isKnown("the-token-of-before"))
	tr.NoError(t, os.WriteFile(file, []byte("the-token-behind-it\r\nand-another-token\n"), 0o600))
	assert.True(t, isKnown("the-token-behind-it"))
	assert.True(t, isKnown("and-another-token"))
}

// A tlsServer is a redis-server that requires client certificates.
type tlsServer struct {
	t    *testing.T
	port int
	end  func() // of the process
}

// startTLSServer starts a server whose certificate and authority are in files.
func startTLSServer(t *testing.T, files pairFiles) *tlsServer {
	t.Helper()
	s := &tlsServer{t: t, end: func() {}}
	tr.NoError(t, fleet.Options{}.OnPort(0, func(free int) error {
		l, err := net.Listen("tcp", fleet.Loopback(free))
		if err != nil {
			return fleet.ErrPortTaken
		}
		s.port = free
		return l.Close()
	}))
	t.Cleanup(func() {
		s.end()
		fleet.ReleasePort(s.port)
	})
	s.restart(files)
	return s
}

// restart restarts the server with other files. It then has no keys.
func (s *tlsServer) restart(files pairFiles) {
	s.t.Helper()
	s.end()
	f, err := fleet.Start(s.t.Context(), fleet.Process, fleet.Options{Nodes: 1, Arguments: []string{
		"--bind", "127.0.0.1", "--port", "0", "--save", "", "--dir", s.t.TempDir(),
		"--tls-port", strconv.Itoa(s.port), "--tls-cert-file", files.cert, "--tls-key-file", files.key, "--tls-ca-cert-file", files.cert}})
	tr.NoError(s.t, err)
	s.end = func() { f.Close() }
}

func (s *tlsServer) url() string { return "rediss://" + fleet.Loopback(s.port) }

// has reports whether the server answers to a client with this certificate, and has the keys.
func (s *tlsServer) has(pair tls.Certificate, keys ...any) bool {
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	_, dial, err := pool.Dialer(s.url(), pool.DialTimeout(longEnough), pool.StallTimeout(longEnough), pool.TLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}))
	tr.NoError(s.t, err)
	c, err := dial(s.t.Context())
	if err != nil {
		return false
	}
	defer c.Close()
	n, err := redis.Int(c.Do("EXISTS", append(keys, "what it does not have")...))
	return err == nil && n == len(keys)
}

// TestLocksSurviveANewCertificateAuthority: first the certificates and authorities of the clients
// are replaced. Then the servers restart one by one with certificates of the new authority, and
// trust only this authority.
func TestLocksSurviveANewCertificateAuthority(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	before, after := certificate(t), certificate(t)
	ours, old, next := newPairFiles(t), newPairFiles(t), newPairFiles(t)
	ours.write(before)
	old.write(before)
	next.write(after)
	server, err := fleet.Server()
	tr.NoError(t, err)
	if out, _ := exec.CommandContext(t.Context(), server, "--port", "0", "--tls-port", "1").CombinedOutput(); !strings.Contains(string(out), "Failed to configure TLS") {
		t.Skip("this server was built without TLS")
	}
	var servers []*tlsServer
	var urls []string
	for range 3 {
		s := startTLSServer(t, old)
		servers, urls = append(servers, s), append(urls, s.url())
	}
	for _, s := range servers {
		eventually(t, "a server is there", func() bool { return s.has(before) })
	}
	secure := func(args ...string) *process {
		p := command(t, urls, args...)
		p.Env = append(p.Env, "REDLOCK_TLS_CA="+ours.cert, "REDLOCK_TLS_CERT="+ours.cert, "REDLOCK_TLS_KEY="+ours.key)
		return p
	}
	const ttl = "12s" // a renewal every 4 s
	h := &holdProcess{process: secure("hold", "--ttl", ttl, "--stop-within", "0s", "held")}
	h.input, err = h.StdinPipe()
	tr.NoError(t, err)
	h.begin(t)
	h.reads(t, "held")
	socket := filepath.Join(t.TempDir(), "s")
	daemon := (&served{process: secure("serve", "--ttl", ttl, "--listen", "unix:"+socket), t: t}).start()
	lease := daemon.take("served").Lease
	working := filepath.Join(t.TempDir(), "working")
	tr.NoError(t, os.WriteFile(working, nil, 0o600))
	job := secure("run", "--wait", "1m", "--ttl", ttl, "--kill-after", "0s", "ran", "--", "sh", "-c", "while [ -e "+working+" ]; do sleep 0.05; done").begin(t)
	allHeld := func(s *tlsServer, pair tls.Certificate) {
		t.Helper()
		eventually(t, "a server has all locks", func() bool {
			a := daemon.ask("GET", "/v1/locks/"+lease, "") // keeps the session alive
			tr.Positive(t, a.ValidFor, "%s %s", a.body, daemon.stderr.String())
			return s.has(pair, "held", "served", "ran")
		})
	}
	for _, s := range servers {
		allHeld(s, before)
	}

	ours.write(after)
	for _, s := range servers {
		s.restart(next)
		allHeld(s, after)
	}
	tr.NoError(t, h.input.Close())
	assert.Zero(t, h.code(t), "%s", h.stderr)
	tr.NoError(t, os.Remove(working))
	assert.Zero(t, job.code(t), "%s", job.stderr)
	assert.NotEqual(t, lease, daemon.take("another").Lease)
	assert.Zero(t, daemon.stop())
}

// TestServeReadsItsFilesAgain: certificates, authorities of clients and tokens are replaced while a client
// holds a lock.
func TestServeReadsItsFilesAgain(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	before, after := certificate(t), certificate(t)
	files := newPairFiles(t)
	files.write(before)
	tokenFile, authorities := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "ca.crt")
	write := func(file, text string) {
		t.Helper()
		tr.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	trust := func(pairs ...tls.Certificate) {
		t.Helper()
		var text []byte
		for _, pair := range pairs {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})...)
		}
		write(authorities, string(text))
	}
	trust(before)
	write(tokenFile, "the-token-of-before\n")
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--ttl", "1m", "--cert", files.cert, "--key", files.key, "--client-ca", authorities, "--token-file", tokenFile)
	// clientOf returns a client that opens a connection for each request, and resumes TLS sessions
	// if possible.
	clientOf := func(server, own tls.Certificate) *http.Client {
		roots := x509.NewCertPool()
		roots.AddCert(server.Leaf)
		return &http.Client{Timeout: endless, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{own}, ClientSessionCache: tls.NewLRUClientSessionCache(0),
		}}}
	}
	bearing := func(token string) *served {
		s.headers = map[string]string{"Authorization": "Bearer " + token}
		return s
	}
	refused := func(client *http.Client) {
		t.Helper()
		_, err := client.Get(s.address + "/healthz")
		assert.ErrorContains(t, err, "tls: ")
	}
	first := clientOf(before, before)
	s.client = first
	lease := "/v1/locks/" + bearing("the-token-of-before").take("a").Lease
	holds := func(token string) {
		t.Helper()
		a := bearing(token).ask("GET", lease, "")
		assert.Equal(t, http.StatusOK, a.status, a.body)
		assert.Positive(t, a.ValidFor)
	}

	write(tokenFile, "the-token-behind-it\nthe-token-of-before\n")
	holds("the-token-of-before")
	holds("the-token-behind-it")
	write(tokenFile, "the-token-behind-it\n")
	holds("the-token-behind-it")
	assert.Equal(t, http.StatusUnauthorized, bearing("the-token-of-before").ask("GET", lease, "").status)

	trust(before, after)
	s.client = clientOf(before, after)
	holds("the-token-behind-it")
	s.client = first
	holds("the-token-behind-it")
	trust(after)
	refused(first)
	refused(clientOf(before, before))
	s.client = clientOf(before, after)
	holds("the-token-behind-it")

	files.writeCert(after)
	holds("the-token-behind-it")
	assert.Contains(t, s.stderr.String(), "redlock: --cert: "+files.cert+" and "+files.key+": private key does not match public key; the content that was read before stays in use\n")
	files.writeKey(after)
	refused(s.client)
	s.client = clientOf(after, after)
	holds("the-token-behind-it")

	assert.Equal(t, 1, strings.Count(s.stderr.String(), "that was read before stays in use"))
	write(tokenFile, "short")
	write(authorities, "")
	tr.NoError(t, os.Remove(files.cert))
	write(files.key, "secret")
	for range 3 {
		holds("the-token-behind-it")
	}
	assert.Equal(t, 4, strings.Count(s.stderr.String(), "that was read before stays in use"), s.stderr.String())
	assert.NotRegexp(t, "the-token|short|secret", s.stderr.String())
}

// TestServerBehindATunnelHasItsOwnCertificateName: the URL names the end of the tunnel.
func TestServerBehindATunnelHasItsOwnCertificateName(t *testing.T) {
	t.Parallel()
	pair := certificate(t) // of 127.0.0.1
	files := newPairFiles(t)
	files.write(pair)
	asked := make(chan string, 10)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		asked <- hello.ServerName
		return &pair, nil
	}})
	tr.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.(*tls.Conn).HandshakeContext(t.Context())
			c.Close()
		}
	}()
	code, out, stderr := redlockCommand(t, "status", "--dial-timeout", longEnough.String(), "--node", "rediss://"+l.Addr().String(), "--tls-ca", files.cert, "--tls-server-name", "redis.internal")
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, out+stderr, "wanted to match redis.internal")
	assert.Equal(t, "redis.internal", <-asked)
}
