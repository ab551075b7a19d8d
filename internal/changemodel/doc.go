// Package changemodel is a protocol for changing the servers of a lock while clients run, as a
// small model, and an explorer that tries everything that can happen in it. The protocol is not
// built. The model holds it to two promises:
//
//   - Exclusion: no two clients believe to hold the lock at one moment.
//   - Progress: from each state, a client with the servers that are to be gets the lock within four
//     TTLs, if they all answer and the others are silent.
//
// # The protocol
//
// A server without a record is given a new identity. Its record has lists of members, each above
// the one before it; a list is the identities of some servers, with their addresses.
//
//	ask     a lock or an extension, and a look at the record behind it
//	add     the highest list that the client knows goes on top of those in the record
//	strike  lists below the one in force go, if that stands in the record
//
// A round counts when those that voted are a majority of each list that stands in the record of any
// of them. A client with a next list needs a majority of each of its own lists as well.
//
// A list is in force when of each lower one that the client has met, a majority has carried it for
// a TTL; or all members that are not gone, if all of its own members have, too. A member is gone
// when a server with another identity answers at its address. What is lowest in a record is in
// force.
//
// The first list stands above one without members. So it is in force when all of its members have
// carried it for a TTL. The votes of a server that had no record count for nothing for a TTL.
//
// # Why it holds
//
// Two rounds that count by one list share a server. Let one count by a list, and the other by a
// higher one that is in force. A majority of the lower list has carried the higher one since a TTL
// before the second round, and a server that forgets is no member any more. So the first round
// either began more than a TTL ago, or asked one of them, saw the higher list, and has a majority
// of that, too.
//
// # What the model covers
//
// Up to five servers, and two clients: of the old servers and of the new ones, both of new ones, or
// with two lists at once. They replace one server of three, by the same or by different ones; two
// at once; go from one server to three and back; and begin anew. Clients look, ask and write in any
// order and stop when they like; what they know is as old as their last look, and one restarts.
// Servers forget all keys, identity included, once or twice in all. The judge knows what clients
// believe and true time, and neither lists nor identities.
//
// # What it leaves out
//
//   - Clocks that differ, TTLs that differ, and releases. [sharedmodel] has them for one list.
//   - Requests that are late. A round of which one server's request was late has fewer votes.
//   - Three configurations at a time.
//   - Chance: lists of equal height are ordered by their members.
//
// # What it found
//
//   - What is proposed does not matter for exclusion, so one protocol serves for another server and
//     for another number of them.
//   - That a member is gone must not make up for a majority ([GoneCarries]): what it forgot may be
//     that the list was replaced.
//   - A client with two lists must have a majority of each, whatever the records say
//     ([RecordsAlone]): all servers of one of them may forget at once. And the votes of a server that
//     forgot must not count for it at once ([NeverMute]).
//
// [sharedmodel]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/sharedmodel
package changemodel
