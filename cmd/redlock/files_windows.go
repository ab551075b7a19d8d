package main

import "os"

// descriptors returns how many files this process may have open, or 0 if that is not known.
func descriptors() int { return 0 }

// openFiles returns how many files this process has open, or 0 if that is not known.
func openFiles() int { return 0 }

// tryLock locks a file until it is closed, which it does on Unix only.
func tryLock(*os.File) (isFree bool, err error) { return true, nil }
