//go:build !linux && !darwin && !windows

package clock

import "time"

const resolution = 0

// sinceBoot: no clock that is known to count suspends; Go's must do.
func sinceBoot() (time.Duration, bool) { return 0, false }
