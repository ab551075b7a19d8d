package job

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// wardenProcess detaches the warden from the console, so that neither a Ctrl-C nor the closing of a
// window ends it.
func wardenProcess(int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS}
}

func ownProgram() (string, error) { return os.Executable() }

// wake does nothing, because a warden is suspended only on purpose.
func (w *warden) wake() {}

// share gives the warden a handle with which it can kill all processes in the job object.
func (w *warden) share(object windows.Handle) error {
	const jobObjectTerminate = 0x8
	process, err := windows.OpenProcess(windows.PROCESS_DUP_HANDLE, false, uint32(w.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	var theirs windows.Handle
	if err := windows.DuplicateHandle(windows.CurrentProcess(), object, process, &theirs, jobObjectTerminate, false, 0); err != nil {
		return err
	}
	w.setCommand(int(theirs))
	return nil
}

// startedAsWarden reports whether this process has a pipe for orders. A process that a person
// started has no such pipe.
func startedAsWarden() bool {
	kind, err := windows.GetFileType(windows.Stdin)
	return err == nil && kind == windows.FILE_TYPE_PIPE
}

// settleAsWarden raises the priority of this process.
func settleAsWarden() {
	windows.SetPriorityClass(windows.CurrentProcess(), windows.HIGH_PRIORITY_CLASS)
}

// killCommand kills all processes in the job object.
func killCommand(command int) {
	windows.TerminateJobObject(windows.Handle(command), uint32(SignalCode(syscall.SIGKILL)))
}

// leaveCommand does nothing, because the warden is not in the job object.
func leaveCommand() bool { return true }

var peekNamedPipe = windows.NewLazySystemDLL("kernel32.dll").NewProc("PeekNamedPipe")

// nextOrder returns the next order in the pipe. It waits for at most patience, and checks at least
// once. It polls, because Windows cannot wait for such a pipe with a timeout. An order is written
// in one piece, so it is either complete or absent.
func nextOrder(pipe syscall.Handle, patience time.Duration) order {
	for late := MachineTime() + patience; ; time.Sleep(20 * time.Millisecond) {
		var there uint32
		var text [orderSize]byte
		switch ok, _, _ := peekNamedPipe.Call(uintptr(pipe), 0, 0, 0, uintptr(unsafe.Pointer(&there)), 0); {
		case ok == 0:
			return order{Do: widowed}
		case there > 0:
			if n, _ := syscall.Read(pipe, text[:]); n < len(text) {
				return order{Do: widowed}
			}
			return orderOf(text)
		case MachineTime() >= late:
			return order{Do: silence}
		}
	}
}

// MachineTime returns a reading of a clock that all processes of this machine share and that cannot
// be set: GetTickCount64. It keeps running while the machine sleeps, in steps of 16 ms. It is safe
// for concurrent use.
func MachineTime() time.Duration { return windows.DurationSinceBoot() }
