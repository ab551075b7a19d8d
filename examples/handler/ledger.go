package main

import (
	"sync"

	"github.com/redquorum/redquorum/fence"
)

// A Ledger has the orders that are paid. Whoever reads or writes shows the token
// of their lock, and is refused if somebody with a higher one was there before.
// The zero value is ready.
//
// It stands for the shop's database, where the token is one more column: see
// examples/sqlfence.
type Ledger struct {
	gate fence.Gate
	mu   sync.Mutex // Token needs none
	paid map[string]int64
}

// Paid says whether the order is paid. It shows the token, so that nobody who was
// there before can book a payment after this look.
func (l *Ledger) Paid(order string, token int64) (paid bool, err error) {
	err = l.gate.Do(order, token, func() error {
		_, paid = l.Token(order)
		return nil
	})
	return paid, err
}

// Book writes that the order is paid. The error matches fence.ErrStale if the
// writer is late.
func (l *Ledger) Book(order string, token int64) error {
	return l.gate.Do(order, token, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.paid == nil {
			l.paid = map[string]int64{}
		}
		l.paid[order] = token
		return nil
	})
}

// Token returns the token that the order was paid with.
func (l *Ledger) Token(order string) (token int64, paid bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	token, paid = l.paid[order]
	return token, paid
}
