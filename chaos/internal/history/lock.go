package history

import (
	"fmt"
	"strings"
)

// A Lock is a kind of lock.
type Lock string

// The kinds of locks. All but Shared are writers: of the name, of each name of a set, or of one of
// the slots that a name with permits has.
const (
	Plain        Lock = "plain"
	Fenced       Lock = "fenced" // with a token
	Shared       Lock = "shared" // of a reader
	Set          Lock = "set"    // of several names
	Permit       Lock = "permit" // one of several
	FencedPermit Lock = "fenced-permit"
)

// Locks are all of them.
var Locks = []Lock{Plain, Fenced, Shared, Set, Permit, FencedPermit}

// HasToken reports whether locks of the kind have fencing tokens.
func (l Lock) HasToken() bool { return l == Fenced || l == FencedPermit }

// IsPermit reports whether others may hold the name at the same time, with permits of their own.
func (l Lock) IsPermit() bool { return l == Permit || l == FencedPermit }

// NameOfSet is the Name of a lock of several names.
func NameOfSet(names []string) string { return strings.Join(names, "+") }

// Slot is the key of a permit of a name. That of the first permit is the name: who locks it without
// permits excludes the holder of that one.
func Slot(name string, permit int) string {
	if permit == 0 {
		return name
	}
	return fmt.Sprintf("%s permit %d", name, permit)
}
