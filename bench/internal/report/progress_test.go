package report

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgressIsSilentWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer f.Close()
	p := NewProgress(f)
	p.Show("round 1 of 3")
	p.Clear()
	written, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Empty(t, written)
}

func TestProgressOverwritesOneLineAndTakesItBack(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Progress{w: &b, width: func() int { return 12 }}
	p.Clear()
	assert.Empty(t, b.String(), "there was no line to take back")
	p.Show("a long line that does not fit")
	assert.Equal(t, "\ra long line", b.String(), "one column stays free, or some terminals break the line")
	b.Reset()
	p.Show("a\nb")
	assert.Equal(t, "\ra b        ", b.String(), "what stood there is overwritten, and no line break gets in")
	b.Reset()
	p.Clear()
	assert.Equal(t, "\r   \r", b.String())
	b.Reset()
	p.Clear()
	assert.Empty(t, b.String())
}
