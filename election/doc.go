// Package election keeps one of several processes working, the leader, and the others ready to take
// over.
//
//	defer locker.Close()
//	billing := election.New(locker, "billing")
//	err := billing.Run(ctx, "web-3 pid 812", func(ctx context.Context, term election.Term) error {
//		return bill(ctx, term.Token()) // stops when ctx ends; the resource rejects lower tokens
//	})
//
// All candidates wait for one lock, with a fencing token and the candidate's ID as its label. The
// holder leads:
//
//	          ErrNoQuorum: after a pause
//	                 ┌──┐
//	                 ▼  │
//	Run ─────────► campaigns ──has the lock─────────► leads: the callback runs
//	                 ▲                                  │          │
//	                 │                  it returns nil, │          │ it returns an error,
//	                 │               or its term ends   │          │ or ctx has ended
//	                 │                                  ▼          ▼
//	                 └──after a pause────────── released:        released: Run returns
//	                                            stands back
//
// # Guarantees
//
// A term begins when the callback is called. It ends when the callback's context ends or the
// callback returns. No other candidate leads within Term.Remaining, even if this process, its
// network or the servers fail, within the promises of package redlock. Renewals extend that time
// every third of the TTL. The context ends before another candidate can lead.
//
// A callback that is paused, or ignores its context, can still run while the next leader works.
// Only the resource can reject its writes then, by Term.Token: a later term has a greater token.
//
// If a leader resigns or is stopped, the next one follows at once. If a process exits before Run
// has returned, or without Locker.Close, the lock can stay until its TTL has expired. If a process
// vanishes, the next leader follows when the lock has expired, after at most the Locker's TTL and a
// round trip. A short TTL therefore means a short gap, but the leader then survives only short
// pauses and outages.
package election
