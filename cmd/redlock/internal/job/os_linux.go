package job

import "golang.org/x/sys/unix"

// machineClock is the same for all processes, and keeps running while the machine sleeps.
const machineClock = unix.CLOCK_BOOTTIME

// adoptOrphans makes this process the parent of processes left by the command, so that it can wait
// for their end. The init process of a container does not always wait for them.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// hurry raises the priority of this thread. It needs CAP_SYS_NICE, or RLIMIT_RTPRIO and RLIMIT_NICE
// for the two kinds of priority. Without these rights the priority stays the same.
func hurry() {
	unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}
