package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
)

// readFlag reads the files of a flag.
func readFlag[T any](c *cli, flag string, parse func(texts ...[]byte) (T, error), files ...string) (*reread.Files[T], error) {
	explain := func(err error) error {
		if _, hasPath := errors.AsType[*fs.PathError](err); !hasPath {
			err = fmt.Errorf("%s: %s", strings.Join(files, " and "), strings.TrimPrefix(err.Error(), "tls: "))
		}
		return wrong(c.flags, flag, "%w", err)
	}
	return reread.First(func() (*reread.Files[T], error) { return reread.Read(files, c.stderr, explain, parse) })
}

// authorities reads the certificates of a flag's file.
func (c *cli) authorities(flag, file string) (*reread.Files[*x509.CertPool], error) {
	return readFlag(c, flag, func(texts ...[]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(texts[0]) {
			return nil, errors.New("no certificate in PEM format")
		}
		return pool, nil
	}, file)
}

// keyPair reads the certificate of a flag's file, and its key.
func (c *cli) keyPair(flag, cert, key string) (*reread.Files[tls.Certificate], error) {
	return readFlag(c, flag, func(texts ...[]byte) (tls.Certificate, error) { return tls.X509KeyPair(texts[0], texts[1]) }, cert, key)
}
