package clock

import (
	"time"

	"golang.org/x/sys/windows"
)

// resolution is the step of GetTickCount64, rounded up.
const resolution = 16 * time.Millisecond

// sinceBoot reads GetTickCount64, which counts sleep and hibernation.
func sinceBoot() (time.Duration, bool) { return windows.DurationSinceBoot(), true }
