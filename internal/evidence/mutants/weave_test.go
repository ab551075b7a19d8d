package main

import (
	"go/format"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFunctionsAreWoven, whatever they are called with, and all else is built apart.
func TestFunctionsAreWoven(t *testing.T) {
	t.Parallel()
	const code = `package half

const two = 2

func (p *pair[T]) half(n, m int, all ...T) error { return p.err }

func other(n int) { println(n) }

func nameless(int) { println(two) }
`
	var all []mutant
	for i, hunks := range []string{
		"code (*pair).half\n@@\n-func ...\n+func (p *pair[T]) half(n, m int, all ...T) error { return nil }\n",
		"code other\n@@\n-func ...\n+func other(n int) { println(-n) }\n",
		"code other\n@@\n-func ...\n+func other(n int) {}\n",
		"code two\n@@\n-const two = 2\n+const two = 3\n",
		"code nameless\n@@\n-func ...\n+func nameless(int) {}\n",
		"code other\n@@\n-func ...\n+func other(m int) { println(m) }\n",
		"lua/half.lua\n@@\n-return 1\n+return 2\n",
	} {
		m, err := parse("m-"+string(rune('0'+i)), "guard: g\nwithout: w\nkilled by: . TestHalf\n\n--- "+hunks)
		require.NoError(t, err)
		all = append(all, m)
	}
	woven, apart, err := weave(fstest.MapFS{"code/half.go": {Data: []byte(code)}, "lua/half.lua": {Data: []byte("return 1")}}, all)
	require.NoError(t, err)
	for i, files := range apart {
		assert.Equal(t, i > 2, files != nil, i)
	}
	got, err := format.Source([]byte(woven["code/half.go"]))
	require.NoError(t, err)
	assert.Equal(t, `package half

const two = 2

func (p *pair[T]) half(n, m int, all ...T) error {
	if chosenMutant == "m-0" {
		return p.half_m_0(n, m, all...)
	}
	return p.err
}

func other(n int) {
	if chosenMutant == "m-1" {
		other_m_1(n)
		return
	}

	if chosenMutant == "m-2" {
		other_m_2(n)
		return
	}
	println(n)
}

func nameless(int) { println(two) }

//line m-0.diff:1
func (p *pair[T]) half_m_0(n, m int, all ...T) error { return nil }

//line m-1.diff:1
func other_m_1(n int) { println(-n) }

//line m-2.diff:1
func other_m_2(n int) {}
`, string(got))
	assert.Contains(t, woven["code/chosen_mutant.go"], "package half\n")
}
