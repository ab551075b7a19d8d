// Package sim has fake nodes over a simulated network, for testing the
// algorithm in testing/synctest bubbles: virtual time, no sockets, and every
// fault can be had at will and again.
//
// A [World] is some [Server]s, which keep keys by a clock of their own, and
// [Client]s, which are processes: each has a clock too, and a protocol.Node for
// every server. Servers hang and crash, clients pause, and a [Net] says of each
// leg of each message how long it takes and whether it gets lost.
//
//	w := sim.New(seed, 5)
//	w.SetNet(sim.Fixed(time.Millisecond))
//	c := w.NewClient(1.005)
//	locker, err := redlock.New(c.Nodes(), timetest.Clock(c.Clock()))
//
// # What is simulated
//
// A client has one connection to each server. Requests arrive, are run and are
// answered in the order in which they were submitted, as on a TCP connection; a
// slow message holds up those behind it. A request that a server has received
// while it hangs is run when it goes on, also if the client has long given up
// on it (as a stopped redis-server does). A reply that does not come
// within [Net.Patience] becomes Unknown. A crash loses what is under way, and
// whether it had been run is not known to the client either.
//
// Messages are lost one by one, where TCP would lose all that follow on the
// connection too. The algorithm must not depend on the difference. A lost
// request can stray: it was left in a connection that the client gave up, and
// is run later, after requests that came by the next connection. A client that may
// not send CLIENT KILL cannot prevent that.
//
// A server remembers all after a crash, but for a [Server.Load] of the keys that it
// had at the last [Server.Save], a [Server.Flush] or a [Server.Evict]. A
// process that crashes sends nothing any more.
//
// A node gives hints (protocol.Watchable) as Redis does by CLIENT TRACKING with
// REDIRECT, OPTIN and NOLOOP. The first Watch asks the server for them, by an OpWatch
// of the key __redis__:invalidate, and all watchers get a hint when the answer is
// there; from then on each OpWatch, and each other request with Watch, is remembered until the
// next change of its key. A client gets no hint of its own change, which uses its watch up all
// the same. A crash of the server forgets all watches, and the client asks again on
// the next connection. Hints are legs like any others, in order among
// themselves but not with replies, and are late, lost and doubled likewise.
//
// The hint of a key that expires comes when a client asks for the key, or within a tenth of a
// second by itself.
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
//
// Goroutines that one moment sets off still race with each other and with the
// next event of the same moment. A test that must replay to the last step runs in
// [World.Play], which lets them come to rest in between; it goes by [World.Now]
// and [World.Sleep], since the bubble's time stands still in it.
package sim
