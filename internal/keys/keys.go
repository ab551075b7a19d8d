// Package keys names the companions of a lock's key: the further keys that a server keeps for the
// lock.
//
// The key of a lock is the Locker's prefix followed by the lock's name. Companions are derived from
// the whole key. Clients that form the same key from different prefixes and names therefore share
// readers, tokens and queue, just as they share the lock.
//
//	job        redlock:readers:{job}    redlock:permit:3:{job}
//	app:{b}:c  redlock:readers:[app:{b}:c]
//
// In a Redis Cluster a companion is in the slot of its key, so that one script can access both. A
// server computes the slot from the text between the first { and the next }, if it is not empty,
// and otherwise from the whole key. A key without } is therefore put in braces. A key with } keeps
// its tag, and is put in brackets. (A key like a}b has no tag and cannot get one. Its companions
// are in other slots.)
//
// No two keys share a companion, because the first byte after the kind determines the format of the
// rest. All companions end with } or ], so a key made by appending text to a companion is not a
// companion.
package keys

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/internal/record"
)

// A Kind is the purpose of a companion, and its prefix.
type Kind string

// Kinds of companions, besides the slots of permits.
const (
	Readers Kind = "redlock:readers:" // readers of a lock, with the expiry of each
	Intent  Kind = "redlock:intent:"  // writer that waits for the readers
	Counter Kind = "redlock:fence:"   // highest accepted fencing token
	Queue   Kind = "redlock:queue:"   // waiters; see Seen and Call
	Mark    Kind = "redlock:once:"    // mark that outlives the lock
	Gate    Kind = permit + "gate:"   // lock of a caller that is acquiring more than one slot
	Number  Kind = permit + "of:"     // number of slots

	permit Kind = "redlock:permit:" // followed by the number of the slot and a colon
)

var kinds = []Kind{Readers, Intent, Counter, Queue, Mark, permit}

// Of returns the companion of a lock's key.
func (k Kind) Of(key string) string {
	if strings.Contains(key, "}") {
		return string(k) + "[" + key + "]"
	}
	return string(k) + "{" + key + "}"
}

// Has reports whether key has the prefix of this kind. Keys derived from companions have it, too.
func (k Kind) Has(key string) bool { return strings.HasPrefix(key, string(k)) }

// Seen returns the key next to a queue that contains the expiry of each waiter.
func Seen(queue string) string { return queue + ":seen" }

// Call returns the key that is touched to call a waiter of a queue. Scripts form it, too, because
// only they know which waiter to call.
func Call(queue, waiter string) string { return queue + ":" + waiter }

// Slot returns the key of a slot of a lock with several permits. Each slot is an exclusive lock
// with its own companions. Slot 0 has the lock's key.
func Slot(key string, slot int) string {
	if slot == 0 {
		return key
	}
	return Kind(string(permit) + strconv.Itoa(slot) + ":").Of(key)
}

// GateOf returns the key of the lock that orders the callers waiting for one of k slots.
func GateOf(key string, k int) string { return Kind(string(Gate) + strconv.Itoa(k) + ":").Of(key) }

// Slots returns the texts before and after the number of a slot in its key, except for slot 0.
func Slots(key string) (stem, tail string) { return string(permit), Kind(":").Of(key) }

// OfSlot returns the lock's key and the number of a slot from the slot's key. Any other key is slot
// 0 of itself.
func OfSlot(slot string) (key string, number int) {
	rest, _ := strings.CutPrefix(slot, string(permit))
	text, companion, _ := strings.Cut(rest, ":")
	if n, err := strconv.Atoi(text); err == nil && n > 0 && len(companion) > 2 {
		if key := companion[1 : len(companion)-1]; Slot(key, n) == slot {
			return key, n
		}
	}
	return slot, 0
}

// Probe is the key with which redlock doctor tests rights, after a Locker's prefix. Some of the
// tested commands could delete a lock or shorten its TTL, so the key must not be the key of a lock.
const Probe = "redlock:doctor:none"

// Reserved reports whether a lock with this key, or locks with this prefix, would collide with the
// keys of a Locker: a companion, or a key that a Locker or redlock doctor has once per prefix.
func Reserved(key string) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.Has(key) }) ||
		strings.HasSuffix(key, record.Key) || strings.HasSuffix(key, Probe) || key == record.PrimaryKey
}

// OfCall returns the lock's key and the waiter from a key that Call has formed from the lock's
// queue.
func OfCall(call string) (key, waiter string, ok bool) {
	rest, ok := strings.CutPrefix(call, string(Queue))
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 3 {
		return "", "", false
	}
	key = rest[1 : i-1]
	return key, rest[i+1:], Call(Queue.Of(key), rest[i+1:]) == call
}
