package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// A Cashier takes payments. Every instance of the shop has one, and all of them
// take one payment for an order at a time.
type Cashier struct {
	Locker *redlock.Locker
	Ledger *Ledger // the shop's, not the instance's

	// Charge asks the payment provider, and should end soon after ctx. The order
	// is its idempotency key: whoever loses the lock may have charged already, and
	// the next one charges again.
	Charge func(ctx context.Context, order string) error

	Lost func(r *http.Request, err error) // for logs and metrics
}

// Handler tells customers at once if somebody else is paying, and has the back
// office wait. Who may pay for an order is to be checked before, outside of it: a
// request takes the lock that its URL names.
func (c *Cashier) Handler() (http.Handler, error) {
	common := []httplock.Option{httplock.Lock(redlock.Fenced()), httplock.OnLost(c.Lost)}
	atOnce, err := httplock.New(c.Locker, lockName, common...)
	if err != nil {
		return nil, err
	}
	patient, err := httplock.New(c.Locker, lockName, append(common, httplock.Wait(10*time.Second))...)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", atOnce(http.HandlerFunc(c.pay)))
	mux.Handle("POST /office/orders/{id}/pay", patient(http.HandlerFunc(c.pay)))
	return mux, nil
}

// lockName begins with the kind of thing, so that an order and an invoice with one number
// do not meet.
func lockName(r *http.Request) (string, error) { return "order:" + r.PathValue("id"), nil }

func (c *Cashier) pay(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("id")
	lock, _ := httplock.FromContext(r.Context())

	// Look first: whoever waited for the lock waited for somebody who has paid.
	paid, err := c.Ledger.Paid(order, lock.Fence())
	if paid {
		fmt.Fprintf(w, "order %s was paid before\n", order)
		return
	}
	if err == nil {
		err = c.Charge(r.Context(), order) // ends with the lock
	}
	if err == nil {
		// The lock may have ended by now, and another one may have begun. To ask it
		// would not help, for it can also end between the question and the booking.
		err = c.Ledger.Book(order, lock.Fence())
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	fmt.Fprintf(w, "order %s is paid\n", order)
}

// refuse answers for a payment that began and was not booked.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := &httplock.Problem{
		Type: "about:blank", Title: http.StatusText(http.StatusBadGateway), Status: http.StatusBadGateway,
		Detail: "The payment has failed.",
	}
	switch {
	case errors.Is(err, fence.ErrStale):
		problem.Status, problem.Title = http.StatusConflict, http.StatusText(http.StatusConflict)
		problem.Detail = "Another request has taken over. Look whether the order is paid."
	case r.Context().Err() != nil: // the lock is lost, or the client has left and sees no answer
		problem = httplock.ProblemOf(context.Cause(r.Context())) // 503, with Retry-After
	}
	problem.ServeHTTP(w, r)
}
