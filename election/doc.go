// Package election keeps one of several processes at work, the leader, and others ready to take
// over.
//
//	office := election.New(locker, "billing")
//	err := office.Run(ctx, "web-3 pid 812", func(ctx context.Context, term election.Term) error {
//		return bill(ctx, term.Token()) // stops when ctx ends; the resource rejects lower tokens
//	})
//
// All candidates wait for one lock, with a fencing token and the candidate's ID as its label. Who
// holds it leads:
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
// A term lasts from the callback's begin until its context ends or it returns. The trusted window
// is Term.Remaining: so long no other candidate leads, whatever happens to this process, its
// network or the servers within the promises of package redlock. Renewals move its end on, every
// third of the TTL. It closes, and the context ends, before another candidate can have the lock.
// A callback that does not notice at once, because its process is paused or because it does not
// look at its context, works on beside the next leader. Only the resource can refuse it then, by
// Term.Token: a later term has a greater token.
//
// A leader that resigns or is told to stop is followed at once. One that vanished is followed when
// its lock has expired: after the TTL of the Locker at most, and a round trip. So a short TTL means
// a short gap, and that fewer pauses and outages are survived in office.
package election
