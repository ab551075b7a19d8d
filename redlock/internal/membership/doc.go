// Package membership has the rules by which the groups of servers that names are spread over change
// while clients lock.
//
// Clients of different versions of the map can lock one name in different groups. So a client locks
// nothing in a group but under its Presence there: the lock of a reader on the name of the newest version
// that it has. A client that gets the writer's lock of a version knows that no client of that version is
// left, and marks the version as retired in the group, so that none comes again.
//
//	clients have b  ──►  clients have b and b+1,  ──►  in each group of b:      ──►  in each group of b+1:
//	presence: b          lock moved names in both      writer's lock of b,           complete(b+1): clients
//	                     presence: b+1                 then the mark retired(b)      may have b+1 alone
//
// Two clients that have a version in common lock each name in one group that is the same. Those that have
// b alone and b+1 alone do not; of them the one ends, with its presence, before b is retired, and the other
// begins when b+1 is complete. internal/mapmodel tries all orders of events.
//
// How a group is asked, and what a lock is, is the Group's affair.
package membership
