package redsync_test

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	upstream "github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/contrib/redsync"
	"github.com/redquorum/redquorum/redlock"
)

// The tests of this file run on redsync and on this package, because programs see the same behavior
// of both.

// expiry is the expiry of mutexes whose end a test waits for. timeoutFactor makes redsync wait for
// servers as long as this package does by default, even on a busy machine.
const (
	expiry        = 500 * time.Millisecond
	timeoutFactor = 0.5
)

func theirMutexes(pools []redis.Pool) func(string, settings) mutex {
	return func(name string, s settings) mutex {
		opts := []upstream.Option{upstream.WithTimeoutFactor(timeoutFactor), upstream.WithExpiry(cmp.Or(s.expiry, time.Minute))}
		if s.value != "" {
			opts = append(opts, upstream.WithValue(s.value))
		}
		if s.setNX {
			opts = append(opts, upstream.WithSetNXOnExtend())
		}
		return upstream.New(pools...).NewMutex(name, opts...)
	}
}

// ourMutexes is like theirMutexes, for this package.
func ourMutexes(locker *redlock.Locker) func(string, settings) mutex {
	return func(name string, s settings) mutex {
		opts := []redsync.Option{redsync.WithTimeoutFactor(timeoutFactor), redsync.WithExpiry(cmp.Or(s.expiry, time.Minute))}
		if s.value != "" {
			opts = append(opts, redsync.WithValue(s.value))
		}
		if s.setNX {
			opts = append(opts, redsync.WithSetNXOnExtend())
		}
		return redsync.New(locker).NewMutex(name, opts...)
	}
}

func theirTaken(err error) []int {
	var taken *upstream.ErrTaken
	if errors.As(err, &taken) {
		return taken.Nodes
	}
	return nil
}

func ourTaken(err error) []int {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return taken.Nodes
	}
	return nil
}

// TestMethodsMatchTheMethodsOfRedsync: the arguments and results match, too.
func TestMethodsMatchTheMethodsOfRedsync(t *testing.T) {
	t.Parallel()
	local := func(signature reflect.Type) string {
		return strings.ReplaceAll(signature.String(), "redsync.", "")
	}
	for _, types := range [][2]reflect.Type{
		{reflect.TypeFor[*upstream.Mutex](), reflect.TypeFor[*redsync.Mutex]()},
		{reflect.TypeFor[*upstream.ErrTaken](), reflect.TypeFor[*redsync.ErrTaken]()},
		{reflect.TypeFor[*upstream.ErrNodeTaken](), reflect.TypeFor[*redsync.ErrNodeTaken]()},
		{reflect.TypeFor[*upstream.RedisError](), reflect.TypeFor[*redsync.RedisError]()},
		{reflect.TypeFor[upstream.OptionFunc](), reflect.TypeFor[redsync.OptionFunc]()},
		{reflect.TypeFor[*upstream.Redsync](), reflect.TypeFor[*redsync.Redsync]()},
	} {
		for i := range types[0].NumMethod() {
			theirs := types[0].Method(i)
			ours, ok := types[1].MethodByName(theirs.Name)
			require.True(t, ok, theirs.Name)
			assert.Equal(t, local(theirs.Type), local(ours.Type), theirs.Name)
		}
	}
	for name, options := range map[string][2]any{
		"WithDriftFactor":    {upstream.WithDriftFactor, redsync.WithDriftFactor},
		"WithExpiry":         {upstream.WithExpiry, redsync.WithExpiry},
		"WithFailFast":       {upstream.WithFailFast, redsync.WithFailFast},
		"WithGenValueFunc":   {upstream.WithGenValueFunc, redsync.WithGenValueFunc},
		"WithRetryDelay":     {upstream.WithRetryDelay, redsync.WithRetryDelay},
		"WithRetryDelayFunc": {upstream.WithRetryDelayFunc, redsync.WithRetryDelayFunc},
		"WithSetNXOnExtend":  {upstream.WithSetNXOnExtend, redsync.WithSetNXOnExtend},
		"WithShufflePools":   {upstream.WithShufflePools, redsync.WithShufflePools},
		"WithTimeoutFactor":  {upstream.WithTimeoutFactor, redsync.WithTimeoutFactor},
		"WithTries":          {upstream.WithTries, redsync.WithTries},
		"WithValue":          {upstream.WithValue, redsync.WithValue},
	} {
		assert.Equal(t, local(reflect.TypeOf(options[0])), local(reflect.TypeOf(options[1])), name)
	}
	assert.Equal(t, upstream.ErrFailed.Error(), redsync.ErrFailed.Error())
	assert.Equal(t, upstream.ErrExtendFailed.Error(), redsync.ErrExtendFailed.Error())
	assert.Equal(t, upstream.ErrLockAlreadyExpired.Error(), redsync.ErrLockAlreadyExpired.Error())
	assert.Equal(t, upstream.ErrTaken{Nodes: []int{1}}.Error(), redsync.ErrTaken{Nodes: []int{1}}.Error())
	assert.Equal(t, upstream.ErrNodeTaken{Node: 1}.Error(), redsync.ErrNodeTaken{Node: 1}.Error())
	assert.Equal(t, upstream.RedisError{Node: 1, Err: assert.AnError}.Error(), redsync.RedisError{Node: 1, Err: assert.AnError}.Error())
}

func TestLockedMutexIsTaken(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		first, second := l.mutex(t.Name(), settings{}), l.mutex(t.Name(), settings{})
		assert.Empty(t, first.Value())
		assert.True(t, first.Until().IsZero())
		require.NoError(t, first.Lock())
		assert.GreaterOrEqual(t, l.holding(t, first), 3)
		assert.WithinDuration(t, time.Now().Add(time.Minute), first.Until(), 30*time.Second)
		for _, m := range []mutex{second, first} {
			err := m.TryLock()
			assert.GreaterOrEqual(t, len(l.taken(err)), 3, "%v", err)
			assert.NotErrorIs(t, err, l.failed)
		}
		succeeds(t)(first.Unlock())
		require.NoError(t, second.TryLock())
	})
}

// expire waits until no server has the key.
func expire(t *testing.T, l *library, key string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, v := range l.values(t, key) {
			if v != "" {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
}

func TestExpiredMutexIsNeitherExtendedNorUnlocked(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		m := l.mutex(t.Name(), settings{expiry: expiry})
		require.NoError(t, m.Lock())
		expire(t, l, m.Name())
		fails(t)(m.Extend())
		fails(t)(m.Valid())
		assert.False(t, time.Now().Before(m.Until()))
		fails(t, l.expired)(m.Unlock())
	})
}

func TestUnlockedMutexCanBeLockedAgain(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		m := l.mutex(t.Name(), settings{})
		for range 3 {
			require.NoError(t, m.Lock())
			succeeds(t)(m.Unlock())
			fails(t, l.expired)(m.Unlock())
		}
	})
}

func TestMutexLockedByAnotherIsNotExtended(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		first, second := l.mutex(t.Name(), settings{setNX: true}), l.mutex(t.Name(), settings{})
		require.NoError(t, first.Lock())
		for i := range l.servers {
			l.do(t, i, "PEXPIRE", first.Name(), 1)
		}
		expire(t, l, first.Name())
		require.NoError(t, second.Lock())
		fails(t)(first.Extend())
		succeeds(t)(second.Valid())
	})
}

func TestAnotherProcessCanUnlockByTheValue(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		first := l.mutex(t.Name(), settings{expiry: time.Hour})
		require.NoError(t, first.Lock())
		second := l.mutex(t.Name(), settings{expiry: time.Hour, value: first.Value()})
		succeeds(t)(second.Valid())
		succeeds(t)(second.Extend())
		assert.True(t, time.Now().Add(50*time.Minute).Before(second.Until()))
		succeeds(t)(second.Unlock())
		require.NoError(t, l.mutex(t.Name(), settings{}).TryLock())
		fails(t)(second.Unlock())
	})
}

// TestMutexExtendsByItsOwnExpiry: redsync has no other way to change an expiry.
func TestMutexExtendsByItsOwnExpiry(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		first := l.mutex(t.Name(), settings{})
		require.NoError(t, first.Lock())
		longer := l.mutex(t.Name(), settings{expiry: 3 * time.Minute, value: first.Value()})
		extended := time.Now()
		succeeds(t)(longer.Extend())
		assert.WithinRange(t, longer.Until(), extended.Add(2*time.Minute), time.Now().Add(3*time.Minute))
		n := 0
		for i := range l.servers {
			if l.do(t, i, "PTTL", first.Name()).(int64) > 90_000 {
				n++
			}
		}
		assert.GreaterOrEqual(t, n, 3)
		succeeds(t)(longer.Unlock())
	})
}

// matches returns the errors of a library that err matches, by errors.Is and errors.As.
func matches(err error, sentinels [3]error, taken, nodeTaken, fault any) (all []string) {
	for i, name := range []string{"ErrFailed", "ErrExtendFailed", "ErrLockAlreadyExpired"} {
		if errors.Is(err, sentinels[i]) {
			all = append(all, name)
		}
	}
	for i, target := range []any{taken, nodeTaken, fault} {
		if errors.As(err, target) {
			all = append(all, []string{"*ErrTaken", "*ErrNodeTaken", "*RedisError"}[i])
		}
	}
	return all
}

func theirMatches(err error) []string {
	var taken *upstream.ErrTaken
	var node *upstream.ErrNodeTaken
	var fault *upstream.RedisError
	return matches(err, [3]error{upstream.ErrFailed, upstream.ErrExtendFailed, upstream.ErrLockAlreadyExpired}, &taken, &node, &fault)
}

func ourMatches(err error) []string {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	var fault *redsync.RedisError
	return matches(err, [3]error{redsync.ErrFailed, redsync.ErrExtendFailed, redsync.ErrLockAlreadyExpired}, &taken, &node, &fault)
}

// TestErrorsMatchTheErrorsOfRedsync: they match all errors that redsync's errors match.
func TestErrorsMatchTheErrorsOfRedsync(t *testing.T) {
	t.Parallel()
	theirs, ours := start(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := func(_ bool, err error) error { return err }
	all := func(t *testing.T, l *library, command string, m mutex, args ...any) {
		for i := range l.servers {
			l.do(t, i, command, append([]any{m.Name()}, args...)...)
		}
	}
	for name, run := range map[string]func(t *testing.T, l *library, m mutex) error{
		"Lock of a taken one": func(t *testing.T, l *library, m mutex) error {
			all(t, l, "SET", m, "another")
			return m.TryLock()
		},
		"Lock with an ended context": func(t *testing.T, l *library, m mutex) error {
			all(t, l, "SET", m, "another")
			return m.LockContext(ended)
		},
		"Extend of a lock that another has": func(t *testing.T, l *library, m mutex) error {
			require.NoError(t, m.Lock())
			all(t, l, "SET", m, "another")
			return failed(m.Extend())
		},
		"Extend of a lock that is gone": func(t *testing.T, l *library, m mutex) error {
			require.NoError(t, m.Lock())
			all(t, l, "DEL", m)
			return failed(m.Extend())
		},
		"Extend of one that is not locked": func(t *testing.T, l *library, m mutex) error { return failed(m.Extend()) },
		"Extend of one that is unlocked": func(t *testing.T, l *library, m mutex) error {
			require.NoError(t, m.Lock())
			succeeds(t)(m.Unlock())
			return failed(m.Extend())
		},
		"Unlock of a lock that another has": func(t *testing.T, l *library, m mutex) error {
			require.NoError(t, m.Lock())
			all(t, l, "SET", m, "another")
			return failed(m.Unlock())
		},
		"Unlock of a lock that is gone": func(t *testing.T, l *library, m mutex) error {
			require.NoError(t, m.Lock())
			all(t, l, "DEL", m)
			return failed(m.Unlock())
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := theirMatches(run(t, theirs, theirs.mutex(t.Name()+"/theirs", settings{})))
			got := ourMatches(run(t, ours, ours.mutex(t.Name()+"/ours", settings{})))
			assert.NotEmpty(t, want)
			assert.Subset(t, got, want)
			if name == "Unlock of a lock that is gone" {
				assert.NotContains(t, got, "*ErrTaken")
			}
		})
	}
}

// TestBothLibrariesExcludeEachOther: on the same servers, the programs of a fleet can therefore
// switch one by one.
func TestBothLibrariesExcludeEachOther(t *testing.T) {
	t.Parallel()
	theirs, ours := start(t)
	for _, pair := range [][2]*library{{theirs, ours}, {ours, theirs}} {
		first, second := pair[0].mutex("both", settings{}), pair[1].mutex("both", settings{})
		require.NoError(t, first.Lock())
		require.NotNil(t, pair[1].taken(second.TryLock()))
		by := pair[1].mutex("both", settings{value: first.Value()})
		succeeds(t)(by.Extend())
		succeeds(t)(by.Unlock())
		require.NoError(t, second.TryLock())
		succeeds(t)(second.Unlock())
	}
}
