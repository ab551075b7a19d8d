// Package clock measures time for leases.
//
// A lease needs a clock that never goes back, that neither an operator nor an NTP daemon can set,
// and that keeps running while the machine sleeps. A laptop or virtual machine that was suspended
// for a minute has used up a minute of its lease, but Go's monotonic clock stood still
// (https://go.dev/issue/24595). [System] is such a clock: CLOCK_BOOTTIME on Linux and its
// equivalents elsewhere. [Fake] is a clock whose rate and steps are set by a test.
//
// Compare only readings of the same clock: an [Instant] is not a time.Time and has no calendar.
package clock
