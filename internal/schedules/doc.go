// Package schedules plays random histories of clients that compete for locks, and holds each
// to the promises P1 to P6. The test is TestQuorumSchedules in the module's root.
//
// A schedule is drawn from a seed: servers and a network of package sim, processes with one
// Locker each, and faults. All of it runs in virtual time, and the same seed brings the same
// history back.
//
//   - campaign.go plays seeds on all processors, and reports.
//   - schedule.go is one history: faults for six seconds, and then the recovery.
//   - profile.go is what may happen in it, and what is inside the promises.
//   - client.go and worker.go are processes and their callers; tickets.go makes them replay.
//   - faults.go and network.go are what goes wrong.
//   - recovery.go is P5: what must happen once all is well again.
//   - promises.go checks the history; coverage.go counts what has come about.
package schedules
