// Command bench shows what a quorum lock costs and how it behaves when nodes
// fail, side by side with other libraries on the same servers in the same run.
//
//	go -C bench run .                                     on nodes in this process: to try it, says nothing of speed
//	go -C bench run . --nodes process                     on five redis-server processes
//	go -C bench run . --nodes process --scenario pause --html pause.html
//	go -C bench run . --nodes redis://a:6379,redis://b:6379,redis://c:6379
//	go -C bench run . --list                              the scenarios, and the libraries
//
// A scenario is a file of flags, which flags on the command line override. Machines
// differ and are shared, so that only ratios within one run mean something.
//
// Data flow: options.go makes a plan of the flags, bench.go runs its trials one
// after the other and fills a record.Run, output.go shows it.
package main
