// Package fleet starts N Redis servers and breaks them: it hangs, kills,
// restarts and cuts off single nodes, so that tests and the demo can show what
// a quorum lock does while a minority, or a majority, misbehaves.
//
// One interface covers four kinds of nodes:
//
//	kind       nodes                        pause    kill, restart   disconnect
//	embedded   miniredis in this process    yes      yes             no
//	process    redis-server on 127.0.0.1    unix     yes             no
//	docker     containers                   yes      yes             see package container
//	addrs      servers given by URL         no       no              no
//
// Operations that a kind cannot do return ErrUnsupported, so that one test can run over
// every kind and skip what is missing. Kind docker is there only for programs that
// import package container, because it links a Docker client.
//
// # The faults, as a client sees them
//
//   - Paused: connections, also new ones, are accepted; nothing is answered.
//     What was sent meanwhile runs after Resume, even if its sender has left.
//   - Killed: as by kill -9. Connections break, new ones are refused, and what
//     was queued in the node's sockets never runs.
//   - Restarted with Kept memory: every write that was answered is there again
//     (appendfsync always). With Lost memory: empty. Either way it is another
//     run, with another run_id and no cached scripts.
//   - Disconnected: packets vanish, in both directions, without RST or FIN. After
//     some seconds the sender's kernel may report "no route to host".
//     Connections that survive so long go on after Reconnect.
//
// # Cleaning up
//
// Close ends all that was started. A parent that dies without Close leaves nothing
// for long either: on Linux, servers die with it; elsewhere, and for temporary
// directories and Docker, the next Start of that kind sweeps what is labelled
// with an owner that no longer lives, but for servers that are paused.
//
// The package imports neither redlock nor pool, so that both can be tested
// with it.
package fleet
