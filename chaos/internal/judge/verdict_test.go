package judge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTimeWithoutServiceCountsFromWhenSomebodyAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, text string
		from, to   int64
	}{
		{"nobody asked for long", `
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 520},
		{"one asked while it was held", `
			80  asked   2.1 a
			520 granted 2.1 a 101 600`, 90, 520},
		{"another asked, in vain", `
			100 asked   3.1 a
			110 failed  3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 100, 520},
		{"another was refused before", `
			60  asked   3.1 a
			70  failed  3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 520},
		{"one who asked was killed", `
			100 asked   3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 520},
	} {
		v := verdict(t, "0 asked 1.1 a\n10 granted 1.1 a 100 90\n"+c.text)
		assert.EqualValues(t, c.from, v.IdleFrom/time.Millisecond, c.what)
		assert.EqualValues(t, c.to-c.from, v.Idle/time.Millisecond, c.what)
	}
}
