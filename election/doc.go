// Package election keeps one of several processes at work, the leader, and others ready to take over.
//
//	defer locker.Close()
//	office := election.New(locker, "billing")
//	err := office.Run(ctx, "web-3 pid 812", func(ctx context.Context, term election.Term) error {
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
//	                 │               or its term is over│          │ or ctx has ended
//	                 │                                  ▼          ▼
//	                 └──after a pause────────── released:        released: Run returns
//	                                            stands back
//
// # What can be trusted, and for how long
//
// A term begins with the callback. It ends when the callback's context ends or the callback returns.
// For Term.Remaining no other candidate leads, whatever happens to this process, its network or the
// servers, within the promises of package redlock. Renewals extend that every third of the TTL. The
// context ends before another candidate can lead.
//
// A callback that is paused, or does not look at its context, works on beside the next leader. Only
// the resource can refuse it then, by Term.Token: a later term has a greater token.
//
// If a leader resigns or is told to stop, the next one follows at once. A process that exits before
// Run has returned, or without Locker.Close, can leave the lock to its TTL. If it vanishes, the next one
// follows when the lock has expired, after the Locker's TTL at most and a round trip. So a short TTL
// means a short gap, but a leader then survives only short pauses and outages.
package election
