// Package require skips tests of what is not installed, or fails them where it
// must be: in CI, a skipped test would look like a passed one.
//
// The environment variable REDLOCK_REQUIRE lists what must be there, separated by
// commas: docker, redis.
package require
