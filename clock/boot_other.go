//go:build !linux && !darwin && !windows

package clock

import "time"

const resolution = 0

// sinceBoot returns false, because no clock of these platforms is known to count suspends. Go's
// clock must do.
func sinceBoot() (time.Duration, bool) { return 0, false }
