// Package race tells tests whether they run under the race detector.
package race

import (
	"runtime/debug"
	"slices"
)

// Enabled reports whether the program was built with -race. It reads the build information,
// because build tags would take two files.
func Enabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
