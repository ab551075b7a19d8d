// Package nemesis breaks servers, clients and the network between them, by a plan
// that a seed decides: the same seed, scenario and setting give the same faults at
// the same times. What they hit, and how the processes' timing falls out, is not
// replayed.
//
// A plan has lanes that run at the same time. Within a lane one fault is over
// before the next begins, so that each lane knows in what state its victims are.
package nemesis
