package documents_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cells returns the rows of a document's table that begin with a cell that is wanted, by that cell.
func cells(markdown string, wanted func(first string) bool) (rows [][]string) {
	for line := range strings.Lines(markdown) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if len(row) > 1 && wanted(row[0]) {
			rows = append(rows, row)
		}
	}
	return rows
}

// number reads the number that a cell begins with.
func number(t *testing.T, cell string) float64 {
	t.Helper()
	word, _, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseFloat(strings.ReplaceAll(word, ",", ""), 64)
	require.NoError(t, err, cell)
	return n
}

// TestTheScaleIsComputedFromWhatIsMeasured: the figures of docs/SCALE.md are those of the pages that it
// names, and its tables follow from them.
func TestTheScaleIsComputedFromWhatIsMeasured(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/SCALE.md")
	operating, benchmarks := read(t, "docs/OPERATING.md"), read(t, "docs/BENCHMARKS.md")

	before, page, found := strings.Cut(page, "\n    groups ")
	require.True(t, found)
	var f []float64
	for _, row := range cells(before, func(first string) bool { return first != "" && first != "Figure" && !strings.HasPrefix(first, "-") }) {
		f = append(f, number(t, row[1]))
	}
	require.Len(t, f, 8)
	cycle, clientCycle, renewals, renewal, clientRenewal, memory, clientMemory, use := f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]/100
	assert.Contains(t, operating, fmt.Sprintf("6 to %g µs of CPU", cycle))
	assert.Contains(t, operating, fmt.Sprintf("%g renewals in each TTL, 12 to 20 µs of CPU each; two thirds of that where", renewals))
	assert.Equal(t, math.Floor(20.*2/3), renewal)
	assert.Contains(t, operating, fmt.Sprintf("| memory of a lock that is held | %g bytes", memory))
	ours := cells(benchmarks, func(first string) bool { return first == "redquorum" })
	steady, million := ours[0], ours[len(ours)-1]
	assert.Equal(t, fmt.Sprintf("%g µs", clientCycle), steady[6], "client CPU of the first table")
	assert.Equal(t, []string{fmt.Sprintf("%g B", clientMemory), "187 B"}, million[3:5], "memory of a million locks")
	assert.Contains(t, benchmarks, "57,000 times a second")
	assert.Equal(t, math.Ceil(number(t, million[5])/100/57_000*1e6), clientRenewal)
	for _, formula := range []string{
		fmt.Sprintf("= (locks a second * %g µs + renewals a second * %g µs) / %g %%, rounded up", cycle, renewal, 100*use),
		fmt.Sprintf("= locks held * %g bytes / groups", memory),
		fmt.Sprintf("= locks a second * %g µs + renewals a second * %g µs", clientCycle, clientRenewal),
		fmt.Sprintf("= locks held * %g / TTL", renewals),
	} {
		assert.Contains(t, page, formula+"\n")
	}

	isNumber := func(first string) bool { return first != "" && first[0] >= '0' && first[0] <= '9' }
	rates, held, found := strings.Cut(page, "\n## 1,000,000,000 locks held\n")
	require.True(t, found)
	rows := cells(rates, isNumber)
	assert.Len(t, rows, 3)
	groups := func(locks, renewed float64) int {
		return int(math.Ceil((locks*cycle + renewed*renewal) / 1e6 / use))
	}
	for _, row := range rows {
		locks := number(t, row[0])
		n := groups(locks, 0)
		assert.Equal(t, []string{row[0], thousands(n), thousands(3 * n), thousands(int(math.Ceil(locks * clientCycle / 1e6)))}, row)
	}
	rows = cells(held, isNumber)
	assert.Len(t, rows, 3)
	for _, row := range rows {
		const all = 1e9
		renewed := math.Ceil(all * renewals / number(t, row[0]))
		n := groups(0, renewed)
		gigabytes := all * memory / float64(n) / 1e9
		digits := 1
		if gigabytes < 1 {
			digits = 2
		}
		assert.Equal(t, []string{
			row[0], thousands(int(renewed)), thousands(n), thousands(3 * n), fmt.Sprintf("%.*f GB", digits, gigabytes),
			thousands(int(math.Ceil(renewed * clientRenewal / 1e6))),
		}, row)
	}
	assert.Contains(t, held, fmt.Sprintf("The clients have %g GB.", clientMemory))
}
