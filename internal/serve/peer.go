package serve

import (
	"context"
	"net"
)

// peerKey is where a request's context says which process has sent it.
type peerKey struct{}

// ConnContext notes which process of this machine is behind a connection to a Unix socket. It is for the
// field of that name of http.Server.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if socket, ok := c.(*net.UnixConn); ok {
		return context.WithValue(ctx, peerKey{}, peerOf(socket))
	}
	return ctx
}
