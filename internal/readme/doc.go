// Package readme holds README files to the code that the tests compile and run.
package readme
