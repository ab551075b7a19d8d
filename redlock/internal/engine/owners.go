package engine

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/internal/protocol"
)

// owned are the nodes of all Lockers in this process, by nodeKey. Each Locker closes its own nodes.
var (
	ownedMu sync.Mutex
	owned   = map[protocol.Node]struct{}{}
)

// Own registers the nodes, and returns the nodes that had no owner. The error names the first node
// that had one.
func Own(nodes []protocol.Node) (own []protocol.Node, err error) {
	ownedMu.Lock()
	defer ownedMu.Unlock()
	for i, n := range nodes {
		key := nodeKey(n)
		if _, taken := owned[key]; !taken {
			if key == nil || !slices.ContainsFunc(own, func(o protocol.Node) bool { return nodeKey(o) == key }) {
				own = append(own, n)
			}
		} else if err == nil {
			err = fmt.Errorf("redlock: node %d, %s, belongs to another Locker already, which would close it: open nodes for each Locker", i+1, n)
		}
	}
	for _, n := range own {
		if key := nodeKey(n); key != nil {
			owned[key] = struct{}{}
		}
	}
	return own, err
}

// Disown unregisters the nodes.
func Disown(nodes []protocol.Node) {
	ownedMu.Lock()
	defer ownedMu.Unlock()
	for _, n := range nodes {
		delete(owned, nodeKey(n))
	}
}

// nodeKey returns n if it is a pointer, and nil otherwise: two equal values may be two nodes.
func nodeKey(n protocol.Node) protocol.Node {
	if t := reflect.TypeOf(n); t == nil || t.Kind() != reflect.Pointer || t.Elem().Size() == 0 {
		return nil
	}
	return n
}
