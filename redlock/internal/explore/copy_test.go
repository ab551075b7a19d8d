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

// shared are types whose values never change, so copies may share them.
var shared = map[reflect.Type]bool{
	reflect.TypeFor[core.Group]():  true,
	reflect.TypeFor[core.Terms]():  true,
	reflect.TypeFor[guard.Terms](): true,

	reflect.TypeFor[protocol.QuarantineError](): true,
}

var errorType = reflect.TypeFor[error]()

// A copier makes copies of plain data, with the pointers in it. It knows what it has copied, by address and type,
// because the first field of a struct has the address of the struct.
type copier map[address]reflect.Value

type address struct {
	at unsafe.Pointer
	of reflect.Type
}

// copied returns a copy of what x points to.
func copied[T any](x *T) *T { return copier{}.copy(reflect.ValueOf(x)).Interface().(*T) }

// copy returns a pointer to a copy of what p points to.
func (c copier) copy(p reflect.Value) reflect.Value {
	at := address{p.UnsafePointer(), p.Type()}
	if done, ok := c[at]; ok {
		return done
	}
	fresh := reflect.New(p.Type().Elem())
	c[at] = fresh
	fresh.Elem().Set(p.Elem())
	c.mend(fresh.Elem())
	return fresh
}

// mend has a part of a copy point to copies. Values in interfaces that are no pointers never change.
func (c copier) mend(v reflect.Value) {
	if !hasPointers(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !shared[v.Type().Elem()] {
			v.Set(c.copy(v))
		}
	case reflect.Interface:
		if p := v.Elem(); p.Kind() == reflect.Pointer && v.Type() != errorType && !shared[p.Type().Elem()] {
			v.Set(c.copy(p))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		all := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(all, v)
		for i := range v.Len() {
			c.mend(all.Index(i))
		}
		v.Set(all)
	case reflect.Array:
		for i := range v.Len() {
			c.mend(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			c.mend(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()) // also of a field that is not exported
		}
	}
}

var withPointers sync.Map // bool by reflect.Type

// hasPointers reports whether a copy of a value has something to mend.
func hasPointers(t reflect.Type) (has bool) {
	if known, ok := withPointers.Load(t); ok {
		return known.(bool)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice:
		has = true
	case reflect.Array:
		has = hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			has = hasPointers(t.Field(i).Type) || has
		}
	case reflect.Map, reflect.Chan:
		panic("no copies of " + t.String())
	}
	withPointers.Store(t, has)
	return has
}

// A sliceHead is what a slice is in memory.
type sliceHead struct {
	first    unsafe.Pointer
	len, cap int
}

// TestAWorldIsPlainData: a copy of a world that is under way goes on as the world does, step by step, and
// neither changes the other.
func TestAWorldIsPlainData(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		s := scenarios[int(seed)%len(scenarios)].begin()
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
