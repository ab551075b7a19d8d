// Package nodetest holds every protocol.Node to the same answers: one table of
// operations and expected replies, run against the fake nodes of package sim
// and against real servers. A simulation that answered otherwise than Redis
// would prove nothing.
package nodetest
