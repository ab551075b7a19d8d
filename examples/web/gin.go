package web

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin makes a middleware of net/http, such as that of httplock.New, one of gin. The handlers behind it
// run within it, with its request; where it answers by itself they do not run.
func Gin(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		runs := false
		received := c.Request
		defer func() { c.Request = received }() // also for what answers a panic: it has no lock
		middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			runs = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, received)
		if !runs {
			c.Abort()
		}
	}
}
