// Package foreign has plain locks in other languages, by docs/KEYS.md, which exclude and are excluded
// by those of package redlock. There is no Go here but their test. They read the clock of Linux.
package foreign
