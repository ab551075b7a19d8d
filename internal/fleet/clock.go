package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Clock is the wall clock of a server of kind Process. It can be set while the server runs. It is
// a file, from which libfaketime (https://github.com/wolfcw/libfaketime) reads the offset of the
// clock.
type Clock string

// Set sets the clock ahead of this machine's clock, or back. The first call must precede the start
// of the server.
func (c Clock) Set(ahead time.Duration) error {
	next := string(c) + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, string(c))
}

// Faketime returns the path of libfaketime. Its error matches ErrUnsupported.
func Faketime() (library string, err error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("%w: libfaketimeMT.so.1 is not installed; on Debian the package is libfaketime", ErrUnsupported)
}

// env returns the environment of the clock's server.
func (c Clock) env() ([]string, error) {
	library, err := Faketime()
	return []string{
		// Replaces jemalloc, which reads the time before the library is ready.
		"LD_PRELOAD=" + library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + string(c), "FAKETIME_NO_CACHE=1",
		// The name differs between versions. Timers must continue to run.
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1",
	}, err
}
