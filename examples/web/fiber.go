package web

import (
	"context"
	"math"
	"strconv"

	"github.com/gofiber/fiber/v3"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// Fiber is what httplock is for net/http: the handlers behind it run while they hold the lock that key
// names, and c.Context() ends if the lock is lost. Fiber does not end it when the client leaves.
//
// key's string must not be one of Fiber's buffers, which the next request overwrites: make it by
// fmt.Sprint or strings.Clone. A body that is streamed is written when the handler has returned, and
// so without the lock.
func Fiber(locker *redlock.Locker, key func(fiber.Ctx) (string, error), opts ...redlock.Option) fiber.Handler {
	opts = append([]redlock.Option{redlock.Retries(0)}, opts...)
	return func(c fiber.Ctx) error {
		name, err := key(c)
		if err != nil {
			return refuse(c, &httplock.KeyError{Err: err})
		}
		before := c.Context()
		lock, err := locker.Acquire(before, name, opts...)
		if err != nil {
			return refuse(c, err)
		}
		inner, cancel := lock.Bind(before)
		defer func() { // also if a handler panics
			cancel()
			c.SetContext(before)
			lock.Release(context.WithoutCancel(before))
		}()
		c.SetContext(inner)
		return c.Next()
	}
}

// refuse answers a request that does not get its lock, as httplock does.
func refuse(c fiber.Ctx, err error) error {
	problem := httplock.ProblemOf(err)
	if problem.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(problem.RetryAfter.Seconds()))))
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Status(problem.Status).JSON(problem, "application/problem+json")
}
