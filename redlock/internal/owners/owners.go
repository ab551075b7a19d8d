// Package owners knows which nodes belong to a Locker of this process, because each Locker closes its own.
package owners

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/internal/protocol"
)

var (
	mu    sync.Mutex
	owned = map[protocol.Node]struct{}{} // by Key
)

// Claim enters the nodes, and returns those that had no owner. The error names the first that had one.
func Claim(nodes []protocol.Node) (own []protocol.Node, err error) {
	mu.Lock()
	defer mu.Unlock()
	for i, n := range nodes {
		key := Key(n)
		if _, taken := owned[key]; !taken {
			if key == nil || !slices.ContainsFunc(own, func(o protocol.Node) bool { return Key(o) == key }) {
				own = append(own, n)
			}
		} else if err == nil {
			err = fmt.Errorf("redlock: node %d, %s, belongs to another Locker already, which would close it: open nodes for each Locker", i+1, n)
		}
	}
	for _, n := range own {
		if key := Key(n); key != nil {
			owned[key] = struct{}{}
		}
	}
	return own, err
}

// Disclaim takes the nodes out again.
func Disclaim(nodes []protocol.Node) {
	mu.Lock()
	defer mu.Unlock()
	for _, n := range nodes {
		delete(owned, Key(n))
	}
}

// Key returns n if it is a pointer, and nil otherwise: two equal values may be two nodes.
func Key(n protocol.Node) protocol.Node {
	if t := reflect.TypeOf(n); t == nil || t.Kind() != reflect.Pointer || t.Elem().Size() == 0 {
		return nil
	}
	return n
}
