// Package fleet starts N Redis servers and breaks them: it hangs, kills and restarts single nodes,
// so that tests and the demo can show how a quorum lock behaves while a minority, or a majority,
// fails. Package relay cuts their connections.
//
// One interface covers three kinds of nodes:
//
//	kind       nodes                        pause    kill, restart
//	embedded   miniredis in this process    yes      yes
//	process    redis-server on 127.0.0.1    unix     yes
//	addrs      servers given by URL         no       no
//
// Operations that a kind cannot perform return ErrUnsupported, so that one test can run over all
// kinds and skip the missing operations. StartBy accepts another kind; package integration has
// containers.
//
// # The faults, as a client sees them
//
//   - Paused: the node accepts connections, including new ones, and answers nothing. Requests sent
//     in this time run after Resume, even if their sender has left.
//   - Killed: like kill -9. Connections break, new ones are refused, and requests queued in the
//     node's sockets never run.
//   - Restarted with Kept memory: every answered write is there again (appendfsync always). With
//     Lost memory: empty. Either way the run is another one, with another run_id and no cached
//     scripts.
//
// # Cleaning up
//
// Close ends everything that was started. Even a parent that dies without Close does not leave
// resources for long. On Linux, its servers die with it. On other systems, and for temporary
// directories, the next Start of that kind removes everything whose owner no longer lives, except
// paused servers.
//
// The package imports neither redlock nor pool, so that both can be tested with it.
package fleet
