// Package compose forms one lock from several locks of package engine, without a protocol of its
// own. A Bond ends all of them when the first one ends.
//
// # Sets
//
// A [Set] is several keys, all or none.
//
//	          ┌─ try all missing keys, in one packet ──── all won ─► all begin their TTL ─► Bond
//	Acquire ──┤                 │                                            ▲
//	          │  keep the keys before the first refused one                  │ none is missing
//	          │                 ▼                                            │
//	          └──◄── wait for that key, as any caller does, and keep it ─────┘
//
// # Why waiting sets cannot deadlock
//
// All clients take keys in one order: by the names of their groups of servers, and within a group
// by their bytes. A set waits only for a key after all keys that it keeps, because it releases the
// keys that a try has won after the first refused one. Among the waiting sets, the set that keeps
// the last key of all waits for no other set.
//
// # Why a set keeps its keys
//
// With tries alone, callers of single keys would starve a large set, because all its keys are
// rarely free at the same moment. A set waits in line once for each key that is not free. No other
// client can take the keys that it keeps, so it is complete after at most as many waits as it has
// keys. Kept keys are renewed, regardless of the caller's terms. If a set loses one, it starts
// over.
//
// # Keys that a set does not try
//
// A set does not try keys that a caller of its process holds or waits for, or the keys after them:
// it would overtake an earlier caller, or release the keys after them immediately.
//
// It tries nothing after the turn of its process at the first key has ended. Otherwise a process
// that takes the same set repeatedly would split the votes of the next process, which would then
// need twice as long to get the set. At other keys the turn does not matter: a set that has the
// first of its keys should finish with the others soon.
//
// A Fair set tries nothing, because it would overtake callers of other processes.
//
// # Permits
//
// [Semaphores] have k permits per name, and a caller takes as many as its weight. The key of a
// permit is a slot. Voting, renewal and the guard therefore do not know permits, and never more
// than k are held.
//
// A caller tries one random slot. If it is refused, the caller waits at a gate, which is a lock as
// well:
//
//	try a slot ──refused──► gate of the callers of one of k ──► collector ──► Permits
//	    │                                                                       ▲
//	    └────won────────────────────────────────────────────────────────────────┘
//
// The caller at the gate collects: it takes as many free slots as it needs, and hands the gate
// over. Waiters are therefore served in the order of the gate, and only one of them tries to get a
// free slot.
//
// A caller with a weight keeps its slots while it waits for the rest. Two callers with a part each
// would wait for each other without end; the gate prevents that. Callers that try once do not wait
// at the gate. Callers with a weight have a separate gate, where they wait for a few round trips.
//
// A permit excludes other kinds of locks of its name: permits of another k, readers, and holders
// without permits. In the same packet as each vote for a slot, the node is asked whether there are
// such locks (protocol.OpKind). If two callers of different kinds arrive at the same moment, both
// may find the other, and neither gets the lock. Only callers of permits make this check. A holder
// without permits sends no such question, which would cost more, and gets the lock in spite of all
// permits except the one in slot 0, whose key is its own.
package compose
