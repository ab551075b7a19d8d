package fleet

// Names for the tests of leftovers. These are in another package, because internal/testenv imports
// this one.
var (
	SweepProcesses = sweepProcesses
	NodeDir        = nodeDir
	FleetDirPrefix = fleetDirPrefix
)
