package fleet

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processStart is the process's start in clock ticks since boot, and whether it
// lives. A zombie does not: nothing runs in it any more.
func processStart(pid int) (start string, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		// ESRCH: it ended while being read. Any other error says nothing; when in
		// doubt, it lives.
		return "0", !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	// The name, second and in parentheses, may hold blanks and parentheses.
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := strings.Fields(string(rest)) // the state, field 3 of proc(5), comes first
	if len(fields) < 20 {
		return "0", true
	}
	return fields[19], fields[0] != "Z" && fields[0] != "X"
}

func pidNamespace() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}
