// Package once runs a job at most once per tick, though many machines start it.
//
//	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
//	outcome, err := report.Run(ctx, func(ctx context.Context, tick time.Time) error {
//		return write(ctx, tick) // stops when ctx ends
//	})
//
// A lock alone keeps two machines from working at the same time, but not one after the other:
// where the clocks differ by more than the job takes, the second machine comes when the first has
// done its work and released the lock. To hold the lock until the next tick would help, but for as
// long no other job of that name runs, and a server that forgets is in quarantine for as long. So
// the last tick is marked on a quorum of servers, beside a lock that is held only while the job
// runs.
//
//	Run ──► lock ──► mark read ──lower──► mark raised ──► job ──► released     Ran
//	         │           │                     │
//	         ▼           ▼                     ▼
//	        Busy        Done                  Done
//
// # Ticks
//
// A tick is a multiple of Every since the zero time, and Run's is the one that is nearest by the
// machine's clock: at 12:04:31 and at 12:06:59 it is 12:05 of every five minutes. So machines agree
// if cron starts them at a multiple of Every, and their clocks differ by less than half of it.
// RunTick takes the tick from the caller, for schedules of other kinds. Every need not be the
// schedule's period, and is better shorter where that begins in between: a job that cron starts at
// noon each day may have an Every of an hour.
//
// # What is promised
//
// At most once: the mark is raised before the job begins, so a job that fails, or whose machine
// dies, is not run again in its tick. A server raises a mark to a tick at most once, so of all
// machines at most one has a majority for it, even if two take themselves for the holder of the
// lock. If an answer is lost the tick may be marked and run nowhere: Run returns an error then.
//
// With TakeOver the mark is raised when the job has succeeded, so another machine runs a job again
// that failed or was lost. Then a job may be run again that had done its work and could not mark
// it, and one that goes on after its lock was lost may run beside the next. What must have one
// writer checks fencing tokens: package fence.
//
// # What it cannot promise
//
// Servers that forget their keys forget marks, too. The memory guard keeps them from granting the
// lock for a TTL, but not for the rest of a tick. Of N servers, h have the mark (all that answered
// when it was raised), and with the quorum q a tick is run twice only if h+q-N of them forget it
// within the tick: with 5 of 5 marked, three of five. So run the servers with persistence, and do
// not flush a majority within a tick. A job for which that is not enough records the tick together
// with what it writes.
//
// A mark lives for four ticks, and a minute at least. A machine whose clock is behind by more than
// that may run a tick that is long over. One whose clock is ahead marks a tick to come, and the
// ticks until then are Done, for as long as the mark lives at most.
package once
