package explore

import (
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// Copies of plain data, with the pointers in it. What is to be done for a type is found out once, by
// reflection, and then done by address.

// shared are types whose values never change, so copies may share them.
var shared = map[reflect.Type]bool{
	reflect.TypeFor[core.Group]():  true,
	reflect.TypeFor[core.Terms]():  true,
	reflect.TypeFor[guard.Terms](): true,

	reflect.TypeFor[protocol.QuarantineError](): true,
}

var errorType = reflect.TypeFor[error]()

// A copier knows what it has copied.
type copier struct{ known []known }

// A known value was copied. The first field of a struct has the address of the struct.
type known struct {
	from, to unsafe.Pointer
	of       *copying
}

// A copying is how values of a type are copied: first as they are, and then some parts are mended.
type copying struct {
	of    reflect.Type
	mends []mend
}

// A mend makes a part of a copy, which is at an offset, the copy's own.
type mend struct {
	offset uintptr
	do     func(c *copier, at unsafe.Pointer)
}

var copyings sync.Map // by reflect.Type

// copied returns a copy of what x points to.
func copied[T any](x *T) *T {
	c := copier{known: make([]known, 0, 64)}
	return (*T)(c.copy(copyingOf(reflect.TypeFor[T]()), unsafe.Pointer(x)))
}

func copyingOf(t reflect.Type) *copying {
	if known, ok := copyings.Load(t); ok {
		return known.(*copying)
	}
	first, _ := copyings.LoadOrStore(t, &copying{t, mendsOf(t)})
	return first.(*copying)
}

// copy returns a copy of what is at an address.
func (c *copier) copy(p *copying, from unsafe.Pointer) unsafe.Pointer {
	for i := range c.known {
		if k := &c.known[i]; k.from == from && k.of == p {
			return k.to
		}
	}
	fresh := reflect.New(p.of)
	fresh.Elem().Set(reflect.NewAt(p.of, from).Elem())
	to := fresh.UnsafePointer()
	c.known = append(c.known, known{from, to, p})
	c.mend(p.mends, to)
	return to
}

func (c *copier) mend(mends []mend, at unsafe.Pointer) {
	for i := range mends {
		mends[i].do(c, unsafe.Add(at, mends[i].offset))
	}
}

// mendsOf returns what is to be mended in a copy of a value.
func mendsOf(t reflect.Type) (mends []mend) {
	switch t.Kind() {
	case reflect.Pointer:
		if !shared[t.Elem()] {
			return []mend{{do: mendPointer(t)}}
		}
	case reflect.Slice:
		return []mend{{do: mendSlice(t)}}
	case reflect.Interface:
		if t != errorType {
			return []mend{{do: mendInterface(t)}}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			for _, m := range mendsOf(f.Type) {
				mends = append(mends, mend{f.Offset + m.offset, m.do})
			}
		}
	case reflect.Array:
		for i := range t.Len() {
			for _, m := range mendsOf(t.Elem()) {
				mends = append(mends, mend{uintptr(i)*t.Elem().Size() + m.offset, m.do})
			}
		}
	case reflect.Map, reflect.Chan:
		panic("no copies of " + t.String())
	}
	return mends
}

func mendPointer(t reflect.Type) func(*copier, unsafe.Pointer) {
	var of *copying
	var once sync.Once
	return func(c *copier, at unsafe.Pointer) {
		if p := (*unsafe.Pointer)(at); *p != nil {
			once.Do(func() { of = copyingOf(t.Elem()) }) // a type may have pointers to itself
			*p = c.copy(of, *p)
		}
	}
}

// A sliceHead is what a slice is in memory.
type sliceHead struct {
	first    unsafe.Pointer
	len, cap int
}

func mendSlice(t reflect.Type) func(*copier, unsafe.Pointer) {
	mends, size := mendsOf(t.Elem()), t.Elem().Size()
	return func(c *copier, at unsafe.Pointer) {
		s := (*sliceHead)(at)
		if s.cap = s.len; s.len == 0 {
			s.first = nil
			return
		}
		fresh := reflect.MakeSlice(t, s.len, s.len)
		reflect.Copy(fresh, reflect.NewAt(t, at).Elem())
		s.first = fresh.UnsafePointer()
		for i := range uintptr(s.len) {
			if c.mend(mends, unsafe.Add(s.first, i*size)); len(mends) == 0 {
				break
			}
		}
	}
}

// mendInterface mends an interface with a pointer in it. Other values in interfaces never change.
func mendInterface(t reflect.Type) func(*copier, unsafe.Pointer) {
	return func(c *copier, at unsafe.Pointer) {
		v := reflect.NewAt(t, at).Elem()
		if v.IsNil() {
			return
		}
		if of := v.Elem().Type(); of.Kind() == reflect.Pointer && !shared[of.Elem()] {
			words := (*[2]unsafe.Pointer)(at)
			words[1] = c.copy(copyingOf(of.Elem()), words[1])
		}
	}
}

// TestAWorldIsPlainData: a copy of a world that is under way goes on as the world does, step by step, and
// neither changes the other.
func TestAWorldIsPlainData(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		s := scenarios[int(seed)%len(scenarios)].begin(options{})
		for range 40 {
			moves := s.moves()
			if len(moves) == 0 {
				break
			}
			m := moves[int(seed*7+uint64(len(moves)))%len(moves)]
			before := s.fresh()
			c, d := s.copy(), s.copy()
			c.make(m)
			assert.Equal(t, before, s.fresh(), "what happens to a copy does not happen to the world")
			d.make(m)
			assert.Equal(t, c.fresh(), d.fresh(), "a copy goes on as the other does")
			s = d
		}
	}
}

// fresh is the hash without what is known of it.
func (s *search) fresh() uint64 {
	for _, p := range s.processes {
		p.print = print{}
	}
	return s.hash()
}
