package keys_test

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/testenv"
)

// waiter is the ID of a waiter in a queue.
const waiter = "0123456789abcdef0123456789abcdef01234567"

// companions returns all possible companions of a lock's key, including the companions of its slots
// and its gate.
func companions(key string) (all []string) {
	for _, lock := range []string{key, keys.Slot(key, 5), keys.Slot(key, 10), keys.Gate.Of(key), keys.GateOf(key, 5), keys.GateOf(key, 10)} {
		if lock != key {
			all = append(all, lock)
		}
		for _, k := range []keys.Kind{keys.Readers, keys.Intent, keys.Counter, keys.Queue, keys.Mark} {
			all = append(all, k.Of(lock))
		}
		all = append(all, keys.Seen(keys.Queue.Of(lock)), keys.Call(keys.Queue.Of(lock), waiter))
	}
	return all
}

// slotOf is the rule in the specification of Redis Cluster.
func slotOf(key string) int {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if n := strings.IndexByte(key[from+1:], '}'); n > 0 {
			key = key[from+1 : from+1+n]
		}
	}
	crc := 0
	for _, b := range []byte(key) {
		crc ^= int(b) << 8
		for range 8 {
			crc <<= 1
			if crc&0x10000 != 0 {
				crc ^= 0x11021
			}
		}
	}
	return crc % 16384
}

// isUntaggable reports whether other keys can share the slot of key only by chance, because the
// whole key is hashed and contains the character that ends a tag.
func isUntaggable(key string) bool {
	from := strings.IndexByte(key, '{')
	return strings.Contains(key, "}") && (from < 0 || strings.IndexByte(key[from+1:], '}') <= 0)
}

var table = []struct{ key, readers, slot, tokens string }{
	{"job", "redlock:readers:{job}", "redlock:permit:3:{job}", "redlock:fence:[redlock:permit:3:{job}]"},
	{"app:job", "redlock:readers:{app:job}", "redlock:permit:3:{app:job}", "redlock:fence:[redlock:permit:3:{app:job}]"},
	{"{job}", "redlock:readers:[{job}]", "redlock:permit:3:[{job}]", "redlock:fence:[redlock:permit:3:[{job}]]"},
	{"a{b}c", "redlock:readers:[a{b}c]", "redlock:permit:3:[a{b}c]", "redlock:fence:[redlock:permit:3:[a{b}c]]"},
	{"a{b}c{d}", "redlock:readers:[a{b}c{d}]", "redlock:permit:3:[a{b}c{d}]", "redlock:fence:[redlock:permit:3:[a{b}c{d}]]"},
	{"{", "redlock:readers:{{}", "redlock:permit:3:{{}", "redlock:fence:[redlock:permit:3:{{}]"},
	{"}", "redlock:readers:[}]", "redlock:permit:3:[}]", "redlock:fence:[redlock:permit:3:[}]]"},
	{"{}job", "redlock:readers:[{}job]", "redlock:permit:3:[{}job]", "redlock:fence:[redlock:permit:3:[{}job]]"},
	{"[job]", "redlock:readers:{[job]}", "redlock:permit:3:{[job]}", "redlock:fence:[redlock:permit:3:{[job]}]"},
	{"x}{y", "redlock:readers:[x}{y]", "redlock:permit:3:[x}{y]", "redlock:fence:[redlock:permit:3:[x}{y]]"},
	{"\x00\xff", "redlock:readers:{\x00\xff}", "redlock:permit:3:{\x00\xff}", "redlock:fence:[redlock:permit:3:{\x00\xff}]"},
}

func TestCompanionsAreDerivedFromTheWholeKey(t *testing.T) {
	t.Parallel()
	for _, row := range table {
		assert.Equal(t, row.readers, keys.Readers.Of(row.key))
		assert.Equal(t, row.slot, keys.Slot(row.key, 3))
		assert.Equal(t, row.tokens, keys.Counter.Of(keys.Slot(row.key, 3)))
		stem, tail := keys.Slots(row.key)
		assert.Equal(t, keys.Slot(row.key, 999), stem+"999"+tail)
	}
	assert.Equal(t, "job", keys.Slot("job", 0))
}

// short returns all keys of up to n of the characters with a meaning in keys.
func short(n int) []string {
	all := []string{""}
	for from := 0; n > 0; n-- {
		to := len(all)
		for _, key := range all[from:to] {
			for _, sign := range []string{"{", "}", "[", "]", ":", "x", ":seen", ":" + waiter} {
				all = append(all, key+sign)
			}
		}
		from = to
	}
	return all[1:]
}

// TestKeysShareNoCompanion: the key of a companion cannot be the key of a lock, either, and each
// companion is in the slot of its key.
func TestKeysShareNoCompanion(t *testing.T) {
	t.Parallel()
	owner := map[string]string{}
	for _, key := range short(4) {
		for _, c := range companions(key) {
			other, there := owner[c]
			require.False(t, there, "%q is a companion of %q and of %q", c, key, other)
			owner[c] = key
			require.True(t, keys.Reserved(c), "%q", c)
		}
		require.False(t, keys.Reserved(key), "%q", key)
		inItsSlot(t, key)
	}
}

func inItsSlot(t *testing.T, key string) {
	t.Helper()
	if isUntaggable(key) {
		return
	}
	for _, c := range companions(key) {
		require.Equal(t, slotOf(key), slotOf(c), "%q beside %q", c, key)
	}
}

func TestSlotKeyContainsTheLockKey(t *testing.T) {
	t.Parallel()
	for _, key := range short(3) {
		for _, n := range []int{0, 1, 17, 1000} {
			got, slot := keys.OfSlot(keys.Slot(key, n))
			require.Equal(t, key, got)
			require.Equal(t, n, slot)
		}
	}
	for _, none := range []string{
		"redlock:permit:", "redlock:permit:1", "redlock:permit:1:", "redlock:permit:1:x", "redlock:permit:1:{}", "redlock:permit:1:{x",
		"redlock:permit:1:{x]", "redlock:permit:1:[x]", "redlock:permit:1:{a{b}c}", "redlock:permit:x:{x}", "redlock:permit:01:{x}",
		"redlock:permit:0:{x}", "redlock:permit:-1:{x}", "app:redlock:permit:1:{x}", "redlock:fence:{x}", "redlock:permit:1:{x}/2",
	} {
		key, slot := keys.OfSlot(none)
		assert.Equal(t, none, key)
		assert.Zero(t, slot, "%q", none)
	}
}

// TestCollidingKeysAreReserved: no other key is reserved.
func TestCollidingKeysAreReserved(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"redlock:epoch", "app:redlock:epoch", "redlock:primary", "redlock:doctor:none", "app:redlock:doctor:none",
		"redlock:fence:", "redlock:queue:{x}", "redlock:readers:x", "redlock:intent:", "redlock:once:x", "redlock:permit:1:x",
	} {
		assert.True(t, keys.Reserved(key), "%q", key)
	}
	for _, key := range []string{
		"redlock", "redlock:", "redlock:mine", "redlock:epoch2", "redlock:fence", "app:redlock:primary", "app:redlock:fence:{x}", "{redlock:fence:x}", "[redlock:fence:x]",
	} {
		assert.False(t, keys.Reserved(key), "%q", key)
	}
}

// FuzzCompanions: the companions of any two keys all differ, and each is in the slot of its key.
func FuzzCompanions(f *testing.F) {
	for _, row := range table {
		f.Add(row.key, "app:job")
	}
	f.Add("X", "X:seen")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			t.Skip("no key")
		}
		inItsSlot(t, a)
		ofA := map[string]bool{}
		for _, c := range companions(a) {
			require.False(t, ofA[c], "%q twice", c)
			ofA[c] = true
		}
		for _, c := range companions(b) {
			require.Equal(t, a == b, ofA[c], "%q of %q and %q", c, a, b)
		}
	})
}

// TestSlotOfAKeyMatchesAServer: a script may access a key together with all its companions.
func TestSlotOfAKeyMatchesAServer(t *testing.T) {
	t.Parallel()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true, Mode: fleet.ClusterNode})
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	slots := make([]int, 16384)
	for i := range slots {
		slots[i] = i
	}
	_, err = c.Do("CLUSTER", redis.Args{"ADDSLOTS"}.AddFlat(slots)...)
	require.NoError(t, err)
	for _, row := range table {
		with := append(companions(row.key), row.key)
		for _, key := range with {
			slot, err := redis.Int(c.Do("CLUSTER", "KEYSLOT", key))
			require.NoError(t, err)
			assert.Equal(t, slot, slotOf(key), "%q", key)
		}
		_, err := c.Do("EVAL", redis.Args{"return 1", len(with)}.AddFlat(with)...)
		crosses := err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") // a server reports this even before the cluster is up
		assert.Equal(t, isUntaggable(row.key), crosses, "%q: %v", row.key, err)
	}
}

// TestCallKeyIdentifiesItsWaiter: the key of a call belongs to exactly one key and one waiter,
// whatever characters they contain.
func TestCallKeyIdentifiesItsWaiter(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"job", "a:b", "{a}:b", "a}b", "redlock:queue:{x}:y", ":", "{", "}"} {
		of, waiter, ok := keys.OfCall(keys.Call(keys.Queue.Of(key), "0af3"))
		assert.True(t, ok, key)
		assert.Equal(t, key, of)
		assert.Equal(t, "0af3", waiter)
	}
	for _, other := range []string{"", "job", "redlock:queue:", "redlock:queue:{job}", "redlock:queue:x", "redlock:queue::", "redlock:fence:{job}:0af3"} {
		_, _, ok := keys.OfCall(other)
		assert.False(t, ok, other)
	}
}
