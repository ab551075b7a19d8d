package redlock

import (
	"crypto/rand"
	"encoding/hex"
)

// newValue draws the value that marks a key as ours: 160 random bits, twice
// what keeps two owners apart for ever, in hexadecimal so that it can be read
// in redis-cli and by clients that take values for text.
func newValue() string {
	var raw [20]byte
	var text [2 * len(raw)]byte
	rand.Read(raw[:]) // never fails (crypto/rand, since Go 1.24)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}
