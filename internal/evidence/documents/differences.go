package documents

import "strings"

// Differences returns the lines in which two texts differ, each below the line "package NAME" before
// it, if there is one.
func Differences(before, after string) (lines []string) {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	same := make([][]int, len(a)+1) // lines that the ends of a and b have in common
	same[len(a)] = make([]int, len(b)+1)
	for i := len(a) - 1; i >= 0; i-- {
		same[i] = make([]int, len(b)+1)
		for k := len(b) - 1; k >= 0; k-- {
			if same[i][k] = max(same[i+1][k], same[i][k+1]); a[i] == b[k] {
				same[i][k] = 1 + same[i+1][k+1]
			}
		}
	}
	within, told := "", ""
	tell := func(line string) {
		if within != told {
			lines, told = append(lines, within), within
		}
		lines = append(lines, line)
	}
	for i, k := 0, 0; i < len(a) || k < len(b); {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			if strings.HasPrefix(a[i], "package ") {
				within = a[i]
			}
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && same[i+1][k] >= same[i][k+1]:
			tell("- " + a[i])
			i++
		default:
			tell("+ " + b[k])
			k++
		}
	}
	return lines
}
