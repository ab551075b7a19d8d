package fleet

import "os"

// What the tests of leftovers need to see. They are in another package, because
// internal/need imports this one.

var (
	SweepProcesses = sweepProcesses
	NodeDir        = nodeDir
	FleetDirPrefix = fleetDirPrefix
	PidFile        = pidFile
)

// DeadSelf returns an owner with this process's pid that began at another time.
func DeadSelf() string {
	o := self()
	o.start += "1"
	return o.String()
}

// Elsewhere returns that same dead process on another host.
func Elsewhere() string {
	o := self()
	o.start += "1"
	o.host = "elsewhere"
	return o.String()
}

// Alive reports whether a process is there.
func Alive(pid int) bool {
	_, alive := processStart(pid)
	return alive && pid != os.Getpid()
}
