package keys

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// GroupOf returns the index of the group of a key, the same for clients and tools. Each group
// computes a number for the key, and the highest number wins (rendezvous hashing). A new group
// therefore takes its share of the keys from all others, and no other key moves.
func GroupOf(names []string, key string) (of int) {
	var highest uint64
	for i, name := range names {
		n := Mix(Hash(Hash(Hash(Basis, name), "\x00"), key))
		if i == 0 || cmp.Or(cmp.Compare(n, highest), cmp.Compare(name, names[of])) > 0 {
			of, highest = i, n
		}
	}
	return of
}

// Groups maps the name of each group to the names of its servers.
type Groups map[string][]string

// standbys matches the standbys in the name of a server, which package pool appends to the address.
var standbys = regexp.MustCompile(`\+[^/]*`)

// Hash returns a short name for the groups. The clients of one group write it into the records of
// the group's servers. It does not depend on the order of the groups or their servers, or on the
// standbys of a server, which can change while clients run.
func (m Groups) Hash(group string) string {
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
