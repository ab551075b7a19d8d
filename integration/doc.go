// Package integration tests the promises of package redlock on real Redis
// servers, while these are paused, killed, restarted and cut off the network.
//
// It has tests only. Each runs on every kind of server that can do what it
// needs: redis-server processes and Docker containers, five of a kind, started
// once and healed after each test (package internal/fleet). A kind that this
// machine does not have is skipped, with the reason, unless REDLOCK_REQUIRE names
// it:
//
//	go test ./integration
//	REDLOCK_REQUIRE=docker,redis go test -race ./integration
//
// Where no image registry can be reached, the image is made from the machine's
// own redis-server:
//
//	export REDLOCK_TEST_IMAGE="$(integration/image.sh | tail -n 1)"
//
// Processes are those of the redis-server, or valkey-server, on PATH, or of the
// server that REDLOCK_TEST_SERVER names. integration/servers.sh builds newer ones,
// and "make servers-test" runs these tests on each:
//
//	REDLOCK_TEST_SERVER=/path/to/valkey-server go test ./integration
//
// # What makes these tests reliable
//
// Nothing sleeps until something has probably happened. Every wait is for a fact
// (a vote that was observed, a reply, a server's list of clients), with a limit
// that only a failing test uses up.
//
// Keys live for a minute where a test asks whether one is left behind, so that
// expiry cannot hide it. A server counts as settled only when the connections
// that the test gave up are gone from it too: while one is left, a SET could
// still arrive on it. The rig of rig_test.go checks this after each test, whatever
// the test itself was about.
//
// Where time is what a promise is about, the limit stands far from both what is
// right and what would be wrong: a vote that waits for a hung node takes five
// seconds here, and one that does not takes milliseconds.
package integration
