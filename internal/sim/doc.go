// Package sim simulates nodes and a network, to test the algorithm in testing/synctest bubbles: in
// virtual time, without sockets, and with faults that tests cause and repeat as they need.
//
// A [World] has [Server]s, which store keys by their own clocks, and [Client]s, which are
// processes. Each client has a clock, and a protocol.Node for every server. Servers hang and crash,
// clients pause, and a [Net] decides for each leg of each message how long it takes and whether it
// gets lost. A [Store] is a server alone.
//
//	w := sim.New(seed, 5)
//	w.SetNet(sim.Fixed(time.Millisecond))
//	c := w.NewClient(1.005)
//	locker, err := redlock.New(c.Nodes(), sim.Clock(c.Clock()))
//
// [Simulate] runs a test in a bubble with a World, and [Locker] opens a process's Locker. [Clock],
// [Wall] and [Jitter] replace a Locker's sources of time and randomness.
//
// A client has one connection to each server. Requests arrive, run and are answered in the order in
// which they were submitted; a slow message delays later ones. A server that hangs receives
// requests, and runs them when it continues. A reply that does not arrive within [Net.Patience]
// becomes Unknown. A crash loses all messages in transit, and the client does not know whether its
// requests were run. Messages get lost one by one, whereas TCP would also lose all later ones.
//
// A node sends hints (protocol.Watchable), from the first Watch on, as Redis does with CLIENT
// TRACKING with REDIRECT, OPTIN and NOLOOP. Each OpWatch, and each other request with Watch, is
// remembered until the next change of its key, or a crash. The hint of an expired key is sent when
// a client requests the key, or within a tenth of a second.
//
// Keys expire exactly at the end of their TTL. A real server keeps them up to a millisecond longer,
// which is safe.
//
// # Replay
//
// The fate of each leg is a hash of the seed, the client, the server, the operation, the key, the
// number of times that this client has sent this request to this server, and the leg. So a seed
// replays in any order of goroutines. Goroutines that are woken at the same moment still race. A
// test that must replay to the last step runs in [World.Play], which waits between events until all
// goroutines are idle. Such a test uses [World.Now] and [World.Sleep], because the bubble's time
// stands still.
package sim
