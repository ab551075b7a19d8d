package measure

// WaitBuckets are the bounds, in seconds, of the histogram of how long it takes
// to get a lock: from a handover in memory to minutes behind others.
var WaitBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// HoldBuckets are those of how long a lock is held.
var HoldBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

// ReplyBuckets are those of a node's latency, which ends soon behind the
// longest node timeout that is a default, a second.
var ReplyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
