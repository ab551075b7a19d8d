// Package nodetest holds every protocol.Node to the same answers: one table of
// operations and expected replies, run against the fake nodes of package sim
// and against real servers. A simulation that answered otherwise than Redis
// would prove nothing.
//
// Each operation has a group of cases: what the node holds, the request, the reply, and what
// it holds then. What servers of different versions may answer differently is no case. Times
// are compared with a tolerance, because a server's clock goes on between two requests.
package nodetest
