package report

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumbersHaveThreeDigitsAndAUnit(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0":         span(0),
		"1.00 µs":   span(999.9),
		"62.3 µs":   span(62_345),
		"1.00 ms":   span(999_960),
		"10.0 s":    span(9.996e9),
		"120 s":     span(120e9),
		"17.2 k":    count(17_234),
		"999":       count(999),
		"1.00 k":    count(999.9),
		"3.42":      count(3.4199),
		"0.0123":    significant(0.012345),
		"169 B":     size(168.7),
		"2.30 kB":   size(2300),
		"1,234,567": whole(1234567),
		"-1,234":    whole(-1234),
		"123":       whole(123),
		"0.21×":     ratio(0.211),
		"0.002×":    ratio(0.0021),
		"<0.001×":   ratio(1e-6),
		"5.00 k×":   ratio(5000),
		"-":         ratio(0),
		"0.0 %":     percent(0),
		"1.5 %":     percent(0.0146),
		"100 %":     percent(1),
		"1 round":   plural(1, "round"),
		"3 rounds":  plural(3, "round"),
		"2":         short(2.000),
		"0.3":       short(0.30000000004),
	} {
		assert.Equal(t, want, got)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		assert.Equal(t, "0", significant(x))
	}
}
