// Command cron runs a job once per tick, though cron starts it on every machine,
// so that no machine is the one that must not fail.
//
// For a command that is no Go program, one line in the crontab of all machines has
// the lock, too:
//
//	*/5 * * * * redlock run --no-wait nightly-report -- /usr/local/bin/report
//
// The lock alone keeps two machines from working at the same time, but not one
// after the other: where the clocks differ by more than the job takes, the second
// machine comes when the first has done its work and released the lock. So the
// tick is recorded together with what the job writes, and checked under the lock.
//
// A command that cannot record anything must end later than the last machine
// begins: sh -c '/usr/local/bin/report; sleep 30', for clocks that differ by less
// than 30 seconds.
//
// job.go is what to copy. A program that cron starts every five minutes runs
//
//	outcome, err := job.Run(ctx, time.Now().Round(5*time.Minute))
//
// The tick is the time that was meant, which is the same on all machines. Cron is a
// moment late, and differently so on each; Round takes that off.
package main
