// Package standbymodel is the protocol by which several servers, of which one at a time is the
// primary, have the one vote of a node, as a small model. [explore] tries everything that can happen
// in it. Package pool has the protocol (standby.go). The model holds it to one promise:
//
//   - Exclusion: no two clients believe to have the node's vote at one moment.
//
// # The protocol
//
// Something outside promotes and demotes servers, in any order, both of them at once if it likes.
// Each promotion begins a generation of its own. A replica refuses requests, takes over what its
// primary has, as late as it likes, and is asked for nothing but its role.
//
//	open     A client takes a primary that has a mark of its present generation.
//	look     Where a primary has none, the client notes the generation first, and then asks the
//	         other server for its role. A replica is what it wants to see.
//	confirm  A while later it writes the mark of that generation to the primary.
//	vote     A vote counts if the server was of the generation that the client opened, when the
//	         client last looked. How long ago that may be is what "a while" is.
//	born     The first client of a generation writes its record, and votes count a TTL later. An
//	         extension counts at once while the client knows that the key must be there.
//
// # Why it holds
//
// Let a vote of X count under the generation a, and one of Y under b. Both were confirmed, and say
// that a was first: then X was seen as a replica when b had begun, at a time when a had begun, too.
// A server that was a replica never is of an earlier generation again. So all votes of a were given
// before that look, or a while after it, and those of b count when these have ended.
//
// # A server that stands alone
//
// Where clients know one server only, the memory guard alone keeps the promise. A server gets another
// generation also by its first replica, and when it frees its backlog, without any loss. So the
// record counts in all generations of a process that tells neither of data that it took nor of a
// generation before its promotion (record.DataSet). That it took data is enough to know, unless its
// statistics are reset. Then it still tells of the generation before, for as long as it keeps its
// backlog, and no lock lives longer than that.
//
// # What the model covers
//
// Two servers, two clients, time in ticks, a TTL of two. Promotions up to a bound, with both servers
// as primaries for any time, or none; requests that are late, also behind the end of their
// connection; clients that hang up, that are slow between two steps, and that extend.
//
// # What it leaves out
//
//   - A third server: a client looks at all others, so each pair of servers is two.
//   - Servers that forget their keys otherwise, which is the memory guard's, and clocks.
//   - Clients that do not know all servers of the node.
//   - A server that is demoted, loads the data of its primary and is promoted while a client still
//     goes by an older look. To load them takes longer than that look is believed.
//
// # What it found
//
//   - A connection that outlives its generation must not give a record to the next one
//     ([Carries]): its quarantine would begin before the other server has stopped.
//   - The generation before a promotion is no sign by itself where locks live longer than the backlog
//     ([TakesAsOwn]), and neither is what was taken, if statistics are reset ([Promotes]).
//   - To look at the other server first and at the generation behind it proves nothing
//     ([LooksFirst]).
//
// [explore]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/explore
package standbymodel
