//go:build !linux

package serve

import "syscall"

// peerOf describes the process that has connected to a socket. Only Linux names it.
func peerOf(syscall.RawConn) string { return "a local process" }
