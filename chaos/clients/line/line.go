// Package line is the client's side of chaos/PROTOCOL.md, for libraries in Go. Each program beside it
// shows its library to chaos: at its documented defaults, or with -best at the best settings that
// its documentation names.
package line

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Forever is what Left returns for a lock whose library tells no deadline.
const Forever time.Duration = math.MaxInt64

// A Lock is one that was granted.
type Lock struct {
	Token int64 // its fencing token, if the library has them

	// Left returns how long the lock is held for from now on, or Forever. It is lost if that is no
	// millisecond, or if there is an error, which says why.
	Left func(context.Context) (time.Duration, error)
	// Extend prolongs it to a TTL from now. An error says that it was not. It is called only if
	// extend is among the Features.
	Extend  func(context.Context) error
	Release func(context.Context) error
}

// A Library takes locks on servers that were given to it.
type Library struct {
	Features string        // as chaos/PROTOCOL.md has them; empty: none
	Limit    time.Duration // of each call for a lock that is held; zero: longer than chaos waits
	// Acquire waits until ctx ends at most. The lock outlives ctx.
	Acquire func(ctx context.Context, name string) (Lock, error)
	Close   func()
}

// Servers are where to lock, and for how long.
type Servers struct {
	TTL   time.Duration
	Addrs []string // host:port
}

// Main answers on standard output what it is asked on standard input, until that ends. open opens the
// library; it need not reach the servers. module is that of the library called name, for its version.
func Main(name, module string, open func(s Servers, best bool) (Library, error)) {
	best := flag.Bool("best", false, "use the best settings instead of the defaults")
	flag.Parse()
	setting := "defaults"
	if *best {
		setting = "best settings"
	}
	about := fmt.Sprintf("%s %s, %s", name, version(module), setting)
	err := serve(about, func(s Servers) (Library, error) { return open(s, *best) })
	if err != nil {
		fmt.Fprintln(os.Stderr, about+":", err)
		os.Exit(1)
	}
}

// version returns the version of a module, as far as the build knows it.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == module })
	if i < 0 || info.Deps[i].Replace != nil {
		return "of this checkout"
	}
	return info.Deps[i].Version
}

// serve answers requests until they end, and then releases the lock that is held.
func serve(about string, open func(Servers) (Library, error)) error {
	requests := bufio.NewScanner(os.Stdin)
	if !requests.Scan() {
		return requests.Err()
	}
	words := strings.Fields(requests.Text())
	if len(words) < 3 || words[0] != "open" {
		return fmt.Errorf("the first line is %q, not: open TTL_MS HOST:PORT...", words)
	}
	ttl, err := milliseconds(words[1])
	if err != nil {
		return err
	}
	lib, err := open(Servers{ttl, words[2:]})
	if err != nil {
		return err
	}
	defer lib.Close()
	fmt.Println("ready", cmp.Or(lib.Features, "-"), about)
	s := &session{lib: lib}
	for requests.Scan() {
		answer, err := s.answer(strings.Fields(requests.Text()))
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	s.answer([]string{"release"}) // who asked is gone; it is out of turn without a lock
	return requests.Err()
}

// milliseconds is a time that a request has.
func milliseconds(word string) (time.Duration, error) {
	ms, err := strconv.Atoi(word)
	if err != nil || ms <= 0 {
		return 0, fmt.Errorf("%q is not a number of milliseconds above zero", word)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// A session has one lock at a time.
type session struct {
	lib  Library
	lock *Lock
}

// answer returns the line that answers a request.
func (s *session) answer(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.lib.Limit, time.Minute))
	defer cancel()
	switch {
	case len(words) == 3 && words[0] == "acquire" && s.lock == nil:
		wait, err := milliseconds(words[2])
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		lock, err := s.lib.Acquire(ctx, words[1])
		if err != nil {
			return "failed " + oneLine(err), nil
		}
		s.lock = &lock
		if lock.Token > 0 {
			return fmt.Sprint("granted ", lock.Token), nil
		}
		return "granted", nil
	case len(words) != 1 || s.lock == nil:
	case words[0] == "held":
		left, err := s.lock.Left(ctx)
		switch {
		case err != nil:
			return "lost " + oneLine(err), nil
		case left == Forever:
			return "held", nil
		case left < time.Millisecond:
			return "lost at its deadline", nil
		}
		return fmt.Sprint("held ", left.Milliseconds()), nil
	case words[0] == "extend" && s.lock.Extend != nil:
		if err := s.lock.Extend(ctx); err != nil {
			return "failed " + oneLine(err), nil
		}
		return s.answer([]string{"held"})
	case words[0] == "release":
		err := s.lock.Release(ctx)
		s.lock = nil
		if err != nil {
			return "failed " + oneLine(err), nil
		}
		return "released", nil
	}
	return "", fmt.Errorf("the request %q is unknown, or out of turn", words)
}

// oneLine is the error as one line, with no more than a line may have.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), 400)]
}
