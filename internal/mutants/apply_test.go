package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const code = `package half

func half(n int) int {
	if n < 0 {
		return 0
	}
	return n / 2
}

func other() int {
	return 0
}
`

// mutate applies a diff to code.
func mutate(t *testing.T, hunks string) (string, error) {
	t.Helper()
	m, err := parse("m", "guard: g\nwithout: w\nkilled by: . TestHalf\n\n--- half.go\n"+hunks)
	require.NoError(t, err)
	changed, err := m.apply(fstest.MapFS{"half.go": {Data: []byte(code)}})
	return changed["half.go"], err
}

func TestAMutantAppliesWhateverTheIndentation(t *testing.T) {
	t.Parallel()
	got, err := mutate(t, "@@\n-if n < 0 {\n-	return 0\n }\n+n++\n return n / 2\n@@\n-func other() int {\n-	return 0\n-}\n")
	require.NoError(t, err)
	assert.Equal(t, "package half\n\nfunc half(n int) int {\n	}\nn++\n	return n / 2\n}\n\n", got)
}

func TestALineMayBeCutShort(t *testing.T) {
	t.Parallel()
	got, err := mutate(t, "@@\n func half(...\n-if n ...\n+if false {\n")
	require.NoError(t, err)
	assert.Contains(t, got, "func half(n int) int {\nif false {\n		return 0\n")
	_, err = mutate(t, "@@\n-func ...\n")
	assert.ErrorContains(t, err, "both match")
}

func TestAMutantThatDoesNotApplyIsAnError(t *testing.T) {
	t.Parallel()
	_, err := mutate(t, "@@\n-return n / 3\n+return n\n")
	assert.EqualError(t, err, "mutant m: half.go: there is no such place any more:\nreturn n / 3")
	_, err = mutate(t, "@@\n-	return n / 2\n-	}\n-	}\n")
	assert.ErrorContains(t, err, "there is no such place any more")
	_, err = mutate(t, "@@\n-return n / 2\n+return n\n@@\n-return n / 2\n+return 0\n")
	assert.ErrorContains(t, err, "there is no such place any more", "the first hunk took it")
	_, err = mutate(t, "@@\n+return n\n")
	assert.ErrorContains(t, err, "nothing to look for")

	m, err := parse("m", "guard: g\nwithout: w\nkilled by: . TestHalf\n\n--- gone.go\n@@\n-x\n")
	require.NoError(t, err)
	_, err = m.apply(fstest.MapFS{})
	assert.ErrorContains(t, err, "gone.go")
}

func TestAMutantThatAppliesTwiceIsAnError(t *testing.T) {
	t.Parallel()
	_, err := mutate(t, "@@\n-return 0\n+return 1\n")
	assert.EqualError(t, err, "mutant m: half.go: lines 5 and 11 both match:\nreturn 0")
	got, err := mutate(t, "@@\n func other() int {\n-return 0\n+return 1\n")
	require.NoError(t, err, "but what is around it can tell")
	assert.Contains(t, got, "func other() int {\nreturn 1\n}")
}
