// Package mapmodel is a protocol for names that are spread over several groups of servers, and for
// changing the map from names to groups while clients run, as a small model. [explore] tries
// everything that can happen in it. Package group has the protocol. The model holds
// it to two promises:
//
//   - Exclusion: no two clients believe to hold the name at one moment.
//   - Progress: from each state, a client with both maps can complete a change. Then a client of
//     the new map holds the name, and any group of several may be silent while it has its proof.
//
// # The protocol
//
// A group offers leases, which are exclusive or shared locks, and a mark, which only rises. Two
// maps that follow each other share a group. A client has a base map b and a newest map v: one map,
// or b = v-1 during a change. A map has three marks: 3b says that clients found it, without a map
// before, 3b+1 that it is complete, 3b+2 that it is retired in this group.
//
//	presence  A client uses a group while it holds the shared lock on map v there, and read a
//	          mark below 3v+2 behind it. All that it holds in the group ends with its
//	          presence.
//	found     A client sets the mark 3b in each group of map b that has no mark, in one step
//	          with the look that it has none. When it has read 3b in all of them, or 3b+1 in
//	          one, it raises them to 3b+1.
//	proof     It uses groups when it has read a mark from 3b+1 to 3v+1 in one group of its
//	          maps, other than 3v if it has two; or marks from 3b to 3v+1 in each group of
//	          map b.
//	both      A client with two maps holds the name while it holds it where each of them has
//	          it.
//	retire    A client with two maps and the proof takes the exclusive lock on map b in each
//	          group of map b in turn, and raises the mark to 3b+2. The group counts as retired
//	          when this client has the answer that the mark is 3b+2 or more while it believes
//	          in that lock.
//	complete  When all groups of map b count as retired, it raises the mark of each group of
//	          map v to 3v+1.
//
// # Why it holds
//
// Two clients that have a map in common lock the name in the group that this map names. Let one
// have map b or lower ones, and the other have higher ones.
//
// If the map of the other was completed behind map b, a client has held the exclusive lock on map b
// in each group of map b, and saw it retired under that lock. A presence on map b ended before, or
// reads that mark. A raise that arrives late only refuses clients, for it is not that client's
// proof.
//
// If it was founded, the group that the two maps share was given its founding mark first, and a
// group is given a first mark once. So map b was not founded, and has no proof. All maps with which
// clients start where groups have no marks must therefore share a group with each other.
//
// # What the model covers
//
// Up to three groups, three maps and three clients: of one map, of two that follow each other, or
// of both kinds. Clients do what they like in any order, any number of times, and lose each lease
// at any time, as often as may be. A raise to 3b+2 arrives at any time, or never. The judge knows
// what clients believe, and neither their maps nor marks.
//
// # What it does in one step
//
//   - A client reads an answer when the group gives it. One that learns it later does what an idle
//     client could do, since it ignores grants that have ended, and marks from before its presence.
//   - A client takes its presence and reads the mark. A later read allows no more, because marks
//     rise. With [ReadsEarly] it has read before, and any mark will do.
//   - A client remembers marks. A group keeps all that it has carried instead, so that each of them
//     may have been read when it was there, in any order, and other groups not at all.
//   - First marks, and raises to 3b+1 and 3v+1. What they say stays true, and one that arrives late
//     does what one does that is sent late.
//   - A lease ends at its client and at its group. Where the group keeps it for longer, it only
//     keeps others out.
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
//   - That a group carries 3b+2 is no proof that it is retired ([MarksProve]). The raise may have
//     arrived after the exclusive lock ended, when an old client was present again.
//   - One complete mark proves a map only because of the founding marks before it
//     ([SkipsFounding]). One founding mark proves nothing ([FoundingProves]): it may be of a client
//     whose first marks came too late in the other groups.
//   - Clients that found two maps at once may stop each other, where these share several groups.
//     Founding marks of both maps in the groups of the first are proof for a client with both
//     ([CompleteOnly]). They do not make the first map complete ([CompletesProven]).
//   - A client may skip the look for other marks before it founds, and need not wait for an answer
//     to its raise to 3b+1. It founds nothing in groups that only its newest map has.
//   - To retire a map needs the proof of it ([RetiresUnproven]), and no presence. In a group that
//     is new, a client with two maps needs no mark.
//
// [explore]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/explore
package mapmodel
