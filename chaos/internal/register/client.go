package register

import (
	"encoding/json"
	"net"
	"sync"
)

// A Client writes to a register. It is safe for concurrent use.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// Dial connects to the register at an address.
func Dial(addr string) (*Client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Client{conn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}, nil
}

// Write reports whether the register took the write that client who makes
// under the lock of its acquisition op.
func (c *Client) Write(name string, token int64, who int, op int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(write{name, token, who, op}); err != nil {
		return false, err
	}
	var a answer
	err := c.in.Decode(&a)
	return a.Accepted, err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
