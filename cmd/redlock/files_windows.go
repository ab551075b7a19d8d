package main

import "os"

// descriptors returns the limit of open files of this process, or 0 if it is unknown.
func descriptors() int { return 0 }

// openFiles returns the number of open files of this process, or 0 if it is unknown.
func openFiles() int { return 0 }

// tryLock does nothing. Only the version for Unix locks the file.
func tryLock(*os.File) (isFree bool, err error) { return true, nil }

// ignoreTerminal does nothing, because on Windows a read from a terminal stops no process.
func ignoreTerminal() {}
