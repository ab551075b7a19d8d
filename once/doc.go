// Package once runs a job at most once per tick, though many machines start it.
//
//	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
//	outcome, err := report.Run(ctx, func(ctx context.Context, tick time.Time) error {
//		return write(ctx, tick) // stops when ctx ends
//	})
//
// A lock alone keeps two machines from working at the same time, but not one after the other: if the
// clocks differ by more than the job takes, the second machine comes when the first has released the
// lock. So the last tick is marked on a quorum of servers, beside a lock that is held only while the
// job runs.
//
//	Run ──► lock ──► mark read ──lower──► mark raised ──► job ──► released     Ran
//	         │           │                     │
//	         ▼           ▼                     ▼
//	        Busy        Done                  Done
//
// # Ticks
//
// The tick of a run is that of the moment at which Run is called, however long it then waits for the
// lock. So a run that waited behind another of its tick is Done, and does not take the next tick.
//
// With Every a tick is a multiple of Every since the zero time. The nearest one counts, by the
// machine's clock: with five minutes, 12:04:31 and 12:06:59 belong to 12:05. So machines agree if
// cron starts them at a multiple of Every and their clocks differ by less than half of it. The same
// holds for a start that is late on purpose, by a random delay or after the machine was off. So pass
// the time of the schedule to RunTick if it is known: job.RunTick(ctx, job.Tick(scheduled), work).
//
// A job that runs daily or less often needs Day. Its starts go by the time of day, so two of them are
// 23 hours apart when summer time begins, and both may fall on one tick of 24 hours.
//
//	zone, err := time.LoadLocation("Europe/Berlin")
//	report := once.Job{Locker: locker, Name: "report", Day: zone}
//
// Then a tick is a date in the schedule's zone. It is the same on all machines, even if their zone
// databases differ. A day begins half a minute before midnight, for machines that are a little early,
// so a job of 23:59 must start on time. For a job every few hours set Every to an hour, or to half an
// hour if the job starts at half past an hour of UTC. RunTick takes the tick of other schedules from
// the caller.
//
// # Starts without a schedule
//
// Two starts a second apart can lie in two ticks. A job that runs when a program starts needs Apart:
// it runs unless its last start, on any machine, was more recent. A job that failed counts as started.
//
//	cleanup := once.Job{Locker: locker, Name: "cleanup", Apart: time.Hour}
//
// The mark then lives for Apart on each server, so the clocks of the machines do not matter. A start
// that waited for the lock is never late. Do not change a name from Every or Day to Apart: while the
// mark of a tick lives, Run returns an error.
//
// # What is promised
//
// At most once: the mark is raised before the job begins, so a job that fails, or whose machine dies,
// does not run again in its tick. A server raises a mark to a tick at most once, so at most one
// machine has a majority for it, even if two believe that they hold the lock. If an answer is lost
// the tick may be marked and run nowhere; then Run returns an error.
//
// With TakeOver the mark is raised when the job has succeeded, so another machine runs a job that
// failed or was lost. Then a job may run twice if it could not mark its success, and a job whose lock
// was lost may run on beside the next. If two must never write, check fencing tokens: package fence.
//
// # What it cannot promise
//
// Servers that forget their keys forget marks. The memory guard keeps them from voting for a TTL, but
// not for the rest of the tick. Of N servers let h have the mark (all that answered) and q be the
// quorum: a tick runs twice only if h+q-N of them forget it within the tick, with 5 of 5 marked three
// of five. So run the servers with persistence, and do not flush a majority within a tick. If that is
// not enough, let the job record the tick together with what it writes.
//
// A mark lives for four ticks, and at least a minute. A machine that waited for the lock for longer
// than half of that does not run its tick: ErrLate. Neither does RunTick run a tick that ended so long
// ago. A machine whose clock is behind by more than a
// mark's life may run a tick that is long over. One whose clock is ahead marks a later tick, and the
// ticks before it are Done while that mark lives.
package once
