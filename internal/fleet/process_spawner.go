package fleet

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts all of a fleet's processes from one operating system thread.
// On Linux a child's parent-death signal is tied to the thread that forked it,
// and the Go runtime ends threads at will: started from just any
// goroutine, a server could be killed at any time while the process lives.
type spawner struct {
	starts chan startRequest
	done   chan struct{} // closed by close
	ended  sync.WaitGroup
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

func newSpawner() *spawner {
	s := &spawner{starts: make(chan startRequest), done: make(chan struct{})}
	s.ended.Go(func() {
		// Unlocked only when the last child has been waited for.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case r := <-s.starts:
				r.err <- r.cmd.Start()
			case <-s.done:
				return
			}
		}
	})
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	select {
	case s.starts <- r:
		return <-r.err
	case <-s.done:
		return errors.New("the fleet is closed")
	}
}

// close is for when all children have ended.
func (s *spawner) close() {
	close(s.done)
	s.ended.Wait()
}
