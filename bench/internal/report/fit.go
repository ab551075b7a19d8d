package report

import (
	"slices"
	"strings"
)

// textWidth estimates how wide a line of the pictures' 12-pixel text is. Nobody
// knows the reader's font: the widths are those of a wide one.
func textWidth(s string) float64 {
	var w float64
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljtf.,:;'|!()[] ·", r):
			w += 4.6
		case strings.ContainsRune("mwMW@%—…", r):
			w += 11
		case r >= 'A' && r <= 'Z':
			w += 8.4
		case r > 0x2e80: // ideographs
			w += 12
		default:
			w += 7.4
		}
	}
	return w
}

// wrap breaks s at spaces into at most lines lines of w pixels; the last ends in
// an ellipsis if there is more.
func wrap(s string, w float64, lines int) []string {
	var rows []string
	for _, word := range strings.Fields(s) {
		if n := len(rows); n > 0 && textWidth(rows[n-1]+" "+word) <= w {
			rows[n-1] += " " + word
		} else {
			rows = append(rows, word)
		}
	}
	if len(rows) > lines {
		rows[lines-1] = strings.Join(rows[lines-1:], " ") // too long, and so shortened below
		rows = rows[:lines]
	}
	for i := range rows {
		rows[i] = shorten(rows[i], w)
	}
	return rows
}

func shorten(s string, w float64) string {
	if textWidth(s) <= w {
		return s
	}
	runes := []rune(s)
	for len(runes) > 1 && textWidth(string(runes)+"…") > w {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ") + "…"
}

// dodge moves positions apart until they are gap from each other, as little as
// that takes, and keeps them between lo and hi while there is room.
func dodge(at []float64, gap, lo, hi float64) []float64 {
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case at[i] < at[j]:
			return -1
		case at[i] > at[j]:
			return 1
		}
		return 0
	})
	// Neighbours that are too close become a block around the middle of what
	// they want; blocks that then meet become one.
	type block struct{ n, middle float64 }
	var blocks []block
	for _, i := range order {
		blocks = append(blocks, block{n: 1, middle: min(max(at[i], lo), hi)})
		for len(blocks) > 1 {
			a, b := blocks[len(blocks)-2], blocks[len(blocks)-1]
			if b.middle-a.middle >= gap*(a.n+b.n)/2 {
				break
			}
			joined := block{n: a.n + b.n, middle: (a.middle*a.n + b.middle*b.n) / (a.n + b.n)}
			half := gap * (joined.n - 1) / 2
			joined.middle = max(min(joined.middle, hi-half), lo+half)
			blocks = append(blocks[:len(blocks)-2], joined)
		}
	}
	moved := make([]float64, len(at))
	next := 0
	for _, b := range blocks {
		for k := range int(b.n) {
			moved[order[next]] = b.middle + gap*(float64(k)-(b.n-1)/2)
			next++
		}
	}
	return moved
}
