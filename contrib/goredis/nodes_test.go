package goredis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/contrib/goredis"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// TestLocksExcludeLocksOfURLs: on the same three servers, locks exclude each other in both
// directions.
func TestLocksExcludeLocksOfURLs(t *testing.T) {
	t.Parallel()
	urls := startServers(t, 3)
	var clients []*redis.Client
	for _, url := range urls {
		clients = append(clients, newClient(t, optionsOf(t, url)))
	}
	nodes, err := goredis.Nodes(clients, patient...)
	ours := newLocker(t, nodes, err)
	nodes, err = pool.OpenWith(urls, patient...)
	theirs := newLocker(t, nodes, err)
	for _, pair := range [][2]*redlock.Locker{{ours, theirs}, {theirs, ours}} {
		k, err := pair[0].Acquire(t.Context(), name)
		require.NoError(t, err)
		_, err = pair[1].TryAcquire(t.Context(), name)
		require.ErrorIs(t, err, redlock.ErrHeld)
		for _, c := range clients {
			awaitValue(t, c, k)
			assert.NoError(t, c.Close(), "the Locker does without the client")
		}
		_, err = ours.TryAcquire(t.Context(), name)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, k.Release(t.Context()))
		clients = nil
	}
}

// TestSocketIsReached: the node uses the database of the client, too.
func TestSocketIsReached(t *testing.T) {
	t.Parallel()
	urls := start(t, fleet.Options{Nodes: 1, Arguments: []string{"--port", "0", "--save", ""}})
	o := &redis.Options{Addr: strings.TrimPrefix(urls[0], "unix://"), DB: 2} // the slash implies Network
	k := lock(t, on(t, o))
	assert.Equal(t, k.Value(), newClient(t, o).Get(t.Context(), name).Val())
}

func TestTLSComesFromTheClient(t *testing.T) {
	t.Parallel()
	authority := httptest.NewTLSServer(nil) // provides a certificate that is valid for 127.0.0.1 and example.com
	defer authority.Close()
	server := miniredis.NewMiniRedis()
	require.NoError(t, server.StartTLS(&tls.Config{Certificates: authority.TLS.Certificates}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())

	lock(t, on(t, &redis.Options{Addr: server.Addr(), TLSConfig: &tls.Config{RootCAs: roots}}))
	stranger := on(t, &redis.Options{Addr: server.Addr(), TLSConfig: &tls.Config{RootCAs: roots, ServerName: "example.org"}})
	_, err := stranger.TryAcquire(t.Context(), name)
	require.ErrorContains(t, err, "example.org")
	_, err = on(t, &redis.Options{Addr: server.Addr()}).TryAcquire(t.Context(), name)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
}

// TestEachServerUsesTheDialerOfItsClient: the dialer gets the client's network and address.
func TestEachServerUsesTheDialerOfItsClient(t *testing.T) {
	t.Parallel()
	urls := startServers(t, 3)
	var clients []*redis.Client
	for i, address := range []string{"Redis-1.internal:7000", "proxy", ":1"} {
		o := optionsOf(t, urls[i])
		at := o.Addr
		o.Network, o.Addr = "tcp4", address
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			assert.Equal(t, "tcp4", network)
			assert.Equal(t, address, addr)
			return new(net.Dialer).DialContext(ctx, network, at)
		}
		clients = append(clients, newClient(t, o))
	}
	nodes, err := goredis.Nodes(clients, patient...)
	k := lock(t, newLocker(t, nodes, err))
	for _, url := range urls {
		awaitValue(t, newClient(t, optionsOf(t, url)), k)
	}
}

// A keeper holds the renewable credentials of a user, and implements each kind of provider of
// go-redis.
type keeper struct {
	mu             sync.Mutex
	user, password string
	err            error
	subscribers    int
}

func (k *keeper) set(user, password string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.user, k.password, k.err = user, password, err
}

func (k *keeper) withContext(context.Context) (user, password string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.user, k.password, k.err
}

func (k *keeper) plain() (user, password string) {
	user, password, _ = k.withContext(context.Background())
	return user, password
}

func (k *keeper) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, nil, k.err
	}
	k.subscribers++
	return auth.NewBasicCredentials(k.user, k.password), func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.subscribers--
		return assert.AnError // the credentials are usable in spite of the error
	}, nil
}

// A source is a field of redis.Options that provides credentials.
type source struct {
	name string
	put  func(*redis.Options, *keeper)
}

// sources are ordered so that each takes precedence over the ones above it.
var sources = []source{
	{"Password", func(o *redis.Options, k *keeper) { o.Username, o.Password = k.plain() }},
	{"CredentialsProvider", func(o *redis.Options, k *keeper) { o.CredentialsProvider = k.plain }},
	{"CredentialsProviderContext", func(o *redis.Options, k *keeper) { o.CredentialsProviderContext = k.withContext }},
	{"StreamingCredentialsProvider", func(o *redis.Options, k *keeper) { o.StreamingCredentialsProvider = k }},
}

// startLocked returns a server that requires a password: "alone" for the default user, "first" for
// the user locks. admin may change them.
func startLocked(t *testing.T) (admin *redis.Client, o redis.Options) {
	t.Helper()
	o = *optionsOf(t, startServers(t, 1)[0])
	open := newClient(t, &o)
	for _, rule := range [][]any{
		{"admin", "on", ">admin", "~*", "+@all"}, {"locks", "on", ">first", "~*", "+@all"}, {"default", "resetpass", ">alone"},
	} {
		require.NoError(t, open.Do(t.Context(), append([]any{"ACL", "SETUSER"}, rule...)...).Err())
	}
	its := o
	its.Username, its.Password = "admin", "admin"
	return newClient(t, &its), o
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	for i, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			admin, o := startLocked(t)
			for _, before := range sources[:i] {
				before.put(&o, &keeper{user: "locks", password: "wrong"})
			}
			k := &keeper{user: "locks", password: "first"}
			s.put(&o, k)
			held := lock(t, on(t, &o))
			assert.Equal(t, held.Value(), admin.Get(t.Context(), name).Val())
			assert.Contains(t, admin.ClientList(t.Context()).Val(), "user=locks")
			assert.Zero(t, k.subscribers, "a provider that nobody else uses is at rest")
		})
	}
}

func TestPasswordWithoutAUser(t *testing.T) {
	t.Parallel()
	_, o := startLocked(t)
	o.Password = "alone"
	lock(t, on(t, &o))
}

// TestNextConnectionUsesNewCredentials: a held lock stays held.
func TestNextConnectionUsesNewCredentials(t *testing.T) {
	t.Parallel()
	for _, s := range sources[1:] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			admin, o := startLocked(t)
			k := &keeper{user: "locks", password: "first"}
			s.put(&o, k)
			held := lock(t, on(t, &o))

			k.set("locks", "second", nil)
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "locks", "resetpass", ">second").Err())
			require.NoError(t, held.Extend(t.Context()), "the connection goes on")
			require.NotZero(t, admin.ClientKillByFilter(t.Context(), "USER", "locks").Val())
			require.Eventually(t, func() bool { return held.Extend(t.Context()) == nil }, failAfter, tick)
			assert.NoError(t, held.Context().Err())
		})
	}
}

func TestProviderErrorIsReportedAndTemporary(t *testing.T) {
	t.Parallel()
	for _, s := range sources[2:] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			_, o := startLocked(t)
			k := &keeper{err: errors.New("the vault is sealed")}
			s.put(&o, k)
			l := on(t, &o)
			_, err := l.TryAcquire(t.Context(), name)
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "the vault is sealed")
			k.set("locks", "first", nil)
			lock(t, l)
		})
	}
}

func TestWrongCredentialsAreReportedWithoutThePassword(t *testing.T) {
	t.Parallel()
	_, o := startLocked(t)
	o.Username, o.Password = "locks", "wrong"
	_, err := on(t, &o).TryAcquire(t.Context(), name)
	require.ErrorIs(t, err, pool.ErrAuth)
	assert.NotContains(t, err.Error(), "wrong")
}

func TestInvalidClientIsRefused(t *testing.T) {
	t.Parallel()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	of := func(o redis.Options) *redis.Client { o.Password = "secret"; return newClient(t, &o) }
	good := of(redis.Options{Addr: "127.0.0.1:1"})
	for what, c := range map[string]struct {
		clients []*redis.Client
		opts    []pool.Option
		says    string
	}{
		"none":             {nil, nil, "no clients"},
		"nil":              {[]*redis.Client{good, nil}, nil, "client 2 is nil"},
		"failover":         {[]*redis.Client{good, failover}, nil, "client 2 is of NewFailoverClient"},
		"twice":            {[]*redis.Client{good, of(redis.Options{Addr: "127.0.0.1:1", DB: 1})}, nil, "1 and 2 name the same server"},
		"no port":          {[]*redis.Client{of(redis.Options{Addr: "host:port"})}, nil, "client 1 has an Addr that is not host:port: pool: URL"},
		"a URL":            {[]*redis.Client{of(redis.Options{Addr: "redis://locks:secret@host:1"})}, nil, "client 1 has an Addr"},
		"a relative path":  {[]*redis.Client{of(redis.Options{Network: "unix", Addr: "a/socket"})}, nil, "absolute path"},
		"abstract socket":  {[]*redis.Client{of(redis.Options{Network: "unix", Addr: "@socket"})}, nil, "absolute path"},
		"no such database": {[]*redis.Client{of(redis.Options{Addr: "127.0.0.1:1", DB: -1})}, nil, "the database"},
		"a bad option":     {[]*redis.Client{good}, []pool.Option{pool.DialTimeout(0)}, "DialTimeout(0s)"},
	} {
		t.Run(what, func(t *testing.T) {
			nodes, err := goredis.Nodes(c.clients, c.opts...)
			require.ErrorContains(t, err, c.says)
			assert.NotContains(t, err.Error(), "secret")
			assert.Nil(t, nodes)
		})
	}
}
