package record

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const born = 1_700_000_000_000 * time.Millisecond

func sample() *Record {
	return &Record{
		Run: "a1/b2", Generation: "c3", Nodes: 5, Born: born, Forgot: 10 * time.Second, Basis: Asked,
		Steps: []Step{{10 * time.Second, born, born + time.Hour}, {time.Hour, born + 1, born + 1}},
		More:  []string{"members=x,y", "later"},
	}
}

func TestTextAndRecordAreTheSame(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Alone, r.Off = time.Minute, -90*time.Second
	r.Steps[1] = Step{time.Hour, born + time.Second, born + time.Second}
	read, err := Parse(r.String())
	require.NoError(t, err)
	assert.Equal(t, r, read, "fields of later versions, too")
	assert.Equal(t, "2 run=a1/b2 gen=c3 nodes=5 born=1700000000000 forgot=10000 basis=2 "+
		"steps=10000:1700000000000:1700003600000,3600000:1700000001000:1700000001000 off=-90000 alone=60000 members=x,y later", r.String())
	r.Steps = nil
	read, err = Parse(r.String())
	require.NoError(t, err)
	assert.Empty(t, read.Steps)
}

func TestInvalidTextsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"":                        ErrText,
		"nonsense":                ErrText,
		"-1":                      ErrText,
		"1 run1 g 5 60000 0":      ErrVersion,
		"3 run=a gen=b something": ErrVersion,
		"2":                       ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=0":                                      ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=4 steps=":                               ErrText,
		"2 run=a gen=b nodes=0 born=1 forgot=0 basis=0 steps=":                               ErrText,
		"2 run=a gen=b nodes=five born=1 forgot=0 basis=0 steps=":                            ErrText,
		"2 run=a gen=@ nodes=5 born=1 forgot=0 basis=0 steps=":                               ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=0 steps= later=@":                       ErrText,
		"2 run=a gen=b nodes=5 born=@ forgot=0 basis=0 steps=":                               ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=-1 basis=0 steps=":                              ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=0 steps= off=-9999999999999999":         ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=99999999999999999 basis=0 steps=":               ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=0 steps=1:2":                            ErrText,
		"2 run=a gen=b nodes=5 born=1 forgot=0 basis=0 steps=1:2:inf":                        ErrText,
		"2 run=a gen=b nodes=5 nodes=6 born=1 forgot=0 basis=0 steps=":                       ErrText,
		"2 run= gen=b nodes=5 born=1 forgot=0 basis=0 steps=":                                ErrText,
		"2 run=a gen=b nodes=99999999999999999999 born=1 forgot=0 basis=0 steps=1:1:1,2:2:2": ErrText,
	} {
		_, err := Parse(text)
		assert.ErrorIs(t, err, want, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().String())
	f.Add("2 run=a gen=b nodes=5 born=1 forgot=0 basis=0 steps=1:2:3,4:5:6")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		require.NoError(t, err)
		assert.Equal(t, r, again)
	})
}

// TestStepCoversVotesForAWindow: the step fades when no lock of it can be alive.
func TestStepCoversVotesForAWindow(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{10 * time.Millisecond, 10 * time.Second, 24 * time.Hour} {
		r := &Record{}
		assert.False(t, r.Covers(ttl, born))
		assert.True(t, r.Enter(ttl, born, born))
		r.Steps[0].Entered, r.Steps[0].Used = born, born // as set by the server
		last := born + Window(ttl)
		assert.True(t, r.Covers(ttl, last))
		assert.False(t, r.Covers(ttl, last+1))
		assert.False(t, r.Covers(ttl+1, born))
		assert.True(t, r.Covers(ttl/2, born), "shorter locks are covered as well")
		assert.Equal(t, last+ttl, r.Steps[0].Until(), "when the last lock that was covered has expired")

		s := &Record{Steps: r.Steps}
		assert.False(t, s.Enter(ttl, last+1, last+1), "the step is used again")
		assert.Len(t, s.Steps, 1)
		assert.Equal(t, Step{ttl, born, Now}, s.Steps[0])
		assert.Equal(t, born, r.Steps[0].Used, "the other record is its own")

		until := r.Steps[0].Until()
		s = &Record{Steps: r.Steps}
		assert.True(t, s.Enter(ttl, until-ttl/2+1, until-ttl/2+1), "it has nearly faded")
		r.Enter(2*ttl, until, until+ttl)
		assert.Len(t, r.Steps, 2, "it may not have faded yet")
		r.Enter(2*ttl, until+1, until+1)
		assert.Equal(t, []Step{{2 * ttl, Now, Now}}, r.Steps, "what has faded is dropped")
	}
}

// TestRandomTTLsMakeNoLongList.
func TestRandomTTLsMakeNoLongList(t *testing.T) {
	t.Parallel()
	r := &Record{}
	dice := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		ttl := time.Duration(10+dice.Int64N(3_600_000)) * time.Millisecond
		if r.Covers(ttl, born) {
			continue
		}
		r.Enter(ttl, born, born)
		for i := range r.Steps {
			r.Steps[i].Entered, r.Steps[i].Used = born, born
		}
	}
	assert.Less(t, len(r.String()), 3000)
}

// TestNoTextOverflowsTimes: times computed from a record are never before the times in it.
func TestNoTextOverflowsTimes(t *testing.T) {
	t.Parallel()
	const text = "2 run=- gen=g nodes=5 born=%[1]d forgot=%[1]d basis=1 steps=%[1]d:0:%[1]d"
	r, err := Parse(fmt.Sprintf(text, longest.Milliseconds()))
	require.NoError(t, err)
	assert.Greater(t, r.Steps[0].Until(), r.Steps[0].Used)
	assert.Greater(t, r.Born+r.Forgot, r.Born)
	assert.Equal(t, longest, r.Quarantine(0, time.Second))
	_, err = Parse(fmt.Sprintf(text, longest.Milliseconds()+1))
	assert.ErrorIs(t, err, ErrText)
}

// TestStepIsKeptWhenTheTimeIsUncertain: it is dropped when it has certainly faded.
func TestStepIsKeptWhenTheTimeIsUncertain(t *testing.T) {
	t.Parallel()
	step := Step{time.Second, born, born}
	for doubt, kept := range map[time.Duration]int{0: 1, -1: 0} {
		r := &Record{Steps: []Step{step}}
		r.Enter(time.Hour, step.Until()-doubt, step.Until()+time.Hour)
		assert.Len(t, r.Steps, kept+1)
	}
}

// TestRecordBelongsToItsProcessWhileTheDataIsItsOwn: another master_replid is not another data set.
func TestRecordBelongsToItsProcessWhileTheDataIsItsOwn(t *testing.T) {
	t.Parallel()
	assert.Equal(t, OwnData, DataSet("id", "-1", "0", ""))
	for name, set := range map[string]string{
		"it was promoted":               DataSet("id", "1", "0", ""),
		"it took another's data":        DataSet("id", "-1", "175", ""),
		"it does not tell what it took": DataSet("id", "-1", "", ""),
		"it is one of several servers":  DataSet("id", "-1", "0", "run/id"),
		"it tells nothing":              DataSet("id", "", "", ""),
	} {
		assert.Equal(t, "id", set, name)
	}

	r := sample() // of a1/b2
	assert.True(t, r.IsOf("a1/b2"))
	assert.True(t, r.IsOf("a1/"+OwnData), "of the same data by another name")
	for _, other := range []string{"a1/b3", "a2/" + OwnData, "a/" + OwnData, "a1", "", Unknown} {
		assert.False(t, r.IsOf(other), other)
	}
	r.Run = "a1/" + OwnData
	assert.True(t, r.IsOf("a1/"+OwnData))
	assert.False(t, r.IsOf("a1/b2"), "it was promoted since")
}
