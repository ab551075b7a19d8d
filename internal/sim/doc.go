// Package sim has fake nodes over a simulated network, for testing the algorithm in testing/synctest bubbles: virtual
// time, no sockets, and every fault can be had at will and again.
//
// A [World] is some [Server]s, which keep keys by a clock of their own, and [Client]s, which are processes: each has a
// clock too, and a protocol.Node for every server. Servers hang and crash, clients pause, and a [Net] says of each leg
// of each message how long it takes and whether it gets lost. A [Store] is a server alone.
//
//	w := sim.New(seed, 5)
//	w.SetNet(sim.Fixed(time.Millisecond))
//	c := w.NewClient(1.005)
//	locker, err := redlock.New(c.Nodes(), timetest.Clock(c.Clock()))
//
// A client has one connection to each server. Requests arrive, are run and are answered in the order in which they were
// submitted; a slow message holds up those behind it. A server that hangs runs what it has received when it goes on. A
// reply that does not come within [Net.Patience] becomes Unknown. A crash loses what is under way, and the client does
// not know whether it had been run. Messages are lost one by one, where TCP would lose all that follow, too.
//
// A node gives hints (protocol.Watchable) as Redis does by CLIENT TRACKING with REDIRECT, OPTIN and NOLOOP, from the
// first Watch on: each OpWatch, and each other request with Watch, is remembered until the next change of its key, or a
// crash. The hint of a key that expires comes when a client asks for the key, or within a tenth of a second.
//
// Keys end exactly when their TTL has passed. A real server holds them up to a millisecond longer, which is safe.
//
// # Replay
//
// The fate of each leg is a hash of the seed, the client, the server, the operation, the key, how many times that
// client asked that server for just this, and which leg it is. So a seed replays whatever order goroutines run in.
// Goroutines that one moment sets off still race. A test that must replay to the last step runs in [World.Play], which
// lets them come to rest in between; it goes by [World.Now] and [World.Sleep], since the bubble's time stands still.
package sim
