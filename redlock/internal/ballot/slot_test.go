package ballot

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Rounds share grants that say nothing else. A reply that says anything is kept as it is, whichever
// field says it.
func TestOnlyPlainGrantsAreShared(t *testing.T) {
	t.Parallel()
	var g plainGrant
	plain := protocol.Reply{Outcome: protocol.Granted, Run: "a", Life: 5}
	first := g.share(&plain)
	assert.Equal(t, &protocol.Reply{Outcome: protocol.Granted, Run: "a"}, first)
	plain.Life = 6
	assert.Same(t, first, g.share(&plain))
	other := plain
	other.Run = "b"
	assert.Equal(t, "b", g.share(&other).Run)
	assert.Equal(t, "a", g.share(&plain).Run)
	assert.Equal(t, "a", first.Run)

	fields := reflect.TypeFor[protocol.Reply]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if name == "Run" || name == "Life" {
			continue
		}
		reply := protocol.Reply{Outcome: protocol.Granted, Run: "a"}
		field := reflect.ValueOf(&reply).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int, reflect.Int64:
			field.SetInt(1)
		case reflect.Uint8:
			field.SetUint(uint64(protocol.Refused))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Interface:
			field.Set(reflect.ValueOf(assert.AnError))
		default:
			require.Fail(t, "a kind that the test does not know", name)
		}
		assert.Equal(t, &reply, g.share(&reply), name)
	}
}
