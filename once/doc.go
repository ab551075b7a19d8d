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
// A tick is of the moment at which Run is called, however long it then waits for the lock. So a run
// that waited behind another of its tick is Done, and does not take the next tick.
//
// With Every a tick is a multiple of Every since the zero time, and the nearest one counts, by the
// machine's clock: at 12:04:31 and at 12:06:59 it is 12:05 of every five minutes. So machines agree
// if cron starts them at a multiple of Every, and their clocks differ by less than half of it.
//
// Every is for jobs that start again each hour or more often. Schedules beyond that go by the time
// of day, and ticks of a length do not: 07:30 on the day on which summer time begins comes 23 hours
// after 07:30 on the day before, and both may fall on one tick of 24 hours. So a job that runs
// daily, weekly, monthly or less often has Day:
//
//	zone, err := time.LoadLocation("Europe/Berlin")
//	report := once.Job{Locker: locker, Name: "report", Day: zone}
//
// Then a tick is a date, which is the same on all machines, also where clocks change and where a
// machine's zone database is older. The zone is that of the schedule. A day begins half a minute
// before midnight, for machines that are a little early, so a job that is scheduled for shortly
// before midnight needs to start in time. For a schedule of every few hours, Every is an hour, or half
// an hour if the job starts at half past an hour of UTC.
//
// RunTick takes the tick from the caller, for schedules of other kinds.
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
// A mark lives for four ticks, and a minute at least. A machine that waited for the lock for longer
// than half of that, behind an outage or a long job, does not run its tick: ErrLate. A machine
// whose clock is behind by more than a mark's life may run a tick that is long over. One whose clock
// is ahead marks a tick to come, and the ticks until then are Done, for as long as the mark lives at
// most.
package once
