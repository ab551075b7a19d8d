package keys

// Basis is the initial value for Hash.
const Basis uint64 = 0xcbf29ce484222325

// Hash continues the FNV-1a hash h with text. The last bytes hardly change its high bits, so use
// Mix as well to distribute values evenly.
func Hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Mix is the output function of SplitMix64. It distributes numbers that differ in one bit over the
// whole range.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
