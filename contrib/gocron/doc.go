// Package redlockgocron runs the jobs of gocron on one of several machines, with the locks of a
// redlock.Locker. It supports both of gocron's ways to do so:
//
//	Elector   one machine leads and runs all jobs        gocron.WithDistributedElector
//	Locker    each tick of a job runs on any one machine  gocron.WithDistributedLocker
//
// The Elector is simpler: it sends no requests per job, and jobs can pass a fencing token to the
// resource. A new leader can repeat jobs that the previous leader ran in the same tick. With the
// Locker a tick runs at most once.
//
// # Lost locks
//
// Neither interface of gocron can stop a job. Therefore wrap each job in Task of the Elector or the
// Locker. The context of the job then ends when the lock is lost, and the job returns the loss as
// its error, which gocron passes to AfterJobRunsWithError. A job without Task does not notice the
// loss and runs at the same time as the next holder of its lock: gocron drops the error of Unlock,
// and asks the Elector only before a job begins. Only redlock.Log and redlock.Observe then report
// the loss.
//
// # Ticks of the Locker
//
// Before the job runs, the Locker marks its tick on a quorum of servers, in addition to the lock
// that is held while the job runs. Package once describes the guarantees and their limits. A lock
// alone would be free when the job ends, and a machine whose clock is behind by more than the
// duration of the job would run it again.
//
//	Lock ──► lock ──► tick marked ──► job ──► Unlock: released
//	          │            │
//	          ▼            ▼
//	   redlock.ErrHeld  redlock.ErrMarked      the job is skipped; AfterLockError is called
//
// A tick is a multiple of the Locker's interval, and the multiple nearest to the machine's clock
// counts. The interval must therefore not exceed the interval of the job, and the machines must
// start the job at a multiple of it, with a crontab or gocron.WithStartAt. A job that starts twice
// within a tick runs once, even with Job.RunNow. A failed job is not run again in its tick. A start
// in the second half of a tick is refused with once.ErrLate, because it would use the next tick.
// Therefore limit concurrent jobs with gocron.LimitModeReschedule, and not with LimitModeWait,
// which starts a job when another has ended. If jobs have different intervals, give each a Locker
// of its own with gocron.WithDistributedJobLocker.
//
// For a job that starts at a time of day, use an interval of an hour if it starts on the hour of
// UTC, and half an hour if it starts at half past. The start must be a multiple of the tick,
// because otherwise machines may choose different ticks. A tick of 24 hours skips the job on the
// day when summer time begins, which has 23 hours.
//
// # Exit of a process
//
// After Shutdown of the scheduler, wait for Run of the Elector, and then call Close of the
// redlock.Locker. Otherwise the process can exit before its last releases are sent, and their locks
// stay for a TTL.
//
// # Names
//
// The name of a job is the name of its lock, so each job needs gocron.WithName and a unique name.
// By default gocron uses the name of the function, which is the same for all functions returned by
// Task. The Locker refuses that name.
package redlockgocron
