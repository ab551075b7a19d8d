// Package sharedmodel is the protocol of readers and writers as a small model. [explore] tries
// everything that can happen in it. The model holds it to three promises:
//
//   - Exclusion: no writer believes to hold while another client does. Any number of readers may.
//   - Progress: a writer that waits is granted once the readers that were there are gone.
//   - No leftovers: when all have released, or all must have expired, no key is left.
//
// # The protocol
//
// A node has three keys for a name: NAME, a set of readers with the time of each, and an intent.
//
//	write(v)      NAME is there    refused
//	              else             NAME = v
//	read(v)       NAME is a value, or an intent is there    refused
//	              else             v is a member for a TTL, NAME = marker
//	read again    the same, whether or not an intent is there
//	extend write  NAME = v         v lasts for a TTL
//	extend read   NAME = marker, and v's time is not over    v is a member for a TTL
//	downgrade     NAME = v         NAME = marker, v is a member for a TTL
//	undo(v)       NAME = v: deleted; then v's owner sets or prolongs its intent, see [Where]
//	release(v)    NAME = v: deleted; the intent of v's owner: deleted
//	leave(v)      NAME = v: deleted; the member is removed
//
// What adds or removes a member purges the set, and has it and the marker expire with the last
// member; where none is left, both are deleted.
//
// A client holds when a quorum granted in one round, until that round's start and a TTL, less the
// drift allowance. An extension and a downgrade are rounds that may move this deadline before it
// has passed. A node that answers an extension that the claim is not there is repaired, by a write
// or a read that counts for no round. A client that downgrades is a reader from the moment in
// which it sends the request.
//
// A node that forgot is mute for a TTL: it runs requests, and none of its grants counts.
//
// # Why it holds
//
// A node grants a writer only while it has no member and no other value, and a reader only while it
// has no value. The quorums of two claims share a node. If it granted both within their time, the
// first was gone from it when it granted the second: released, so not believed; expired, so not
// believed; or forgotten, and then the second grant does not count while the first is believed.
//
// # What the model covers
//
// Three nodes and two or three clients, time in ticks, a TTL of two or three. Requests are late or
// lost, answers are lost, and clients stop when they like; requests of one client to one node keep
// their order. Nodes' clocks gain what the drift allowance forgives. One node forgets all its keys;
// where P1 allows it, it forgets them or NAME alone unnoticed. A writer without an intent is what a
// client of another library is.
//
// Progress is tried on a network without delay, with clients in any order: one that waits tries
// once a tick, and readers come, stay, leave and die as they like. Against messages of any delay
// there is no progress to promise.
//
// # What it leaves out
//
//   - TTLs that differ, more nodes, a second loss, duplicates of requests.
//   - An old round whose answers count after the next one began.
//   - Clients without the memory guard when a node forgets: they hold beside others.
//   - Readers of one process that share a claim.
//   - Tries that ask one node alone. And package redlock takes a refusal that left no trace for one by
//     readers only after some tries in a row, because other writers leave none either.
//
// # What it found
//
//   - An extension on a mute node must not count, though the node holds the value
//     ([MuteExtends]): what the node forgot may be the vote of a round that is still under way.
//   - An intent that is set only where the undo finds the marker starves a writer ([AtMarker]):
//     readers that leave between its write and its undo leave no trace.
//   - An intent belongs to a writer, not to its try ([IntentOfTry]), and lasts for longer
//     than a writer rests between tries.
//   - While no grant of a mute node counts, an extension that adds ([ExtendAdds]) and a repair that
//     counts ([RepairCounts]) do exclusion no harm: they claim anew what is still believed.
//   - A downgrade may be run node by node. A value that it has not reached excludes writers as a
//     member does, so the old votes make a reader. They make no writer from the moment in which
//     the downgrade is sent ([DowngradeWrites]).
//
// [explore]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/explore
package sharedmodel
