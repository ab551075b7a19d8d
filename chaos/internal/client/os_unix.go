//go:build unix && !linux

package client

// awaitStop returns at once: there is nothing to wait with here, and the signal takes effect in a
// moment.
func awaitStop(int) error { return nil }
