// Package integration tests the promises of package redlock on real Redis servers that are paused,
// killed, restarted and cut off from the network.
//
// The package contains only tests. Each test runs on every kind of server that supports it:
// redis-server processes and Docker containers, five of a kind, started once and healed after each
// test (package internal/fleet). A kind that this machine lacks is skipped, with the reason, unless
// REDLOCK_REQUIRE names it:
//
//	go test ./integration
//	REDLOCK_REQUIRE=docker,redis go test -race ./integration
//
// Without an image registry, the image is built from the machine's own redis-server:
//
//	export REDLOCK_TEST_IMAGE="$(integration/image.sh | tail -n 1)"
//
// Processes run the redis-server, or valkey-server, on PATH, or the server named by
// REDLOCK_TEST_SERVER. integration/servers.sh builds newer ones, and "make servers-test" runs these
// tests on each:
//
//	REDLOCK_TEST_SERVER=/path/to/valkey-server go test ./integration
//
// # Reliability of these tests
//
// No test sleeps until an event has probably happened. Every wait is for a fact (an observed vote,
// a reply, a server's list of clients), with a limit that only a failing test reaches.
//
// Keys live for a minute if a test checks for leftovers, so that expiry cannot hide them. A server
// counts as settled only when the connections that the test abandoned are closed on it, too: a SET
// could still arrive on an open one. The rig of rig_test.go checks this after each test.
//
// If a promise concerns time, the limit is far from both the correct and the wrong time: an attempt
// that waits for a hung node takes five seconds here, and any other attempt takes milliseconds.
package integration
