//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
	"github.com/redquorum/redquorum/internal/fleet"
)

// A textLog is a log in memory.
type textLog struct {
	mu   sync.Mutex
	text string
}

func (l *textLog) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += text + "\n"
}

func (l *textLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// TestAuditSurvivesAFullDisk: entries are counted, the log has one line, and after a rotation
// the file is written again.
func TestAuditSurvivesAFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	path, disk := filepath.Join(dir, "audit"), filepath.Join(dir, "disk")
	tr.NoError(t, os.Symlink("/dev/full", path))
	said := &textLog{}
	a, err := openAudit(path, nil, said.add)
	tr.NoError(t, err)
	for range 3 {
		a.Record(serve.AuditEntry{Event: serve.AuditGranted})
	}
	eventually(t, "three entries fail", func() bool { return a.Failed() == 3 })
	tr.NoError(t, os.Remove(path))
	tr.NoError(t, os.Symlink(disk, path))
	a.rotate()
	eventually(t, "it is opened again", func() bool { _, err := os.Stat(disk); return err == nil })
	a.Record(serve.AuditEntry{Event: serve.AuditReleased, Reason: "after"})
	a.close()
	text, err := os.ReadFile(disk)
	tr.NoError(t, err)
	assert.Equal(t, `{"time":"0001-01-01T00:00:00Z","event":"released","reason":"after"}`+"\n", string(text))
	assert.Equal(t, 1, strings.Count(said.String(), "\n"), said)
	assert.Contains(t, said.String(), "--audit: write "+path+": no space left on device; entries are lost until it can be written again")
	assert.EqualValues(t, 3, a.Failed())
}

// A tearing is a disk that becomes full within the first line.
type tearing struct{ bytes.Buffer }

func (d *tearing) Write(line []byte) (int, error) {
	if d.Len() == 0 {
		n, _ := d.Buffer.Write(line[:10])
		return n, syscall.ENOSPC
	}
	return d.Buffer.Write(line)
}

// TestTornLineSpoilsNoOther: the entry after it has a line of its own.
func TestTornLineSpoilsNoOther(t *testing.T) {
	t.Parallel()
	disk := &tearing{}
	a, err := openAudit("-", disk, func(string) {})
	tr.NoError(t, err)
	for range 3 {
		a.Record(serve.AuditEntry{Event: serve.AuditGranted})
	}
	a.close()
	lines := strings.Split(disk.String(), "\n")
	tr.Len(t, lines, 4)
	for _, line := range lines[1:3] {
		assert.NoError(t, json.Unmarshal([]byte(line), new(serve.AuditEntry)), line)
	}
	assert.EqualValues(t, 1, a.Failed())
}

// TestTornLineOfBeforeSpoilsNoOther: the file is opened again after a line was torn, by SIGHUP or by
// the next process.
func TestTornLineOfBeforeSpoilsNoOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	for text, lines := range map[string]int{"": 1, "{}\n": 2, "{}\n{\"time\":\"20": 3} {
		tr.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		a, err := openAudit(path, nil, func(text string) { t.Error(text) })
		tr.NoError(t, err)
		a.Record(serve.AuditEntry{Event: serve.AuditGranted})
		a.close()
		all, err := os.ReadFile(path)
		tr.NoError(t, err)
		tr.Equal(t, lines, strings.Count(string(all), "\n"), string(all))
		last := strings.Split(string(all), "\n")[lines-1]
		assert.NoError(t, json.Unmarshal([]byte(last), new(serve.AuditEntry)), last)
	}
}

// TestHangingDiskDelaysNoRequest: a disk that hangs delays only the end of the process, by at most
// two seconds.
func TestHangingDiskDelaysNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		said := &textLog{}
		a, err := openAudit("-", writer, said.add)
		tr.NoError(t, err)
		for range queuedEntries + 10 {
			a.Record(serve.AuditEntry{})
		}
		assert.GreaterOrEqual(t, a.Failed(), int64(9))
		synctest.Wait()
		assert.Equal(t, "--audit: too many entries wait to be written; entries are lost until they are written\n", said.String())
		a.close()
		assert.Regexp(t, "--audit: the disk hangs; about 1000[01] entries are lost\n", said.String())
		reader.Close()
		<-a.done
	})
}

// TestRefusalsLeaveRoomForGrants: a client at its limit that asks in a loop hides no grant and no end
// while the disk is slow.
func TestRefusalsLeaveRoomForGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		a, err := openAudit("-", writer, func(string) {})
		tr.NoError(t, err)
		for range 2 * queuedEntries {
			a.Record(serve.AuditEntry{Event: serve.AuditRefused})
		}
		lost := a.Failed()
		assert.Positive(t, lost)
		for range 1000 {
			a.Record(serve.AuditEntry{Event: serve.AuditGranted})
		}
		assert.Equal(t, lost, a.Failed())
		go io.Copy(io.Discard, reader)
		a.close()
		writer.Close()
	})
}

// TestServeAudits: serve records each grant and release without a secret, and continues in a new
// file after SIGHUP.
func TestServeAudits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit")
	s := startServe(t, startFleet(t, fleet.Embedded, 3), "--listen", "127.0.0.1:0", "--audit", file)
	a := s.take("first")
	entries := func(path string) (all []serve.AuditEntry) {
		text, err := os.ReadFile(path)
		tr.True(t, err == nil || os.IsNotExist(err), err)
		for _, secret := range []string{a.Lease, a.Session} {
			assert.NotContains(t, string(text), secret)
		}
		for line := range bytes.Lines(text) {
			if !bytes.HasSuffix(line, []byte("\n")) { // being written
				break
			}
			var e serve.AuditEntry
			tr.NoError(t, json.Unmarshal(line, &e))
			all = append(all, e)
		}
		return all
	}
	eventually(t, "the grant is written", func() bool { return len(entries(file)) == 1 })
	granted := entries(file)[0]
	assert.Equal(t, []any{"granted", []string{"first"}, "exclusive"}, []any{granted.Event, granted.Names, granted.Kind})
	info, err := os.Stat(file)
	tr.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	tr.NoError(t, os.Rename(file, file+".1"))
	s.signal(t, syscall.SIGHUP)
	eventually(t, "the file is opened again", func() bool { _, err := os.Stat(file); return err == nil })
	tr.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+a.Lease, "").status)
	s.take("second")
	tr.Zero(t, s.stop(), s.stderr.String())
	var events []string
	for _, e := range entries(file) {
		events = append(events, e.Event)
	}
	assert.Equal(t, []string{"released", "granted"}, events[:2])
	assert.Len(t, events, 3, "also the end of the second")
	assert.Equal(t, granted.Lease, entries(file)[0].Lease)
	assert.Len(t, entries(file+".1"), 1)
}
