package main

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
)

// An entrance has the flags for the address at which "redlock serve" accepts clients, and for their
// identity.
type entrance struct {
	cli                   *cli
	listen, socketMode    string
	hosts                 []string
	tokenFile, rightsFile string
	cert, key, clientCA   string
}

func (e *entrance) addFlags(c *cli) {
	e.cli = c
	f := c.flags
	f.StringVar(&e.listen, "listen", "unix:/run/redlock.sock", "`ADDRESS` to listen at: unix:PATH or HOST:PORT")
	f.StringArrayVar(&e.hosts, "allow-host", nil, "`NAME`, in addition to localhost, that clients may use for a loopback address; repeat the flag for more")
	f.StringVar(&e.socketMode, "socket-mode", "0600", "who may use the socket, as for chmod(1)")
	f.StringVar(&e.tokenFile, "token-file", "", "`FILE` with tokens, one a line; each request must carry one of them")
	f.StringVar(&e.rightsFile, "tokens", "", "`FILE` of clients: the SHA-256 of their tokens, or certificates, and their rights")
	f.StringVar(&e.cert, "cert", "", "`FILE` of the certificate for TLS with the clients")
	f.StringVar(&e.key, "key", "", "`FILE` of its key")
	f.StringVar(&e.clientCA, "client-ca", "", "`FILE` of the authorities that sign the certificates of clients")
}

// check refuses flags that exclude each other.
func (e *entrance) check() error {
	switch {
	case (e.cert == "") != (e.key == ""):
		return usageErrorf("--cert and --key belong together: pass both")
	case e.tokenFile != "" && e.rightsFile != "":
		return usageErrorf("--token-file and --tokens exclude each other: --tokens has the tokens of all clients")
	case e.clientCA != "" && e.cert == "":
		return usageErrorf("--client-ca needs --cert and --key: clients send certificates over TLS only")
	case slices.ContainsFunc(e.hosts, func(name string) bool { return name == "" || strings.ContainsAny(name, "/*: ") }):
		return wrong(e.cli.flags, "allow-host", "must be a name without a port, such as host.docker.internal")
	}
	return nil
}

// A door is an address for clients, with the clients that it admits.
type door struct {
	listener   net.Listener
	address    string       // in the form that clients use
	rights     serve.Rights // nil: every client may do everything
	isLoopback bool
}

// open opens the door. It returns an error if unauthorized clients could enter.
func (e *entrance) open() (d door, err error) {
	if d.rights, err = e.rights(); err != nil {
		return d, err
	}
	secure, err := e.tlsConfig()
	if err != nil {
		return d, err
	}
	if d.listener, err = e.listener(); err != nil {
		return d, err
	}
	at := d.listener.Addr()
	reached, err := netip.ParseAddrPort(at.String())
	d.isLoopback = err == nil && reached.Addr().IsLoopback()
	switch {
	case at.Network() == "unix":
		d.address = "unix:" + at.String()
	case !d.isLoopback && (secure == nil || d.rights == nil && e.clientCA == ""):
		d.listener.Close()
		return d, wrong(e.cli.flags, "listen", "%v can be reached from other machines: pass --cert and --key, and --tokens, --token-file or --client-ca", at)
	case secure != nil:
		d.address = "https://" + at.String()
	default:
		d.address = "http://" + at.String()
	}
	if secure != nil {
		d.listener = tls.NewListener(d.listener, secure)
	}
	return d, nil
}

// rights reads the rights of clients: the file of --tokens, or the tokens of --token-file, one a
// line. The file may also contain the previous token, because a client whose token is refused
// cannot keep its locks.
func (e *entrance) rights() (serve.Rights, error) {
	if e.rightsFile != "" {
		return readFlag(e.cli, "tokens", func(texts ...[]byte) (rights.Table, error) { return rights.Parse(texts[0]) }, e.rightsFile)
	}
	if e.tokenFile == "" {
		return nil, nil
	}
	return readFlag(e.cli, "token-file", func(texts ...[]byte) (rights.Table, error) {
		var tokens []string
		for i, line := range strings.Split(strings.TrimSpace(string(texts[0])), "\n") {
			if line = strings.TrimSpace(line); len(line) < rights.LeastToken {
				return nil, fmt.Errorf("line %d: a token must have at least %d characters: make one with head -c 32 /dev/urandom | base64", i+1, rights.LeastToken)
			}
			tokens = append(tokens, line)
		}
		return rights.All(tokens...), nil
	}, e.tokenFile)
}

// tlsConfig returns the TLS configuration for clients, or nil.
func (e *entrance) tlsConfig() (*tls.Config, error) {
	if e.cert == "" {
		return nil, nil
	}
	pair, err := e.cli.keyPair("cert", e.cert, e.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		current := pair.Current()
		return &current, nil
	}}
	if e.clientCA == "" {
		return c, nil
	}
	authorities, err := e.cli.authorities("client-ca", e.clientCA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.SessionTicketsDisabled = true // a ticket would admit a client after the removal of its authority
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := c.Clone()
		current.ClientCAs = authorities.Current()
		return current, nil
	}
	return c, nil
}

// listener returns the listener that systemd passes, if any, or the one of --listen.
func (e *entrance) listener() (net.Listener, error) {
	passed, err := activation.Listeners()
	switch {
	case err != nil:
		return nil, configErrorf("the sockets of systemd (ListenStream=): %w", err)
	case len(passed) > 1:
		return nil, configErrorf("systemd passes %d sockets: configure one ListenStream=", len(passed))
	case len(passed) == 1 && (passed[0] == nil || !slices.Contains([]string{"unix", "tcp"}, passed[0].Addr().Network())):
		return nil, configErrorf("the socket of systemd does not listen for streams: use ListenStream=")
	case len(passed) == 1:
		return passed[0], nil
	}
	path, isUnix := strings.CutPrefix(e.listen, "unix:")
	if !isUnix {
		_, port, err := net.SplitHostPort(e.listen)
		if _, notPort := strconv.ParseUint(port, 10, 16); err != nil || notPort != nil {
			return nil, wrong(e.cli.flags, "listen", "%q must be unix:PATH or HOST:PORT, with a port of at most 65535", e.listen)
		}
		l, err := net.Listen("tcp", e.listen)
		if err != nil {
			return nil, e.cannotListen(err)
		}
		return l, nil
	}
	if path == "" || len(path) > longestPath {
		return nil, wrong(e.cli.flags, "listen", "%q must be unix:PATH, with a path of at most %d bytes", e.listen, longestPath)
	}
	mode, err := strconv.ParseUint(e.socketMode, 8, 9)
	if err != nil {
		return nil, wrong(e.cli.flags, "socket-mode", "%q must be octal, such as 0660", e.socketMode)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, e.cannotListen(err)
	}
	if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
		l.Close()
		return nil, fmt.Errorf("--socket-mode: %w", err)
	}
	return l, nil
}

// longestPath is the limit for a socket: 103 bytes on macOS and the BSDs, and a few more on Linux.
const longestPath = 103

// cannotListen returns the error for a valid address that is not available.
func (e *entrance) cannotListen(err error) error {
	return &exitError{code: exitFailed, err: wrong(e.cli.flags, "listen", "%w", err)}
}
