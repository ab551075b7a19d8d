package job

import "golang.org/x/sys/unix"

// machineClock is the same for all processes and goes on while the machine sleeps.
const machineClock = unix.CLOCK_BOOTTIME

// adoptOrphans makes us the parent of processes that the command leaves behind, so that we can
// wait for their end. Not every init process of a container does.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// hurry has the kernel run this thread before others. It needs CAP_SYS_NICE, or RLIMIT_RTPRIO for
// the one and RLIMIT_NICE for the other; without them the thread is one of many.
func hurry() {
	unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}
