package job

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// wardenProcess keeps the warden off the console, so that neither a Ctrl-C nor a window that is closed
// ends it.
func wardenProcess(int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS}
}

func ownProgram() (string, error) { return os.Executable() }

// wake does nothing: only what is aimed at the warden suspends it.
func (w *warden) wake() {}

// share gives the warden a handle with which it can kill what is in the job object.
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

// startedAsWarden reports whether there is a pipe for orders, as there is none if a person has started
// this process.
func startedAsWarden() bool {
	kind, err := windows.GetFileType(windows.Stdin)
	return err == nil && kind == windows.FILE_TYPE_PIPE
}

// settleAsWarden has the system prefer this process.
func settleAsWarden() {
	windows.SetPriorityClass(windows.CurrentProcess(), windows.HIGH_PRIORITY_CLASS)
}

// killCommand kills what is in the job object.
func killCommand(command int) {
	windows.TerminateJobObject(windows.Handle(command), uint32(SignalCode(syscall.SIGKILL)))
}

// leaveCommand does nothing, because the warden is not in the job object.
func leaveCommand() bool { return true }

var peekNamedPipe = windows.NewLazySystemDLL("kernel32.dll").NewProc("PeekNamedPipe")

// nextOrder returns the next order in the pipe, for which it waits no longer than that. It looks
// once at least, and now and then, because Windows has no way to wait for such a pipe and a time. An
// order is written at once, so it is there as a whole or not at all.
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

// MachineTime returns a reading of a clock that all processes of this machine share and that cannot be
// set: that of GetTickCount64. It continues while the machine sleeps, in steps of 16 ms. It is safe for
// concurrent use.
func MachineTime() time.Duration { return windows.DurationSinceBoot() }
