package survey

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
)

// TestMembersKeepTheOrderOfTheBestInformedServer: a server that knows fewer members does not change
// the order.
func TestMembersKeepTheOrderOfTheBestInformedServer(t *testing.T) {
	t.Parallel()
	of := func(ids ...string) (a inspect.Members) {
		for _, id := range ids {
			a.First = append(a.First, inspect.Member{ID: id, Waited: time.Second})
		}
		a.Count = len(ids)
		return a
	}
	order := func(m Members) (ids []string) {
		for _, one := range m.First {
			ids = append(ids, one.ID)
		}
		return ids
	}
	assert.Equal(t, []string{"a", "b", "c"}, order(merge([]inspect.Members{of("c"), of("a", "b", "c"), of("b")})))
	assert.Empty(t, merge([]inspect.Members{of(), of()}).First)
	assert.Equal(t, 2, merge([]inspect.Members{of("a"), of("a")}).First[0].Votes)
}
