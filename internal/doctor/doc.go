// Package doctor examines the Redis servers of a quorum lock: whether each of
// them can vote, what could make it forget or misjudge a lock, and whether all
// of them together make a quorum. It changes nothing on the servers.
//
// The order of things: Examine visits all servers at once (visit.go), each with
// the questions of latency.go, identity.go, memory.go, record.go and rights.go;
// together.go then judges what only shows when they are compared. Each thing
// found is a Finding; what was learnt for the comparison is in facts.
//
// Most of it is known to package pool, too, which refuses or logs it while locks
// are taken. Here it is told before, all at once, and in words for operators.
package doctor
