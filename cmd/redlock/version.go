package main

import "runtime/debug"

// version is what the build knows of its own: a release, or the commit.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
