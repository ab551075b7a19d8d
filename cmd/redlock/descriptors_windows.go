package main

// descriptors returns how many files this process may have open, or 0 if that is not known.
func descriptors() int { return 0 }
