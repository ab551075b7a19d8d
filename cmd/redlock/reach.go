package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/pool"
)

// A reach is how a command connects to servers.
type reach struct {
	timeout    time.Duration
	passwordBy string
	login      credentials
	tls        tlsFiles
}

func (r *reach) addFlags(c *cli) {
	f := c.flags
	f.DurationVar(&r.timeout, "dial-timeout", time.Second, "how long to wait for a connection")
	f.StringVar(&r.passwordBy, "password-command", "", "`COMMAND` of the shell that prints the password; run again for new connections, for passwords that expire")
	r.tls.addFlags(c)
}

// settle takes the credentials of the environment and the configuration file.
func (r *reach) settle(c *cli, from *configuration) error {
	login, err := credentialsOf(from)
	if err == nil {
		err = login.by(c.flags, r.passwordBy)
	}
	if err != nil {
		return err
	}
	if login.reread != nil { // the file was read already, and a pipe cannot be read twice
		login.reread.Stderr = c.stderr
	}
	r.login = login
	return nil
}

// options returns the options for package pool.
func (r *reach) options() ([]pool.Option, error) {
	opts := []pool.Option{pool.DialTimeout(r.timeout)}
	if r.login.areSet() {
		opts = append(opts, pool.Credentials(r.login.current)) // read for each connection
	}
	if r.tls.ca+r.tls.cert+r.tls.serverName == "" || r.tls.isUnused {
		return opts, nil
	}
	config, err := r.tls.option()
	return append(opts, config), err
}

// tlsFiles are the files for rediss:// URLs, which all servers share.
type tlsFiles struct {
	cli           *cli
	ca, cert, key string
	serverName    string
	isUnused      bool
	option        func() (pool.Option, error) // reads them, once
}

func (t *tlsFiles) addFlags(c *cli) {
	t.cli, t.option = c, sync.OnceValues(t.read)
	c.flags.StringVar(&t.ca, "tls-ca", "", "`FILE` of the certificate authorities for rediss:// (default: the system's)")
	c.flags.StringVar(&t.cert, "tls-cert", "", "`FILE` of our certificate for rediss://")
	c.flags.StringVar(&t.key, "tls-key", "", "`FILE` of its key")
	c.flags.StringVar(&t.serverName, "tls-server-name", "", "`NAME` that the servers' certificates must have, for servers behind a tunnel (default: the host of each URL)")
}

// check refuses a certificate without its key. If no server has TLS, the files are not read, and
// check warns that they have no effect.
func (t *tlsFiles) check(urls []string) error {
	const both = "a certificate and its key belong together: pass both"
	switch {
	case t.cert != "" && t.key == "":
		return wrong(t.cli.flags, "tls-cert", both)
	case t.key != "" && t.cert == "":
		return wrong(t.cli.flags, "tls-key", both)
	case slices.ContainsFunc(urls, func(u string) bool { return strings.HasPrefix(u, "rediss://") || strings.HasPrefix(u, "valkeys://") }):
		return nil
	}
	t.isUnused = true
	for name, value := range map[string]string{"tls-ca": t.ca, "tls-cert": t.cert, "tls-server-name": t.serverName} {
		if value != "" {
			fmt.Fprintln(t.cli.stderr, "redlock:", wrong(t.cli.flags, name, "has no effect: no server has a rediss:// URL"))
		}
	}
	return nil
}

// read reads the files for the first time.
func (t *tlsFiles) read() (pool.Option, error) {
	var authorities *reread.Files[*x509.CertPool]
	var pair *reread.Files[tls.Certificate]
	var err error
	if t.ca != "" {
		authorities, err = t.cli.authorities("tls-ca", t.ca)
	}
	if t.cert != "" && err == nil {
		pair, err = t.cli.keyPair("tls-cert", t.cert, t.key)
	}
	return pool.TLSFunc(func(context.Context, string) (*tls.Config, error) {
		c := &tls.Config{ServerName: t.serverName}
		if authorities != nil {
			c.RootCAs = authorities.Current()
		}
		if pair != nil {
			c.Certificates = []tls.Certificate{pair.Current()}
		}
		return c, nil
	}), err
}
