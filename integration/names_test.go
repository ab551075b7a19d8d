package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// strange are names that are all different, and none of them special.
func strange() []string {
	names := []string{
		" ", "\t", "\n", "\r\n", "\x00", "a", "a\x00", "\x00a", "A", "a ", " a", "a\r\n", "a\n",
		"$5\r\nhello\r\n", "*1\r\n$8\r\nFLUSHALL\r\n", "*", "?", "[a]", `\`, `"`, "'", "{tag}", "{tag}1", "%s", "%00",
		"\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "é", "e\u0301", "鎖", "🔒", "\u2028", "\ufeff",
		"NX", "PX", "10000", "-1", "redlock", "redlock:", "redlock:epoch2", "redlock:fence", "redlock:quarantined",
		strings.Repeat("n", 1024), strings.Repeat("n", 1023), strings.Repeat("\x00", 1024),
	}
	for b := range 256 {
		names = append(names, fmt.Sprintf("byte %c", byte(b))+string([]byte{byte(b)}))
	}
	return names
}

func TestNamesMayBeAnyBytes(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, opts := range [][]redlock.LockerOption{nil, {redlock.Fenced()}} {
			holder, other := r.locker(t, opts...), r.locker(t, opts...)
			var locks []*redlock.Lock
			for _, name := range strange() {
				lock := acquire(t, holder, name)
				require.Equal(t, name, lock.Name())
				locks = append(locks, lock)
			}
			for _, lock := range locks {
				_, err := other.TryAcquire(context.Background(), lock.Name())
				require.ErrorIs(t, err, redlock.ErrHeld, "%q", lock.Name())
				require.NoError(t, lock.Extend(context.Background()), "%q", lock.Name())
				assert.Equal(t, []byte(lock.Value()), r.must(t, 0, "GET", lock.Name()), "%q", lock.Name())
			}
			for n, lock := range locks {
				require.NoError(t, lock.Release(context.Background()), "%q", lock.Name())
				if n+1 < len(locks) {
					require.True(t, locks[n+1].Valid())
				}
			}
		}
		_, err := r.locker(t).TryAcquire(context.Background(), strings.Repeat("n", 1025))
		wantOnly(t, nil, err)
		assert.ErrorContains(t, err, "1025 bytes")
		_, err = r.locker(t, redlock.Prefix("p")).TryAcquire(context.Background(), strings.Repeat("n", 1024))
		wantOnly(t, nil, err)
		assert.ErrorContains(t, err, "1025 bytes")
		_, err = r.locker(t).TryAcquire(context.Background(), "")
		wantOnly(t, nil, err)
		assert.ErrorContains(t, err, "empty")
	})
}
