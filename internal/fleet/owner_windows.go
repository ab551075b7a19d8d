package fleet

import "os"

// processStart leaves the start out, so a pid that was used again keeps
// leftovers for as long as its new owner lives.
func processStart(pid int) (start string, alive bool) {
	p, err := os.FindProcess(pid) // opens the process, so it fails if there is none
	if err != nil {
		return "0", false
	}
	p.Release()
	return "0", true
}

func pidNamespace() string { return "" }
