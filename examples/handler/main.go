// Command handler has HTTP requests that must not overlap run one at a time, whichever instance of
// the server receives them.
//
// A shop runs on two instances, north and south. A customer who pays for an order while another
// request does is told to come again; the back office waits instead. An instance that is cut off
// from the lock's servers answers that it cannot work. A payment that loses its lock is cancelled,
// and if it is booked all the same, it is refused by its fencing token.
//
// Cashier and Ledger are what to copy. The rest plays the customers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func main() { stage.Main(story) }

// A Cashier takes payments. Every instance has one, and all of them together take one payment for
// an order at a time.
type Cashier struct {
	Locker *redlock.Locker
	Ledger *Ledger // the shop's, not the instance's

	// Charge asks the payment provider, and should end soon after ctx. The order is its
	// idempotency key: a payment that loses its lock may have charged already, and the next
	// one charges again.
	Charge func(ctx context.Context, order string) error
}

// Handler refuses customers at once while an order is being paid for, and has the back office
// wait. Whether a user may pay for an order is to be checked before it, because a request takes
// the lock that its URL names.
func (c *Cashier) Handler() (http.Handler, error) {
	// The name begins with the kind of thing, so that an order and an invoice with one number
	// have two locks.
	name := func(r *http.Request) (string, error) { return "order:" + r.PathValue("id"), nil }
	fenced := httplock.Lock(redlock.Fenced())
	atOnce, err := httplock.New(c.Locker, name, fenced)
	if err != nil {
		return nil, err
	}
	waiting, err := httplock.New(c.Locker, name, fenced, httplock.Wait(10*time.Second))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", atOnce(http.HandlerFunc(c.pay)))
	mux.Handle("POST /office/orders/{id}/pay", waiting(http.HandlerFunc(c.pay)))
	return mux, nil
}

func (c *Cashier) pay(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("id")
	lock, _ := httplock.FromContext(r.Context())

	// A request that waited for the lock waited for another payment, so look first.
	paid, err := c.Ledger.Paid(order, lock.Fence())
	if paid {
		fmt.Fprintf(w, "order %s was paid before\n", order)
		return
	}
	if err == nil {
		err = c.Charge(r.Context(), order) // ends with the lock
	}
	if err == nil {
		// The lock may have ended by now. To ask it would not help, because it can also end
		// between the question and the booking. The token tells.
		err = c.Ledger.Book(order, lock.Fence())
	}
	switch {
	case err == nil:
		fmt.Fprintf(w, "order %s is paid\n", order)
	case errors.Is(err, fence.ErrStale):
		http.Error(w, "Another request has taken over. Look whether the order is paid.", http.StatusConflict)
	case r.Context().Err() != nil: // the lock is lost, or the client has left
		httplock.ProblemOf(context.Cause(r.Context())).ServeHTTP(w, r) // 503, with Retry-After
	default:
		http.Error(w, "The payment has failed.", http.StatusBadGateway)
	}
}

// A Ledger has the orders that are paid. Its callers show the token of their lock, and are refused
// if a higher one was shown before. It stands for the shop's database, where the token is one more
// column: see examples/sqlfence. The zero value is ready.
type Ledger struct {
	gate fence.Gate
	paid sync.Map
}

// Paid reports whether the order is paid. It shows the token, so that a payment with a lower one
// cannot be booked after this look.
func (l *Ledger) Paid(order string, token int64) (paid bool, err error) {
	err = l.gate.Do(order, token, func() error {
		_, paid = l.paid.Load(order)
		return nil
	})
	return paid, err
}

// Book writes that the order is paid. Its error matches fence.ErrStale if the caller is late.
func (l *Ledger) Book(order string, token int64) error {
	return l.gate.Do(order, token, func() error {
		l.paid.Store(order, true)
		return nil
	})
}

// An instance is one of the shop's HTTP servers, on a machine of its own.
type instance struct {
	*httptest.Server
	locker  *redlock.Locker
	charges chan charge // what its cashier asks the payment provider for
}

// A charge waits for an answer, which the story gives.
type charge struct {
	ctx    context.Context
	answer chan error
}

// open starts an instance.
func open(ledger *Ledger, urls []string) (*instance, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	in := &instance{charges: make(chan charge)}
	in.locker, err = redlock.New(nodes,
		redlock.Prefix("example:handler:"),         // apart from what else is on the servers
		redlock.TTL(2*time.Second),                 // so long is an order locked if its instance vanishes
		redlock.NodeTimeout(1500*time.Millisecond), // all of this is on one machine, which may be busy
		redlock.MemoryGuard(false),                 // new servers would have no vote for a TTL; a shop leaves it on
	)
	if err != nil {
		return nil, err
	}
	handler, err := (&Cashier{Locker: in.locker, Ledger: ledger, Charge: in.charge}).Handler()
	if err != nil {
		return nil, err
	}
	in.Server = httptest.NewServer(handler)
	return in, nil
}

func (in *instance) close() {
	in.Close()
	in.locker.Close()
}

// charge does not end with ctx, because the story decides whether it was in time to be cancelled.
func (in *instance) charge(ctx context.Context, _ string) error {
	c := charge{ctx, make(chan error, 1)}
	in.charges <- c
	return <-c.answer
}

// pay sends a request, and returns what it brings.
func (in *instance) pay(path string) string {
	response, err := in.Client().Post(in.URL+path+"/pay", "", nil)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusOK {
		return "200, " + strings.TrimSpace(string(body))
	}
	return response.Status
}

// start sends a request, and returns when the payment provider is asked because of it. If the
// request ends without that, the reply is there to be shown, and the charge is one that has ended.
func (in *instance) start(path string) (charge, <-chan string) {
	reply := make(chan string, 1)
	go func() { reply <- in.pay(path) }()
	select {
	case c := <-in.charges:
		return c, reply
	case r := <-reply:
		reply <- r
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return charge{ended, make(chan error, 1)}, reply
	}
}

func story(_ context.Context, out io.Writer, urls []string) error {
	machines, stop, err := stage.Machines(urls, "north", "south")
	if err != nil {
		return err
	}
	defer stop()
	var ledger Ledger
	north, err := open(&ledger, machines[0].URLs)
	if err != nil {
		return err
	}
	defer north.close()
	south, err := open(&ledger, machines[1].URLs)
	if err != nil {
		return err
	}
	defer south.close()
	var wrong error
	show := func(what, got, want string) {
		fmt.Fprintf(out, "  %-30s %s\n", what, got)
		if got != want {
			wrong = errors.Join(wrong, fmt.Errorf("%s: should have been %q, was %q", what, want, got))
		}
	}

	fmt.Fprintln(out, "two customers pay for order 42 at the same time, and the back office meanwhile:")
	first, paid := north.start("/orders/42")
	show("another customer, at south:", south.pay("/orders/42"), "423 Locked")
	waited := make(chan string)
	go func() { waited <- south.pay("/office/orders/42") }()
	first.answer <- nil
	show("the customer at north:", <-paid, "200, order 42 is paid")
	show("the back office:", <-waited, "200, order 42 was paid before")

	fmt.Fprintln(out, "north is cut off from the lock's servers while it takes payments for orders 43 and 44:")
	prompt, stopped := north.start("/orders/43")
	slow, late := north.start("/orders/44")
	machines[0].Cut()
	for _, c := range []charge{prompt, slow} {
		<-c.ctx.Done()
	}
	prompt.answer <- prompt.ctx.Err()
	show("43, cancelled with its lock:", <-stopped, "503 Service Unavailable")
	show("another order, at north:", north.pay("/orders/45"), "503 Service Unavailable")
	next, booked := south.start("/office/orders/44") // when the servers have dropped the old lock
	next.answer <- nil
	show("44, at south:", <-booked, "200, order 44 is paid")
	slow.answer <- nil // the money is taken once, because the order is the idempotency key
	show("44, at north, too late:", <-late, "409 Conflict")
	return wrong
}
