//go:build !linux

package serve

import "syscall"

// tellsHalfClose is whether isShut, isOver and unsent know, which is on Linux only. Elsewhere a client that shuts
// down its writing side is taken for one that has left.
const tellsHalfClose = false

func isShut(uintptr) bool { return true }

func isOver(uintptr) bool { return true }

func unsent(uintptr) (left int, isReset bool) { return 0, false }

// peerOf says that a process has connected to a socket: which one is told on Linux only.
func peerOf(syscall.RawConn) string { return "a local process" }
