// Package hash draws by lot what must come out alike in every process and every run.
package hash

// Basis is where Text begins.
const Basis uint64 = 0xcbf29ce484222325

// Text is FNV-1a: h continued by text. Its high bits hardly change with the last bytes, so
// what is to be spread evenly needs Mix as well.
func Text(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Mix is the output function of SplitMix64: it spreads numbers that differ in one bit all
// over the range.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
