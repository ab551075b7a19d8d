package reread

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// ReapOrphans waits for the end of processes left by password commands if this process is the init
// process of a container, because otherwise they would stay as zombies. It returns immediately, and
// continues until this process ends. It must not be used together with code that waits for all
// children.
func ReapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	go func() {
		for range ends {
			reapOrphans()
		}
	}()
}

// reapOrphans reaps all dead children except the password commands, for which exec.Cmd waits.
func reapOrphans() {
	starting.Lock()
	defer starting.Unlock()
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, f := range folders {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || underWay[pid] {
			continue
		}
		stat, err := os.ReadFile("/proc/" + f.Name() + "/stat")
		if end := bytes.LastIndexByte(stat, ')'); err == nil && bytes.HasPrefix(stat[end+1:], []byte(" Z 1 ")) {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
