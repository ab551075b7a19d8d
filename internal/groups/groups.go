// Package groups spreads names over groups of servers. Clients and tools use the same groups, so
// each of them finds the same group for a name.
package groups

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/redquorum/redquorum/internal/hash"
)

// Of returns the index of the group that has a key. Each group draws a number for the key, and the
// highest number wins (rendezvous hashing). So a new group takes its share of the keys from all
// others, and no other key moves.
func Of(names []string, key string) (of int) {
	var highest uint64
	for i, name := range names {
		n := hash.Mix(hash.Text(hash.Text(hash.Text(hash.Basis, name), "\x00"), key))
		if i == 0 || cmp.Or(cmp.Compare(n, highest), cmp.Compare(name, names[of])) > 0 {
			of, highest = i, n
		}
	}
	return of
}

// A Map has the names of the servers of each group, by the group's name.
type Map map[string][]string

// standbys finds those in the name of a server, which package pool puts behind its address.
var standbys = regexp.MustCompile(`\+[^/]*`)

// Hash returns a short name of the map, as the clients of one of its groups write it into the
// records of the group's servers. Neither the order of the groups nor that of their servers matters,
// nor which standbys a server has: these can change while clients run.
func (m Map) Hash(group string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q", group)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		var servers []string
		for _, server := range m[name] {
			servers = append(servers, standbys.ReplaceAllString(server, ""))
		}
		slices.Sort(servers)
		fmt.Fprintf(h, "\n%q %q", name, servers)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}
