package history_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

func read(t *testing.T, text string) (events []history.Event) {
	t.Helper()
	require.NoError(t, history.Read(strings.NewReader(text), func(e history.Event) { events = append(events, e) }))
	return events
}

func TestReaderReturnsTheWrittenEvents(t *testing.T) {
	t.Parallel()
	events := []history.Event{
		{At: 1, Kind: history.Asked, Who: 1, Op: 2, Name: "a"},
		{At: 2, Kind: history.Granted, Who: 1, Op: 2, Name: "a", Token: 1 << 52, Until: 9},
		{At: 3, Kind: history.Fault, Name: "flush", Text: "\"node\" 3\n"},
		{At: 4, Kind: history.Asked, Who: 1, Op: 3, Name: "p", Lock: history.FencedPermit, Most: 3},
		{At: 5, Kind: history.Granted, Who: 1, Op: 3, Name: "p", Lock: history.FencedPermit, Permit: 2},
		{At: 6, Kind: history.Asked, Who: 1, Op: 4, Name: "a+b", Names: []string{"a", "b"}, Lock: history.Set, Fair: true},
	}
	var out bytes.Buffer
	log := history.NewLog(&out)
	for _, e := range events {
		require.NoError(t, log.Add(e))
	}
	assert.Equal(t, events, read(t, out.String()))
}

func TestUnfinishedLineIsOmitted(t *testing.T) {
	t.Parallel()
	assert.Len(t, read(t, `{"at":1,"kind":"asked"}`+"\n"+`{"at":2,"ki`), 1)
	assert.Error(t, history.Read(strings.NewReader("{}\n{]\n"), func(history.Event) {}))
}

func TestHoldEndsAtTheEarliestEnd(t *testing.T) {
	t.Parallel()
	for text, end := range map[string]int64{
		`{"at":3,"kind":"granted","until":50}`:                                                  50,
		`{"at":3,"kind":"granted","until":50}{"at":9,"kind":"extended","until":60}`:             60,
		`{"at":3,"kind":"granted","until":50}{"at":9,"kind":"extended","until":40}`:             50,
		`{"at":3,"kind":"granted","until":50}{"at":20,"kind":"leaving"}`:                        20,
		`{"at":3,"kind":"granted","until":50}{"at":70,"kind":"leaving"}`:                        50,
		`{"at":3,"kind":"granted","until":50}{"at":30,"kind":"lost"}{"at":40,"kind":"leaving"}`: 30,
		`{"at":3,"kind":"granted","until":50}{"at":60,"kind":"lost"}{"at":61,"kind":"leaving"}`: 50,
		`{"at":3,"kind":"granted","until":2}`:                                                   2,
	} {
		all, err := history.Acquisitions(read(t, `{"at":1,"kind":"asked"}`+text))
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.True(t, all[0].Held())
		assert.Equal(t, end, all[0].End(), text)
	}
}

func TestLogReturnsTheTimeOfTheLastEvent(t *testing.T) {
	t.Parallel()
	log := history.NewLog(&bytes.Buffer{})
	require.NoError(t, log.Add(history.Event{At: 5, Kind: history.Granted, Name: "a+b", Names: []string{"a", "b"}, Lock: history.Set}))
	require.NoError(t, log.Add(history.Event{At: 7, Kind: history.Granted, Name: "p", Permit: 1, Lock: history.Permit}))
	require.NoError(t, log.Add(history.Event{At: 6, Kind: history.Granted, Name: "b", Lock: history.Plain}))
	for about, at := range map[string]int64{"a": 5, "b": 6, "set": 5, "p": 7, "permit": 7, "plain": 6, "shared": 0} {
		assert.Equal(t, at, log.Last(history.Granted, about), about)
	}
	assert.Zero(t, log.Last(history.Asked, "a"))
}

func TestImpossibleEventsAreAnError(t *testing.T) {
	t.Parallel()
	const asked = `{"kind":"asked","name":"a"}`
	for _, text := range []string{
		`{"kind":"granted","name":"a"}`, asked + asked, asked + `{"kind":"granted"}`, asked + `{"kind":"lost","name":"a","lock":"set"}`,
	} {
		_, err := history.Acquisitions(read(t, text))
		assert.Error(t, err, text)
	}
}
