// Package sim has fake nodes over a simulated network, for testing the
// algorithm in testing/synctest bubbles: virtual time, no sockets, and every
// fault can be had at will and again.
//
// A [World] is some [Server]s, which keep keys by a clock of their own, and
// [Client]s, which are processes: each has a clock too, and a redlock.Node for
// every server. Servers hang and crash, clients pause, and a [Net] says of each
// leg of each message how long it takes and whether it gets lost.
//
//	w := sim.New(seed, 5)
//	w.SetNet(sim.Fixed(time.Millisecond))
//	c := w.NewClient(1.005)
//	locker, err := redlock.New(c.Nodes(), redlock.Clock(c.Clock()))
//
// # What is simulated
//
// A client has one connection to each server. Requests arrive, are run and are
// answered in the order in which they were submitted, as on a TCP connection; a
// slow message holds up those behind it. A request that a server has received
// while it hangs is run when it goes on, also if the client has long given up
// on it (which is what a stopped redis-server does). A reply that does not come
// within [Net.Patience] becomes Unknown. A crash loses what is under way, and
// whether it had been run is not known to the client either.
//
// Messages are lost one by one, where TCP would lose all that follow on the
// connection too. The algorithm must not depend on the difference.
//
// Keys end exactly when their TTL has passed on the server's clock. A real
// server holds them up to a millisecond longer, which is on the safe side.
//
// # Replay
//
// Nothing is drawn from a stream that goroutines share: the fate of each leg is
// a hash of the seed, the client, the server, the operation, the key, how many
// times that client asked that server for just this, and which leg it is. So a
// seed replays whatever order the goroutines run in.
package sim
