// Package onservers runs the examples' tests on servers of each kind that can be had.
package onservers

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// Run runs a test on five servers within the process, and on five processes of redis-server.
func Run(t *testing.T, test func(t *testing.T, urls []string)) {
	t.Parallel()
	for kind, opts := range map[fleet.Kind]fleet.Options{
		fleet.Embedded: {},
		fleet.Process:  {Volatile: true}, // none is restarted
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := need.Servers(t, kind, opts)
			test(t, f.URLs())
		})
	}
}

// Unreachable returns the URLs of five servers that are down.
func Unreachable(t *testing.T) (urls []string) {
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		urls = append(urls, "redis://"+l.Addr().String())
	}
	return urls
}
