// Package keys names the keys that a server keeps beside a lock's own, its companions.
//
// The key of a lock is the Locker's prefix and the lock's name. A companion is derived from that key
// as a whole: clients that make one key of other prefixes and names have the same readers, tokens and
// queue, as they have the same lock.
//
//	job        redlock:readers:{job}    redlock:permit:3:{job}
//	app:{b}:c  redlock:readers:[app:{b}:c]
//
// In a Redis Cluster a companion is in the slot of its key, so that one script can have both. A
// server puts keys in slots by what stands between the first { and the next }, if there is
// something, and by the whole key otherwise. So a key without } is put in braces, and one with }
// keeps the tag that it has, in brackets. (A key like a}b has no tag and cannot be made one. Its
// companions are in other slots.)
//
// No two keys have the same companion: the first byte behind the kind tells how the rest is to be
// read. All companions end with } or ], so what is appended to one is no other's.
package keys

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/internal/record"
)

// A Kind is what a companion is for, and how it begins.
type Kind string

// The kinds of companions, besides the slots of permits.
const (
	Readers Kind = "redlock:readers:" // of a lock, and until when each
	Intent  Kind = "redlock:intent:"  // the writer that waits for the readers
	Counter Kind = "redlock:fence:"   // the highest fencing token that was accepted
	Queue   Kind = "redlock:queue:"   // of waiters; see Seen and Call
	Mark    Kind = "redlock:once:"    // that outlives the lock
	Gate    Kind = permit + "gate:"   // the lock that a caller has while it takes more than one slot
	Number  Kind = permit + "of:"     // how many slots there are, for those who have them

	permit Kind = "redlock:permit:" // and the slot's number and a colon
)

var kinds = []Kind{Readers, Intent, Counter, Queue, Mark, permit}

// Of returns the companion of a lock's key.
func (k Kind) Of(key string) string {
	if strings.Contains(key, "}") {
		return string(k) + "[" + key + "]"
	}
	return string(k) + "{" + key + "}"
}

// Has reports whether the key begins as the companions of the kind do, and what hangs on them.
func (k Kind) Has(key string) bool { return strings.HasPrefix(key, string(k)) }

// Seen is the key beside a queue that tells until when each of its waiters counts.
func Seen(queue string) string { return queue + ":seen" }

// Call is the key that is touched to call a waiter of a queue. Scripts make it, too: which waiter is
// to be called only they know.
func Call(queue, waiter string) string { return queue + ":" + waiter }

// Slot returns the key of a slot of a lock with several permits: an exclusive lock, with companions of
// its own. Slot 0 has the lock's key.
func Slot(key string, slot int) string {
	if slot == 0 {
		return key
	}
	return Kind(string(permit) + strconv.Itoa(slot) + ":").Of(key)
}

// GateOf returns the key of the lock that orders the callers who wait for one of k slots.
func GateOf(key string, k int) string { return Kind(string(Gate) + strconv.Itoa(k) + ":").Of(key) }

// Slots returns what stands before and behind the number of a slot, but for slot 0, in its key.
func Slots(key string) (stem, tail string) { return string(permit), Kind(":").Of(key) }

// OfSlot returns the lock's key and the number of the slot whose key this is. Any other key is slot 0
// of itself.
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

// Probe is the key that redlock doctor tries rights on, behind a Locker's prefix. Some of these commands
// could delete a lock or shorten its TTL, so it must be the key of no lock.
const Probe = "redlock:doctor:none"

// Reserved reports whether a lock with that key, or names behind that prefix, would stand in the way
// of the keys of any Locker: a companion, or a key that a Locker or redlock doctor has once for each
// prefix.
func Reserved(key string) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.Has(key) }) ||
		strings.HasSuffix(key, record.Key) || strings.HasSuffix(key, Probe) || key == record.PrimaryKey
}

// OfCall returns the lock's key and the waiter of a key that Call has made of its queue.
func OfCall(call string) (key, waiter string, ok bool) {
	rest, ok := strings.CutPrefix(call, string(Queue))
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 3 {
		return "", "", false
	}
	key = rest[1 : i-1]
	return key, rest[i+1:], Call(Queue.Of(key), rest[i+1:]) == call
}
