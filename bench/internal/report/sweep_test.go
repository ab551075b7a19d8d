package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A figure beside the end of a line is taken for one of the last point.
func TestAFigureOfAnEarlierPointSaysWhichOne(t *testing.T) {
	t.Parallel()
	d := look(fixtures["sweep"]()).curve(curves[1])
	assert.Contains(t, d.body.String(), " ms at 64<", "redsync acquired nothing with 256 callers")
	assert.NotContains(t, d.body.String(), " at 256<")
	assert.Contains(t, d.caption, "A cross")
}

func TestPointsOfASweepStandWhereTheirNumbersAre(t *testing.T) {
	t.Parallel()
	a := place([]string{"callers=64", "callers=1", "callers=8"}, 0, 100)
	assert.Equal(t, "callers (logarithmic)", a.name)
	assert.Equal(t, []string{"callers=1", "callers=8", "callers=64"}, a.order)
	assert.InDelta(t, 50, a.at["callers=8"], 1e-9)

	a = place([]string{"ttl=1s", "ttl=1500ms", "ttl=2s"}, 0, 100)
	assert.Equal(t, "ttl", a.name)
	assert.InDelta(t, 50, a.at["ttl=1500ms"], 1e-9)

	for _, points := range [][]string{{"own", "single"}, {"callers=1", "rate=2"}, {"callers=1", "callers=many"}, {"x=NaN", "x=1"}} {
		a = place(points, 0, 100)
		assert.Empty(t, a.name, "%v are no numbers of one thing", points)
		assert.Equal(t, points, a.order)
		assert.Equal(t, 25.0, a.at[points[0]])
	}
	assert.InDelta(t, 50, place([]string{"callers=4"}, 0, 100).at["callers=4"], 1e-9)
}
