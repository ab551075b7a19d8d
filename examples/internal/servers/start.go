package servers

import (
	"context"
	"strings"

	"github.com/redquorum/redquorum/internal/fleet"
)

// start returns the URLs that nodes lists, or those of five new servers, which
// stop ends.
func start(ctx context.Context, nodes string) (urls []string, stop func(), err error) {
	kind, opts := fleet.Embedded, fleet.Options{}
	if nodes != "" {
		kind, opts.URLs = fleet.Addrs, strings.Split(nodes, ",")
	}
	f, err := fleet.Start(ctx, kind, opts)
	if err != nil {
		return nil, nil, err
	}
	return f.URLs(), func() { f.Close() }, nil
}
