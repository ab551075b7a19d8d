//go:build unix && !linux

package client

// awaitStop has nothing to wait with here: the signal takes effect in a moment.
func awaitStop(int) error { return nil }
