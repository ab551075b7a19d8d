// Package web shows httplock with the routers and frameworks of others. They are in a module of their
// own, so that the lock itself does not depend on them.
//
//	chi    router.With(serialise).Post(...)                 it is a middleware of net/http
//	echo   e.POST(path, pay, echo.WrapMiddleware(serialise))
//	gin    engine.POST(path, Gin(serialise), pay)           gin.go, to copy
//	Fiber  app.Post(path, Fiber(locker, key), pay)          fiber.go, to copy
//
// Never give the middleware of httplock to Fiber's adaptor.HTTPMiddleware. The adaptor runs the
// handler when the middleware has returned, and so when the lock has been released: the requests are
// answered as if they were protected, and run side by side. A test here shows it.
//
// http.TimeoutHandler and echo's Timeout go outside of httplock: inside, they have the lock released
// while the handler works on. A test shows that, too.
package web
