// Package foreign contains plain locks in other languages, written from docs/KEYS.md. These locks
// and the locks of package redlock exclude each other. The only Go code here is their test. The
// programs read the Linux clock.
package foreign
