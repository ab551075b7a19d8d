// Package clock tells time for leases.
//
// A lease needs a clock that only goes forward, that no operator or NTP daemon can set, and that goes
// on while the machine sleeps. A laptop or virtual machine that was suspended for a minute has used
// up a minute of its lease, but Go's monotonic clock stood still (https://go.dev/issue/24595).
// [System] is such a clock: CLOCK_BOOTTIME on Linux and its equivalents elsewhere. [Fake] is one whose
// rate and steps a test decides.
//
// Compare only readings of the same clock: an [Instant] is not a time.Time and has no calendar.
package clock
