package job

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// EndingSignals end this process, or its current wait. The first one stands for Ctrl-C and
// Ctrl-Break, the second for a closed window, a logoff and the shutdown of Windows.
var EndingSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// groupSignals are forwarded to the command, as a Ctrl-Break.
var groupSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// A system holds the Windows state of a command. All its processes are in the job object, and
// cannot leave it. Processes that share the console and did not create their own group are in the
// group.
type system struct {
	object windows.Handle
	child  windows.Handle // stays open until all processes have ended, so that no other group gets the number
	group  uint32

	notResumed error
}

var (
	ntdll           = windows.NewLazySystemDLL("ntdll.dll")
	ntResumeProcess = ntdll.NewProc("NtResumeProcess")
)

// gateArg never makes a program a gate on Windows: the process of the command is suspended instead.
const gateArg = "__gate"

func gateMain([]string) int { return forOwnUse(gateArg) }

// start starts the command, suspended, in a job object shared with the warden, and starts to follow
// the process.
func (j *Job) start(env []string) error {
	cmd := &exec.Cmd{
		Path: j.command.Path, Args: j.command.Argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP},
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := j.enclose(uint32(cmd.Process.Pid)); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("cannot put the command into a job object: %w", err)
	}
	j.changes = make(chan change, 1)
	go func() {
		cmd.Wait() // the exit code is checked
		j.changes <- change{ended: true, code: cmd.ProcessState.ExitCode()}
	}()
	return nil
}

// enclose puts a suspended process into a job object shared with the warden. Windows kills all
// processes of the object when its last handle is closed, so if both redlock and the warden are
// killed, the command ends, too.
func (j *Job) enclose(pid uint32) error {
	var err error
	if j.object, err = windows.CreateJobObject(nil, nil); err != nil {
		return err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err = windows.SetInformationJobObject(j.object, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return err
	}
	j.group = pid
	if j.child, err = windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, pid); err != nil {
		return err
	}
	if err = windows.AssignProcessToJobObject(j.object, j.child); err != nil {
		return err
	}
	return j.warden.share(j.object)
}

// open resumes the command. The warden knows it: if this process is suspended before, the warden
// ends the suspended command at its deadline.
func (j *Job) open(time.Duration) {
	if status, _, _ := ntResumeProcess.Call(uintptr(j.child)); status != 0 {
		j.notResumed = windows.NTStatus(status)
		j.kill()
	}
}

// refusal returns the reason the command could not be resumed, or nil.
func (j *Job) refusal() error { return j.notResumed }

// anotherWarden starts a warden and shares the job object with it.
func (j *Job) anotherWarden() (*warden, error) {
	w, err := startWarden(0, j.lease.left(), endAt(j.lease.until))
	if err != nil {
		return nil, err
	}
	if err := w.share(j.object); err != nil {
		w.dismiss()
		return nil, err
	}
	return w, nil
}

// changed does nothing: processes left by the command are still in the object.
func (j *Job) changed(change) {}

// finish closes the object.
func (j *Job) finish() {
	windows.CloseHandle(j.child)
	windows.CloseHandle(j.object)
}

// ask asks all processes of the command to end, and reports whether that was possible: only
// processes on the same console as this process can be asked.
func (j *Job) ask() bool {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, j.group) == nil
}

// forward forwards a signal.
func (j *Job) forward(syscall.Signal) {
	j.ending = true
	j.ask()
}

// isForeign returns false, because no process can leave a job object.
func (j *Job) isForeign() bool { return false }

func (j *Job) kill() { killCommand(int(j.object)) }

// gone reports whether the object is empty.
func (j *Job) gone() bool {
	var count struct { // JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		userTime, kernelTime, periodUserTime, periodKernelTime int64
		faults, total, active, terminated                      uint32
	}
	err := windows.QueryInformationJobObject(j.object, windows.JobObjectBasicAccountingInformation, uintptr(unsafe.Pointer(&count)), uint32(unsafe.Sizeof(count)), nil)
	return err == nil && count.active == 0
}
