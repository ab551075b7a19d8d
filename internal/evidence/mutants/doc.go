// Command mutants is the mutation gate: it breaks one guard of the library at a
// time and sees to it that a named test notices. A safety test that no fault
// can fail is not a test.
//
//	go run ./internal/evidence/mutants                    # all of them, as make mutants does
//	go run ./internal/evidence/mutants -v 'quorum-*'      # some, with what the tests said
//
// The exit code is 1 if a mutant survived, or did not even get to its test.
//
// # A mutant
//
// A mutant is a file of the folder list, which is read as a diff without line
// numbers:
//
//	guard: a quorum is more than half of the nodes
//	without: two halves of four nodes lock for two clients
//	killed by: . TestQuorumSchedules -schedules=2000
//	says: P1:
//
//	--- redlock/internal/quorum Tally.Quorum
//	@@
//	-func (t Tally) Quorum() int { return t.Nodes/2 + 1 }
//	+func (t Tally) Quorum() int { return (t.Nodes + 1) / 2 }
//
// killed by names a package's folder, its test, and the test's own flags. says, if given, is a text that
// the failure must contain: a test that guards several promises must fail for the right one. hangs: yes
// is for a fault that makes the test hang rather than fail.
//
// A hunk is addressed by a package's folder and a declaration in it: newValue,
// Tally.Quorum or (*Lock).end, as in a stack trace, or the name of a type, a variable or a
// constant that is declared by itself. Its file does not matter, so a function can be moved.
// A Lua script is addressed by its path.
//
// The lines of a hunk marked - and those marked with a space are looked for
// there, with any indentation: they must be there, and in one place
// only. One that ends in ... stands for a line that begins so. A mutant that
// does not apply any more is an error, since a guard that was rewritten needs
// its mutant rewritten; go test finds that without running any. It also finds
// a mutant that does not compile. Tests cannot be mutated.
//
// There is one mutant for each guard. Variants of a fault are for the tests.
//
// # What counts
//
// First the tests must pass on the code as it is. Then a mutant is killed if the test that it names
// ran and failed by itself: another test's failure does not count, nor a panic, nor the time limit,
// unless the mutant hangs. One that does not compile ends all.
//
// # How it is fast
//
// Linking a test takes longer than most tests, so mutants of functions are woven into one copy of the
// code, and a variable of the environment says which of them a run is (see weaver). Those of scripts,
// of variables and of signatures are built one by one: a test in a small package is the better killer.
//
// Nothing is written to the tree: the changed files go to a temporary folder, and to the compiler by
// go test -overlay.
package main
