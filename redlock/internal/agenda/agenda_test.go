package agenda

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/park"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A note is what has happened to an item.
type note struct {
	name   string
	what   string
	inVain bool
	at     time.Duration
}

// A log has the notes of all items.
type log struct {
	mu    sync.Mutex
	began time.Time
	notes []note
}

func (l *log) add(n note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.at = time.Since(l.began)
	l.notes = append(l.notes, n)
}

func (l *log) all() []note {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.notes)
}

// An item wants the same work done each time that it is due.
type item struct {
	name  string
	wants Work
	log   *log
	place Place
}

func (i *item) Due(clock.Instant) Work {
	i.log.add(note{name: i.name, what: "due"})
	return i.wants
}
func (i *item) Do(w Work, inVain bool) {
	i.log.add(note{name: i.name, what: map[Work]string{Renew: "renew", Look: "look", GiveBack: "give back"}[w], inVain: inVain})
}
func (i *item) IsUrgent(Work) bool { return false }
func (i *item) Doubt(int)          { i.log.add(note{name: i.name, what: "doubt"}) }
func (i *item) Place() *Place      { return &i.place }

// with runs a test of an Agenda in time that is controlled.
func with(t *testing.T, f func(a *Agenda[*item], l *log, in func(time.Duration) clock.Instant)) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{began: time.Now()}
		c := clock.NewFake(1)
		now := c.Now()
		a := New[*item](&park.Lot{Clock: c})
		f(a, l, func(d time.Duration) clock.Instant { return now.Add(d) })
		a.Close()
		a.Stop()
	})
}

func TestItemsAreDueInTimeAndOnce(t *testing.T) {
	t.Parallel()
	with(t, func(a *Agenda[*item], l *log, in func(time.Duration) clock.Instant) {
		b, c, d := &item{name: "b", log: l}, &item{name: "c", log: l, wants: Renew}, &item{name: "d", log: l}
		a.Put(b, in(3*time.Second))
		a.Put(c, in(time.Hour))
		a.Put(c, in(2*time.Second)) // moved
		a.Put(d, in(time.Second))
		a.Remove(d, in(0))
		a.Remove(d, in(0))
		time.Sleep(2 * time.Hour)
		assert.Equal(t, []note{
			{name: "c", what: "due", at: 2 * time.Second},
			{name: "c", what: "renew", at: 2 * time.Second},
			{name: "b", what: "due", at: 3 * time.Second},
		}, l.all())
		n, _ := a.Len()
		assert.Zero(t, n)
	})
}

func TestLooksAreBehindAllOtherWorks(t *testing.T) {
	t.Parallel()
	with(t, func(a *Agenda[*item], l *log, in func(time.Duration) clock.Instant) {
		look, renew := &item{name: "look", log: l, wants: Look}, &item{name: "renew", log: l, wants: Renew}
		a.Put(look, in(time.Second))
		a.Put(renew, in(time.Second))
		time.Sleep(2 * time.Second)
		assert.Equal(t, []note{
			{name: "look", what: "due", at: time.Second},
			{name: "renew", what: "due", at: time.Second},
			{name: "renew", what: "renew", at: time.Second},
			{name: "look", what: "look", at: time.Second},
		}, l.all())
	})
}

func TestWhatIsClosedTakesNothing(t *testing.T) {
	t.Parallel()
	with(t, func(a *Agenda[*item], l *log, in func(time.Duration) clock.Instant) {
		i := &item{name: "i", log: l}
		assert.True(t, a.Put(i, in(time.Second)))
		assert.Equal(t, []*item{i}, a.Close())
		assert.False(t, a.Put(i, in(time.Second)))
		time.Sleep(time.Minute)
		assert.Empty(t, l.all())
		a.Stop()
		a.Add(i, GiveBack) // what ends meanwhile is still told
		a.Doubt(0)
		synctest.Wait()
		assert.Equal(t, []note{{name: "i", what: "give back", inVain: true, at: time.Minute}}, l.all())
	})
}

func TestADoubtIsToldToAllThatAreThere(t *testing.T) {
	t.Parallel()
	with(t, func(a *Agenda[*item], l *log, in func(time.Duration) clock.Instant) {
		for range 3 * batchSize {
			a.Put(&item{log: l}, in(time.Hour))
		}
		a.Doubt(2)
		synctest.Wait()
		time.Sleep(time.Second)
		assert.Len(t, l.all(), 3*batchSize)
	})
}
