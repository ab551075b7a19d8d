// Package mapmodel is a protocol for names that are spread over several groups of servers, and for
// changing the map from names to groups while clients run, as a small model. [explore] tries
// everything that can happen in it. The protocol is not built. The model holds it to two promises:
//
//   - Exclusion: no two clients believe to hold the name at one moment.
//   - Progress: from each state, a client with both maps can complete a change, and a client of the
//     new map holds the name then, if all others are silent and all groups answer.
//
// # The protocol
//
// A group offers leases, which are exclusive or shared locks, and a mark, which only rises. Two
// maps that follow each other share a group. A client has a base map b and a newest map v: one map,
// or b = v-1 during a change. Mark 2b says that map b is complete, 2b+1 that it is retired in this
// group.
//
//	presence  A client uses a group while it holds the shared lock on map v there, and read a
//	          mark below 2v+1 behind it. All that it holds in the group ends with its
//	          presence.
//	proof     It uses groups when it has read a mark from 2b to 2v in each group of map b. A
//	          group of map b that has no mark gets 2b, in one step with the look that it has
//	          none.
//	both      A client with two maps holds the name while it holds it where each of them has
//	          it.
//	retire    A client with two maps and the proof takes the exclusive lock on map b in each
//	          group of map b in turn, and raises the mark to 2b+1. The group counts as retired
//	          when this client has the answer that the mark is 2b+1 or more while it believes
//	          in that lock.
//	complete  When all groups of map b count as retired, it raises the mark of each group of
//	          map v to 2v.
//
// # Why it holds
//
// Two clients that have a map in common lock the name in the group that this map names. Let one
// have map b or lower ones, and the other have higher ones. The other has the proof of a map above
// b. So some client has raised the mark to 2b+1 in each group of map b, and held the exclusive lock
// on map b behind that. A presence on map b ended before, or reads that mark. A raise that arrives
// late only refuses clients, for it is not that client's proof.
//
// Where no group has a mark at first, the group that the two maps share gets its first mark once,
// and the mark is the proof of one of the maps only.
//
// # What the model covers
//
// Up to three groups, three maps and three clients: of one map, of two that follow each other, or
// of both kinds. Clients do what they like in any order, any number of times, and lose each lease
// at any time, as often as may be. A raise to 2b+1 arrives at any time, or never. The judge knows
// what clients believe, and neither their maps nor marks.
//
// # What it does in one step
//
//   - A client reads an answer when the group gives it. One that learns it later does what an idle
//     client could do, since it ignores grants that have ended, and marks from before its presence.
//   - A client takes its presence and reads the mark. A later read allows no more, because marks
//     rise. With [ReadsEarly] it has read before, and any mark will do.
//   - A client remembers marks. A group keeps all that it has carried instead, so that each of them
//     may have been read when it was there.
//   - A raise to 2v, and the first mark. That a map is retired stays true, and a first mark that
//     arrives late does what one does that is sent late.
//   - A lease ends at its client and at its group, where [Model.Lingers] is not set: in between it
//     only keeps others out.
//
// # What it leaves out
//
//   - Groups that forget, and how a group makes leases and marks from several servers.
//   - Clocks. A client believes in a lease for less time than its group does.
//   - The order of locks, which prevents deadlocks, and fairness.
//   - Stopping. A client that is refused tries again, and is refused again.
//
// # What it found
//
//   - That a group carries 2b+1 is no proof that it is retired ([MarksProve]). The raise may have
//     arrived after the exclusive lock ended, when an old client was present again.
//   - One group with a mark is no proof that a map is complete ([AnyGroup]): the client that began
//     to mark the groups may have stopped at a group that has another map's mark. Nor is a mark
//     proof that retires the map ([Overtaken]).
//   - A lock does not protect the first mark ([LockedStart]): a raise from before may arrive
//     between the look and the raise of the lock's next holder. The raise hides what it overwrites.
//   - A change that stops between two groups while it completes a map needs a client with both maps
//     to end it. To a client of the new map alone, it looks like a first mark.
//   - To retire a map needs the proof that it is complete ([RetiresUnproven]), and no presence.
//   - In a group that is new, a client with two maps needs no mark.
//
// [explore]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/explore
package mapmodel
