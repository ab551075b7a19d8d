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

// EndingSignals end this process, or what it waits for. The first stands for Ctrl-C and Ctrl-Break, the
// second for a window that is closed, a user who logs off and the end of Windows.
var EndingSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// groupSignals are passed on to the command, as a Ctrl-Break.
var groupSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// A system is what Windows knows of a command. All its processes are in the job object, and cannot
// leave it. Those that have the console and did not make a group of their own are in the group.
type system struct {
	object windows.Handle
	child  windows.Handle // is open until all has ended, so that the group's number is no other's
	group  uint32

	notResumed error
}

var (
	ntdll           = windows.NewLazySystemDLL("ntdll.dll")
	ntResumeProcess = ntdll.NewProc("NtResumeProcess")
)

// gateArg makes no program a gate here: the process of the command is suspended instead.
const gateArg = "__gate"

func gateMain([]string) int { return forOwnUse(gateArg) }

// start starts the command, suspended, in a job object that the warden shares, and follows what becomes
// of it.
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
		cmd.Wait() // the code tells
		j.changes <- change{ended: true, code: cmd.ProcessState.ExitCode()}
	}()
	return nil
}

// enclose puts a suspended process into a job object that the warden shares. Windows
// kills what is in the object when its last handle is closed: should redlock and the warden be killed
// both, that ends the command, too.
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

// open resumes the command. The warden has it: should this process be suspended before, the warden ends
// the command at its deadline, suspended as it is.
func (j *Job) open(time.Duration) {
	if status, _, _ := ntResumeProcess.Call(uintptr(j.child)); status != 0 {
		j.notResumed = windows.NTStatus(status)
		j.kill()
	}
}

// refusal returns why the command could not be resumed, or nil.
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

// changed has nothing to do: what the command leaves behind is still in the object.
func (j *Job) changed(change) {}

// finish closes the object.
func (j *Job) finish() {
	windows.CloseHandle(j.child)
	windows.CloseHandle(j.object)
}

// ask asks all of the command to end, and reports whether it could: only those can be asked who have a
// console, and the same as this process.
func (j *Job) ask() bool {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, j.group) == nil
}

// forward passes a signal on.
func (j *Job) forward(syscall.Signal) {
	j.ending = true
	j.ask()
}

// isForeign reports whether the command is out of reach: nothing can leave a job object.
func (j *Job) isForeign() bool { return false }

func (j *Job) kill() { killCommand(int(j.object)) }

// gone reports whether nothing is left in the object.
func (j *Job) gone() bool {
	var count struct { // JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		userTime, kernelTime, periodUserTime, periodKernelTime int64
		faults, total, active, terminated                      uint32
	}
	err := windows.QueryInformationJobObject(j.object, windows.JobObjectBasicAccountingInformation, uintptr(unsafe.Pointer(&count)), uint32(unsafe.Sizeof(count)), nil)
	return err == nil && count.active == 0
}
