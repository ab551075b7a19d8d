// Package fencemodel is the fencing protocol of package redlock as a small model. [explore] tries
// everything that can happen in it. The model holds it to promise P2:
//
//   - the tokens of granted attempts are unique;
//   - an attempt that was granted before another one began has the smaller token.
//
// Holders that follow each other by handovers within one attempt are held to the same, the later
// ones having the greater tokens.
//
// # The protocol
//
// A node has, for one name, the lock and a counter: the highest token that it accepted. An attempt
// has a value of its own and proposes a token of its own.
//
//	acquire(v, T)  lock is held          refused
//	               T = counter           refused
//	               T > counter           lock = v, counter = T   accepted
//	               T < counter           lock = v                low
//	raise(v, T)    lock not v's          refused
//	               T > counter           counter = T             accepted
//	               T <= counter                                  low
//	release(v, T)  lock v's: lock is free; in any case counter = max(counter, T)
//
// T may be the first of a block of numbers, of which the holder has the first, and hands the lock
// over with the next, without a word to any node. Then T is what is compared with the counter, and
// the last number of the block is what the counter is set to.
//
// Instead of acquire, two commands can be sent, of which others' requests may be run in between
// ([Model.Plain]). The first answers the lock, the second whether the token was accepted. Such a T
// reserves no block.
//
//	set(v)         lock free              lock = v
//	number(T)      T > counter            counter = T, whoever has the lock
//
// An attempt sends acquire to all nodes. It is granted T by a quorum that accepted T. Where a quorum
// has given it the lock, but the token was too low on some of them, it sends raise, once, with a
// higher T, and is granted that by a quorum that accepted it. An attempt that fails sends release to
// all nodes, and so does a holder that is done.
//
// # Why it holds
//
// A node accepts only what is above its counter, and the counter never goes back. So a node accepts
// no token twice, and the quorums of two attempts with equal tokens, which share a node, cannot both
// be complete. And the quorum of an attempt that begins later shares a node with that of an earlier
// grant, whose counter is there already. Neither the lock nor the order of messages comes into it:
// the locks may expire whenever they like.
//
// With blocks, a node accepts no number of one twice, because all of it is above the counter before
// and none of it above the counter after. A number is above all that were granted before the attempt
// began that reserved it, and below all of those that begin once it was handed out. It may be below
// one that was granted to another meanwhile, which takes two holders at a time: with a right lock, a
// handover is above all that was granted before it.
//
// # What the model covers
//
// Three nodes, up to three attempts, one after the other or at the same time. Proposals are any
// tokens, also equal ones. A lock may expire at any time. Requests are delayed, lost, duplicated, and
// run in any order, also after the release of their attempt ([Anyhow]); answers are late or lost;
// clients act when they like, give up when they like, or never act again.
//
// # What it leaves out
//
//   - Renewal, readers: they grant no tokens.
//   - A counter that has expired, in whose place a node goes by its clock. That needs counters to
//     outlive the distance from the clock that is allowed.
//   - Proposals that are far from a node's clock. They are answered like low ones, so that less is
//     accepted.
//   - Nodes that lose their counters. P2 is not promised then.
//   - Progress: the model says what cannot happen, not that anything does.
//
// [explore]: https://pkg.go.dev/github.com/redquorum/redquorum/internal/explore
package fencemodel
