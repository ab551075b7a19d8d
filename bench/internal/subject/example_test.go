package subject_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// openAs returns nodes with the options of a rueidis client. docs/ADAPTERS.md shows this code. It
// is in this module because this module requires rueidis.
func openAs(option rueidis.ClientOption, urls []string) ([]pool.Node, error) {
	opts := []pool.Option{pool.Credentials(func(context.Context, string) (user, password string, err error) {
		return option.Username, option.Password, nil
	})}
	if option.TLSConfig != nil { // for rediss:// URLs
		opts = append(opts, pool.TLS(option.TLSConfig))
	}
	nodes, err := pool.OpenWith(urls, opts...) // redis://host:port/database, from InitAddress and SelectDB
	return nodes, err
}

// TestOptionsOfRueidisWithoutTLS: the code of the page accepts options without TLS, too.
func TestOptionsOfRueidisWithoutTLS(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireUserAuth("locks", "secret")
	nodes, err := openAs(rueidis.ClientOption{Username: "locks", Password: "secret"}, []string{"redis://" + server.Addr() + "/1"})
	require.NoError(t, err)
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.NodeTimeout(8*time.Second))
	require.NoError(t, err)
	defer locker.Close()
	require.NoError(t, locker.Do(t.Context(), "x", func(context.Context) error { return nil }))
}

// A program that uses rueidis passes the options of its clients to the nodes.
func Example_rueidis() {
	authority := httptest.NewTLSServer(nil) // for its certificate
	defer authority.Close()
	server := miniredis.NewMiniRedis()
	server.RequireUserAuth("locks", "secret")
	if err := server.StartTLS(&tls.Config{Certificates: authority.TLS.Certificates}); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())

	nodes, err := openAs(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, SelectDB: 1, TLSConfig: &tls.Config{RootCAs: roots},
		Username: "locks", Password: "secret",
	}, []string{"rediss://" + server.Addr() + "/1"})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.NodeTimeout(8*time.Second)) // a new server then votes at once, and a busy machine in time
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "invoice:42", func(context.Context) error {
		fmt.Println("in the database:", server.DB(1).Exists("invoice:42"))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// in the database: true
	// error: <nil>
}
