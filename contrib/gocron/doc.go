// Package redlockgocron runs the jobs of gocron on one of several machines, by the votes of a
// redlock.Locker. It has both of gocron's ways to do so:
//
//	Elector   one machine leads and runs all jobs        gocron.WithDistributedElector
//	Locker    each tick of a job runs on any one machine  gocron.WithDistributedLocker
//
// The Elector is the simpler one: a machine does not ask for each job, and jobs can give the
// resource a fencing token. A new leader can repeat what the one before did in the same tick. With
// the Locker a tick runs at most once.
//
// # A lock that is lost
//
// Neither interface of gocron can stop a job. So wrap each job by Task of the Elector or the Locker:
// its context ends when the lock is lost, and the loss is the job's error, which gocron gives to
// AfterJobRunsWithError. A job that is not wrapped goes on beside the next holder of its lock, and
// does not learn of it: gocron drops the error of Unlock, and asks the Elector before a job begins
// only. Then redlock.Log and redlock.Observe are all that tell.
//
// # The Locker's ticks
//
// The Locker marks a tick on a quorum of servers before the job runs, beside a lock that is held
// while it does: package once has the promises, and what they rest on. A lock alone would be free
// when the job ends, and a machine whose clock is behind by more than the job takes would run it
// again.
//
//	Lock ──► lock ──► tick marked ──► job ──► Unlock: released
//	          │            │
//	          ▼            ▼
//	   redlock.ErrHeld  redlock.ErrMarked      the job is skipped; AfterLockError is told
//
// A tick is the multiple of the Locker's interval that is nearest by the machine's clock. So the
// interval is at most the job's own, and the machines begin a job at a multiple of it, by a crontab
// or gocron.WithStartAt. A job that comes twice within a tick runs once, also by Job.RunNow. A
// failed job is not run again in its tick. A start in the second half of a tick is refused with
// once.ErrLate: it would spend the next tick. So limit concurrent jobs by gocron.LimitModeReschedule,
// and not by LimitModeWait, which starts a job when another has ended. For jobs of other intervals give each a Locker of its own
// by gocron.WithDistributedJobLocker.
//
// For a job that goes by the time of day, give an hour if it starts on the hour of UTC, and half an
// hour if it starts at half past. A start must be a multiple of the tick, or machines may take two
// ticks for one. A tick of 24 hours leaves the job out on the day on which summer time begins, which
// has 23 hours.
//
// # The end of a process
//
// After Shutdown of the scheduler, wait for Run of the Elector, and then call Close of the
// redlock.Locker. Otherwise the process can exit before its last releases are sent, and their locks
// stay for a TTL.
//
// # Names
//
// The name of a job is the name of its lock, so each job needs gocron.WithName, and another name
// than other jobs. By default gocron takes the name of the function, which is the same for all that
// Task returns: the Locker refuses it.
package redlockgocron
