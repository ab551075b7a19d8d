package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// significant writes x with three significant digits and no exponent: 0.0123, 1.23, 12.3, 123, 1234.
func significant(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return "0"
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64) // 9.996 is 10.0
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	return strconv.FormatFloat(x, 'f', max(0, digits), 64)
}

// short is like significant, without trailing zeros, for axes.
func short(x float64) string {
	s := significant(x)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// in writes x in the largest unit that leaves it at least 1. Units are a factor of 1000 apart.
func in(units string, x float64, digits func(float64) string) string {
	if x == 0 {
		return "0"
	}
	all := strings.Split(units, " ")
	for math.Abs(x) >= 999.5 && len(all) > 1 { // 999.6 would be written as 1000
		x, all = x/1000, all[1:]
	}
	return strings.TrimSpace(digits(x) + " " + all[0])
}

// span writes a time in nanoseconds: 3.21 ms.
func span(ns float64) string { return in("ns µs ms s", ns, significant) }

// spanShort is like span, without trailing zeros.
func spanShort(ns float64) string { return in("ns µs ms s", ns, short) }

// count writes a number: as a whole number below a thousand, otherwise like 17.2 k.
func count(x float64) string {
	if math.Abs(x) < 1000 && x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return in(" k M G", x, significant)
}

func size(bytes float64) string { return in("B kB MB GB", bytes, significant) }

// whole writes all digits of a number in groups of three: 12,345.
func whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func ratio(x float64) string {
	switch {
	case x == 0:
		return "-"
	case x < 0.01:
		return fmt.Sprintf("%.3f×", x)
	}
	return fmt.Sprintf("%.2f×", x)
}

func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// plural writes a number with its noun: "1 round", "3 rounds".
func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return whole(int64(n)) + " " + what + "s"
}
