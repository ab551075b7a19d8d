package reread

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

// TestHangingDiskDelaysOneCaller: it waits for two seconds, and the others use the previous content at
// once. When the disk answers, the present content counts.
func TestHangingDiskDelaysOneCaller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) { tr.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("first")
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		parse := func(texts ...[]byte) (string, error) { return string(texts[0]), nil }
		r, err := Read([]string{file}, &said, func(err error) error { return err }, parse)
		tr.NoError(t, err)
		answers := make(chan bool)
		r.read = func(files []string) content {
			found := readAll(files)
			<-answers
			return found
		}
		began := time.Now()
		for range 100 {
			assert.Equal(t, "first", r.Current())
		}
		assert.Equal(t, patience, time.Since(began))
		assert.ErrorContains(t, r.Wrong(), "not read within 2s")
		assert.Equal(t, 1, strings.Count(said.String(), "the content that was read before stays in use"), said.String())

		write("second")
		close(answers)
		synctest.Wait()
		assert.Equal(t, "second", r.Current(), "not what was read before the change")
		assert.NoError(t, r.Wrong())
	})
}
