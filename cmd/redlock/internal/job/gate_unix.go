//go:build unix

package job

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gateArg, as the first argument, makes the program a gate. It is followed by the number of a
// descriptor, the path of the command, and the arguments of the command including its name.
const gateArg = "__gate"

// A gate is the process of the command before it executes the command. It reads the deadline from a
// connection, and then executes the command, which closes the connection. Otherwise it writes the
// reason: an errno, or tooLate. If the connection ends because the first process has died, the gate
// exits.
//
// The gate may be stopped between its check of the clock and the start of the command. It is in the
// warden's group during that time, so the warden kills it after the deadline, even while it is
// stopped.

// tooLate is the reason if the deadline had passed before the gate got it.
const tooLate = -1

// gatePipe returns both ends of a connection. Executed programs inherit neither.
func gatePipe() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, -1, err
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	return ends[0], ends[1], nil
}

// open sends the deadline to the gate. It fails if the gate has died. In that case wait returns the
// reason.
func (j *Job) open(until time.Duration) {
	unix.Write(j.gate, binary.BigEndian.AppendUint64(nil, uint64(until)))
}

// refusal returns the reason of a gate that ended without executing the command, or nil.
func (j *Job) refusal() error {
	var text [8]byte
	n, _, err := unix.Recvfrom(j.gate, text[:], unix.MSG_DONTWAIT)
	if err != nil || n < len(text) {
		return nil
	}
	switch why := int64(binary.BigEndian.Uint64(text[:])); why {
	case tooLate:
		return j.notStarted()
	default:
		return &fs.PathError{Op: "exec", Path: j.command.Path, Err: syscall.Errno(why)}
	}
}

// gateMain runs the gate. It returns an exit code if the command is not executed.
func gateMain(args []string) int {
	if len(args) < 3 {
		return forOwnUse(gateArg)
	}
	conn, err := strconv.Atoi(args[0])
	if err != nil {
		return forOwnUse(gateArg)
	}
	if kind, err := unix.GetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return forOwnUse(gateArg)
	}
	unix.CloseOnExec(conn)
	quit := make(chan os.Signal, 1) // otherwise the signal would print all goroutines of this program
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		<-quit
		os.Exit(SignalCode(syscall.SIGQUIT))
	}()
	until, ok := readDeadline(conn)
	switch {
	case !ok:
		return 1
	case MachineTime() >= until:
		refuse(conn, tooLate)
		return 1
	}
	refuse(conn, int64(execute(args[1], args[2:])))
	return 126
}

// readDeadline waits for the deadline, and reports whether it arrived.
func readDeadline(conn int) (until time.Duration, ok bool) {
	var text [8]byte
	for {
		n, err := unix.Read(conn, text[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return time.Duration(binary.BigEndian.Uint64(text[:])), n == len(text)
	}
}

// refuse sends the first process the reason the command is not executed.
func refuse(conn int, why int64) {
	unix.Write(conn, binary.BigEndian.AppendUint64(nil, uint64(why)))
}

// execute replaces this process by the command, with its environment and descriptors. It returns
// only if that fails, with the reason.
func execute(path string, argv []string) syscall.Errno {
	err := syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, unix.ENOEXEC) && isText(path) { // a script without #!, as in execvp(3)
		err = syscall.Exec(interpreter, append([]string{interpreter, path}, argv[1:]...), os.Environ())
	}
	why, _ := errors.AsType[syscall.Errno](err)
	return why
}

// interpreter runs scripts without a #! line.
const interpreter = "/bin/sh"

// isText reports whether a file looks like a script, and not like a program for another kind of
// machine.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	return bytes.IndexByte(head[:n], 0) < 0
}
