// Package clock tells time for leases.
//
// A lease must be counted on a clock that only goes forward, that no operator
// or NTP daemon can set, and that goes on while the machine sleeps: a laptop
// or a virtual machine that was suspended for a minute has used up a minute of
// its lease, although Go's own monotonic clock saw nothing of it
// (https://go.dev/issue/24595). [System] is that clock: CLOCK_BOOTTIME on
// Linux and its equivalents elsewhere. [Fake] is one whose rate and steps a
// test decides.
//
// A clock's readings mean something only relative to other readings of the
// same clock, so an [Instant] is not a time.Time and has no calendar.
package clock
