// Command chaos takes locks on real redis-server processes while these, the
// clients and the network are broken, and judges what came of it.
//
//	go -C chaos run . --duration 10m                        # all scenarios, a minute each
//	go -C chaos run . --scenario pause-clients,mixed
//	go -C chaos run . --scenario mixed --seed 42            # the same faults again
//	go -C chaos run . --scenario mixed --seed 42 --plan     # only say which
//	go -C chaos run . --scenario restart-majority --no-guard
//
// The last one is the control: without the memory guard three forgetful servers
// give away what another client holds, and the checks must find that.
//
// Five servers are started (package internal/fleet), several client processes,
// each of them this program run again (internal/client), and a register that they
// write to under their locks (internal/register). The nemesis carries out a plan
// that the seed decides (internal/nemesis). Everybody's history, which is kept in a
// file if anything is wrong, is judged at the end, or when the run is interrupted
// (internal/check says by which rules).
//
// The exit code is 1 if a rule was violated, and 2 if the run could not be made.
//
// It needs a Unix, and redis-server or valkey-server on the PATH.
package main
