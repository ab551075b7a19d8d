package redlock

import "math/bits"

// maxNodes is the size of a nodeSet. Seven nodes are many for a quorum lock.
const maxNodes = 64

// A nodeSet is a set of nodes by their index.
type nodeSet uint64

// allNodes is the set of n nodes.
func allNodes(n int) nodeSet { return 1<<n - 1 }

func (s *nodeSet) add(i int)     { *s |= 1 << i }
func (s *nodeSet) remove(i int)  { *s &^= 1 << i }
func (s nodeSet) has(i int) bool { return s&(1<<i) != 0 }
func (s nodeSet) size() int      { return bits.OnesCount64(uint64(s)) }
