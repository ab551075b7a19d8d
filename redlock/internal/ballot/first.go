package ballot

import (
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// First draws one of the nodes that are not in avoid, or -1 if there is none: by lot, but the same in all
// processes, whatever order they list the nodes in, and each node for about as many keys.
func First(nodes []protocol.Node, key string, avoid quorum.Set) int {
	best, most := -1, uint64(0)
	for i, n := range nodes {
		if avoid.Has(i) {
			continue
		}
		if lot := hash.Mix(hash.Text(hash.Text(hash.Basis, n.String()), key)); best < 0 || lot > most {
			best, most = i, lot
		}
	}
	return best
}

// First returns the node that is to be asked first for key. It avoids those that are bad, until all are,
// and those that are late, as long as there are others.
func (v *Voters) First(key string, bad *quorum.Set, late quorum.Set) int {
	if *bad == v.All() {
		*bad = 0
	}
	if node := First(v.nodes, key, *bad|late); node >= 0 {
		return node
	}
	return First(v.nodes, key, *bad)
}
