package fleet

// What the tests of leftovers need to see. They are in another package, because
// internal/need imports this one.
var (
	SweepProcesses = sweepProcesses
	NodeDir        = nodeDir
	FleetDirPrefix = fleetDirPrefix
)
