// Package fault breaks nodes during a trial, at times that are known beforehand.
//
// A fault is a line of text:
//
//	kill 2 at 5s for 5s                nodes 1 and 2 die at 5 s and are started again at 10 s
//	pause nodes 2,4 at 5s for 5s       these two hang, as by SIGSTOP
//	slow 2 by 20ms at 5s for 5s        each byte, each way, arrives 20 ms later
//	kill 1 at 2s for 1s every 3s       node 1, then node 2, and so on until the trial's end
//	kill 3 at 5s for 5s remembering    they come back with their memory
//
// A number alone means the first nodes, so that libraries which use the first
// node only feel the fault too; with every, it is the turn of as many next ones
// each time, while nodes that are named are struck again and again. Nodes are
// numbered from 1, as people count. A killed node comes back as it is configured:
// empty if it writes nothing to disk.
//
// Parse reads the line, NewPlan lays faults out over a trial, Nodes are what they
// happen to, and Plan.Play makes them happen.
package fault
