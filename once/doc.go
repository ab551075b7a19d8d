// Package once runs a job at most once per tick, even if many machines start it.
//
//	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
//	outcome, err := report.Run(ctx, func(ctx context.Context, tick time.Time) error {
//		return write(ctx, tick) // stops when ctx ends
//	})
//
// A lock alone prevents two machines from working at the same time, but not in turn: if the clocks
// differ by more than the job takes, the second machine starts after the first has released the
// lock. Therefore a quorum of servers stores a mark with the last tick, in addition to the lock,
// which is held only while the job runs.
//
//	Run ──► lock ──► mark read ──lower──► mark raised ──► job ──► released     Ran
//	         │           │                     │
//	         ▼           ▼                     ▼
//	        Busy        Done                  Done
//
// # Ticks
//
// A run belongs to the tick of the moment when Run is called, no matter how long it then waits for
// the lock. A run that waited for another run of its tick is therefore Done, and does not use the
// next tick.
//
// With Every, a tick is a multiple of Every since the zero time, and the multiple nearest to the
// machine's clock counts: with five minutes, 12:04:31 and 12:06:59 belong to 12:05. Machines agree
// on the tick if cron starts them at a multiple of Every and their clocks differ by less than half
// of it. The same is true of starts that are late on purpose, by a random delay or because the
// machine was off. If the scheduled time is known, pass it to RunTick: job.RunTick(ctx,
// job.Tick(scheduled), work).
//
// A job that runs daily or less often needs Day. It starts at a time of day, so two starts are 23
// hours apart when summer time begins, and both may fall on one tick of 24 hours.
//
//	zone, err := time.LoadLocation("Europe/Berlin")
//	report := once.Job{Locker: locker, Name: "report", Day: zone}
//
// With Day, a tick is a date in the schedule's zone. All machines agree on it, even if their zone
// databases differ. A day begins half a minute before midnight, for machines that are a little
// early, so a job at 23:59 must start on time. For a job every few hours, set Every to an hour, or
// to half an hour if the job starts at half past an hour of UTC. For other schedules, pass the tick
// to RunTick.
//
// # Starts without a schedule
//
// Two starts a second apart can belong to two ticks. A job that runs when a program starts needs
// Apart: it runs unless its last start, on any machine, was more recent. A failed job counts as
// started.
//
//	cleanup := once.Job{Locker: locker, Name: "cleanup", Apart: time.Hour}
//
// The mark then lives for Apart on each server, so the clocks of the machines do not matter. A
// start that waited for the lock is never late. Do not change a name from Every or Day to Apart:
// while the mark of a tick lives, Run returns an error.
//
// # Guarantees
//
// A job runs at most once per tick: the mark is raised before the job begins, so a job does not run
// again in its tick if it fails or its machine dies. A server raises a mark to a tick at most once,
// so at most one machine has a majority for it, even if two believe that they hold the lock. If an
// answer is lost, the tick may be marked without running anywhere; then Run returns an error.
//
// With TakeOver the mark is raised when the job has succeeded, so another machine runs a job that
// failed or lost its lock. A job may then run twice if it could not mark its success, and a job
// that lost its lock may still run while the next one does. If two must never write, check fencing
// tokens: package fence.
//
// # Limits
//
// Servers that lose their keys lose marks. The memory guard then keeps them from voting for a TTL,
// but not for the rest of the tick. If h of N servers have the mark (all that answered) and q is
// the quorum, a tick runs twice only if h+q-N of them forget it within the tick: three of five
// servers if all five were marked. Run the servers with persistence, and do not flush a majority
// within a tick. If that is not enough, let the job record the tick together with its data.
//
// A mark lives for four ticks, and for at least a minute. A machine that waited for the lock for
// more than half of that time does not run its tick, and returns ErrLate. RunTick also refuses a
// tick that ended that long ago. A machine whose clock is behind by more than the life of a mark
// may run a tick that ended long ago. A machine whose clock is ahead marks a later tick, and the
// ticks before it are Done while that mark lives.
package once
