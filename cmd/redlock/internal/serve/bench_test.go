package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// heap returns the memory in use after garbage collection, including stacks.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees the memory that pools kept through the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// listen serves on a Unix socket. It returns a function that opens a connection and sends requests
// on it.
func dialler(b *testing.B, s *Server) func() func(what, session, body string) answer {
	socket := filepath.Join(b.TempDir(), "socket")
	listener, err := net.Listen("unix", socket)
	require.NoError(b, err)
	server := &http.Server{Handler: s}
	go server.Serve(listener)
	b.Cleanup(func() { server.Close() })
	return func() func(what, session, body string) answer {
		conn, err := net.Dial("unix", socket)
		require.NoError(b, err)
		b.Cleanup(func() { conn.Close() })
		return func(what, session, body string) (a answer) {
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nRedlock-Session: %s\r\nContent-Length: %d\r\n\r\n%s", what, session, len(body), body)
			text := make([]byte, 4096) // more than any of these answers
			n, err := conn.Read(text)
			require.NoError(b, err)
			_, text, _ = bytes.Cut(text[:n], []byte("\r\n\r\n"))
			json.Unmarshal(text, &a.session)
			json.Unmarshal(text, &a.lease)
			return a
		}
	}
}

// BenchmarkIdleSession measures the memory of a session without locks, of its connection, and of a
// stream on it. The clients are in this process and use almost no memory.
func BenchmarkIdleSession(b *testing.B) {
	_, s := start(b, Config{})
	connect := dialler(b, s)
	const n, connected = 10_000, 4_000 // a connection takes two files of this process
	for b.Loop() {
		before := heap()
		for i := range n {
			of, err := s.table.open(fmt.Sprint(i), anybody, api.SessionRequest{TTL: time.Hour.Milliseconds()}, false)
			require.NoError(b, err)
			of.leave()
		}
		b.ReportMetric(float64(heap()-before)/n, "B/session")
		sessions := s.table.all()
		asks := make([]func(string, string, string) answer, connected)
		before = heap()
		for i := range asks {
			asks[i] = connect()
			asks[i]("GET /healthz", "", "")
		}
		b.ReportMetric(float64(heap()-before)/connected, "B/connection")
		before = heap()
		for i, ask := range asks {
			ask("GET /v1/session HTTP/1.1\r\nAccept: text/event-stream\r\nX:", sessions[i].id, "")
		}
		b.ReportMetric(float64(heap()-before)/connected, "B/stream")
		for _, of := range sessions {
			of.end()
		}
	}
}

// BenchmarkLossTold deletes a lock on three of five servers. It measures the time until the client
// notices by a long poll over a Unix socket, and until the context of the library's lock ends.
func BenchmarkLossTold(b *testing.B) {
	testenv.NeedRedis(b)
	f, err := fleet.Start(b.Context(), fleet.Process, fleet.Options{Nodes: 5, Volatile: true})
	require.NoError(b, err)
	defer f.Close()
	nodes, err := pool.Open(f.URLs()...)
	require.NoError(b, err)
	locker, err := redlock.New(nodes, redlock.TTL(2*time.Second))
	require.NoError(b, err)
	defer locker.Close()
	s := New(locker, Config{TTL: 2 * time.Second})
	ask := dialler(b, s)()
	session := ask("POST /v1/sessions", "", `{"ttl_ms":60000}`).session.Session
	servers := make([]redis.Conn, 3)
	for i := range servers {
		servers[i], err = redis.DialURL(f.URLs()[i])
		require.NoError(b, err)
		defer servers[i].Close()
	}
	lose := func(name string) {
		for _, c := range servers {
			_, err := c.Do("DEL", name)
			require.NoError(b, err)
		}
	}
	var byPoll, byLibrary []time.Duration
	for b.Loop() {
		lease := ask("POST /v1/locks", session, `{"name":"a","wait_ms":10000}`).lease.Lease
		require.NotEmpty(b, lease)
		a := ask("GET /v1/session", session, "").session
		at, lost := time.Now(), make(chan bool)
		go func() { lose("a"); close(lost) }()
		for a.Leases[0].Held {
			a = ask(fmt.Sprintf("GET /v1/session?wait_ms=60000&seen=%d", a.Version), session, "").session
		}
		byPoll = append(byPoll, time.Since(at))
		<-lost
		ask("DELETE /v1/locks/"+lease, session, "")

		lock, err := locker.Acquire(b.Context(), "b")
		require.NoError(b, err)
		at = time.Now()
		lose("b")
		<-lock.Context().Done()
		byLibrary = append(byLibrary, time.Since(at))
		lock.Release(b.Context())
	}
	for what, all := range map[string][]time.Duration{"poll": byPoll, "library": byLibrary} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), what+"-p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), what+"-p99-µs")
	}
}
