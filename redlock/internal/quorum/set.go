package quorum

import "math/bits"

// MaxNodes is the size of a Set. Seven nodes are many for a quorum lock.
const MaxNodes = 64

// A Set is a set of nodes by their index.
type Set uint64

// All is the set of n nodes.
func All(n int) Set { return 1<<n - 1 }

// Of is the set of node i alone.
func Of(i int) Set { return 1 << i }

func (s *Set) Add(i int)     { *s |= 1 << i }
func (s *Set) Remove(i int)  { *s &^= 1 << i }
func (s Set) Has(i int) bool { return s&(1<<i) != 0 }
func (s Set) Size() int      { return bits.OnesCount64(uint64(s)) }
