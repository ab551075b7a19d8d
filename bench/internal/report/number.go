package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// significant writes x with three significant digits and no exponent: 0.0123, 1.23, 12.3, 123,
// 1234.
func significant(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return "0"
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64) // 9.996 is 10.0
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	return strconv.FormatFloat(x, 'f', max(0, digits), 64)
}

// short is significant without the zeros at its end, for axes.
func short(x float64) string {
	s := significant(x)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// A unit is a step of a scale of units.
type unit struct {
	size float64
	name string
}

var (
	ofTime  = []unit{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}}
	ofCount = []unit{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}}
	ofBytes = []unit{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}}
)

// in writes x in the largest unit that leaves it at least 1.
func in(units []unit, x float64, digits func(float64) string) string {
	u := units[0]
	for _, next := range units[1:] {
		// 999.6 would be written as 1000, because three digits are shown.
		if math.Abs(x) >= 0.9995*next.size {
			u = next
		}
	}
	return strings.TrimSpace(digits(x/u.size) + " " + u.name)
}

// span writes a time in nanoseconds: 3.21 ms.
func span(ns float64) string {
	if ns == 0 {
		return "0"
	}
	return in(ofTime, ns, significant)
}

// count writes a number of things: whole below a thousand, else 17.2 k.
func count(x float64) string {
	if math.Abs(x) < 1000 && x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return in(ofCount, x, significant)
}

// countShort and spanShort are without zeros at the end, for axes.
func countShort(x float64) string { return in(ofCount, x, short) }

func spanShort(ns float64) string { return in(ofTime, ns, short) }

func size(bytes float64) string { return in(ofBytes, bytes, significant) }

// whole writes all digits of a number, in groups of three: 12,345.
func whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// ratio writes how many times as much something is.
func ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	switch {
	case x < 0.001:
		return "<0.001×"
	case x < 0.01:
		return fmt.Sprintf("%.3f×", x)
	case x < 100:
		return fmt.Sprintf("%.2f×", x)
	default:
		return count(x) + "×"
	}
}

// percent writes a share.
func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// plural is "1 round", "3 rounds".
func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return whole(int64(n)) + " " + what + "s"
}
