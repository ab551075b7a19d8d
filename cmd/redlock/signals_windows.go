package main

import "syscall"

// endingSignals end the command, or what it waits for.
var endingSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
