package pool_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A program passes the URLs of all its servers, which are independent of each other: three or five.
func ExampleOpen() {
	urls, closeAll := servers(3)
	defer closeAll()

	nodes, err := pool.Open(urls...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("error:", useLock(nodes))
	// Output:
	// holding invoice:42
	// error: <nil>
}

// NetDial reaches servers behind a tunnel or a proxy. The URLs name the servers as seen from the
// far end, and dial connects through the tunnel.
func ExampleNetDial() {
	urls, closeAll := servers(1)
	defer closeAll()
	tunnel := strings.TrimPrefix(urls[0], "redis://")

	var d net.Dialer
	nodes, err := pool.OpenWith([]string{"redis://redis.internal:6379"},
		pool.NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
			fmt.Println("to", address)
			return d.DialContext(ctx, "tcp", tunnel)
		}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("error:", useLock(nodes))
	// Output:
	// to redis.internal:6379
	// holding invoice:42
	// error: <nil>
}

// FromDial takes the function with which a program already makes redigo connections, such as the
// DialContext of a redis.Pool.
func ExampleFromDial() {
	urls, closeAll := servers(1)
	defer closeAll()

	p := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialURLContext(ctx, urls[0])
	}}
	node, err := pool.FromDial("redis-1", p.DialContext)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("error:", useLock([]protocol.Node{node}))
	// Output:
	// holding invoice:42
	// error: <nil>
}

// TLS is for rediss:// URLs of servers with certificates from a private authority.
func ExampleTLS() {
	authority := httptest.NewTLSServer(nil) // for its certificate
	defer authority.Close()
	server := miniredis.NewMiniRedis()
	if err := server.StartTLS(&tls.Config{Certificates: authority.TLS.Certificates}); err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	nodes, err := pool.OpenWith([]string{"rediss://" + server.Addr()}, pool.TLS(&tls.Config{RootCAs: roots}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("error:", useLock(nodes))
	// Output:
	// holding invoice:42
	// error: <nil>
}

// The memory guard would prevent the new server from voting for one TTL. The server lives as long
// as the test and forgets nothing, so it needs no guard.
func ExampleOpen_miniredis() {
	locker, closeAll := onMiniredis(miniredis.NewMiniRedis(), redlock.MemoryGuard(false))
	defer closeAll()
	err := locker.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		_, err := locker.TryAcquire(ctx, "invoice:42")
		fmt.Println("another try is refused:", errors.Is(err, redlock.ErrHeld))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// another try is refused: true
	// error: <nil>
}

// With ClockTTL, TTLs run as on a real server, and the memory guard works: the first Acquire waits
// for one TTL.
func ExampleOpen_miniredisClockTTL() {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	locker, closeAll := onMiniredis(server, redlock.TTL(2*time.Second), redlock.NodeTimeout(time.Second))
	defer closeAll()
	lock, err := locker.Acquire(context.Background(), "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(context.Background())
	fmt.Println("acquired", lock.Name())
	// Output:
	// acquired invoice:42
}

// FastForward makes the lock of a dead holder expire at once.
func ExampleOpen_miniredisFastForward() {
	server := miniredis.NewMiniRedis()
	locker, closeAll := onMiniredis(server, redlock.MemoryGuard(false))
	defer closeAll()
	server.Set("invoice:42", "the value of a dead holder")
	server.SetTTL("invoice:42", 10*time.Second)

	_, err := locker.TryAcquire(context.Background(), "invoice:42")
	fmt.Println("held:", errors.Is(err, redlock.ErrHeld))
	server.FastForward(10 * time.Second)
	lock, err := locker.TryAcquire(context.Background(), "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", lock.Release(context.Background()))
	// Output:
	// held: true
	// released: <nil>
}

// servers starts n servers in this process.
func servers(n int) (urls []string, closeAll func()) {
	var started []*miniredis.Miniredis
	for range n {
		s := miniredis.NewMiniRedis()
		if err := s.Start(); err != nil {
			log.Fatal(err)
		}
		started = append(started, s)
		urls = append(urls, "redis://"+s.Addr())
	}
	return urls, func() {
		for _, s := range started {
			s.Close()
		}
	}
}

// useLock acquires a lock, and closes the nodes. A real program keeps its Locker.
func useLock(nodes []protocol.Node) error {
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.TTL(time.Hour), redlock.NodeTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(context.Background(), "invoice:42", func(context.Context) error {
		fmt.Println("holding invoice:42")
		return nil
	})
}

// onMiniredis starts the server and uses it as the only node, which is enough for a test.
func onMiniredis(server *miniredis.Miniredis, options ...redlock.LockerOption) (locker *redlock.Locker, closeAll func()) {
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	nodes, err := pool.OpenWith([]string{"redis://" + server.Addr()}, patient...)
	if err != nil {
		log.Fatal(err)
	}
	of := []redlock.LockerOption{redlock.TTL(time.Minute), redlock.NodeTimeout(20 * time.Second), redlock.Patience(time.Minute)}
	locker, err = redlock.New(nodes, append(of, options...)...)
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() {
		locker.Close()
		server.Close()
	}
}
