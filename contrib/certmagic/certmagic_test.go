package redlockcertmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	redlockcertmagic "github.com/redquorum/redquorum/contrib/certmagic"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

const domain = "example.com"

// An issuer calls its function before, and then issues a certificate.
type issuer struct {
	key    *ecdsa.PrivateKey
	before func(ctx context.Context) error
	issued atomic.Int32
}

func (*issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := i.before(ctx); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: domain}, DNSNames: request.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	i.issued.Add(1)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// newIssuer returns an issuer with a test CA and the given function before.
func newIssuer(t *testing.T, before func(ctx context.Context) error) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &issuer{key: key, before: before}
}

// instance returns the certmagic.Config of one process, with certificates in dir.
func instance(t *testing.T, w *sim.World, dir string, i certmagic.Issuer) (*certmagic.Config, *redlockcertmagic.Storage) {
	t.Helper()
	s, err := redlockcertmagic.New(&certmagic.FileStorage{Path: dir}, sim.Locker(t, w.NewClient(1), redlock.TTL(ttl)))
	require.NoError(t, err)
	var cfg *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		Logger:           zap.NewNop(),
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil },
	})
	t.Cleanup(cache.Stop)
	cfg = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{i}, Logger: zap.NewNop()})
	return cfg, s
}

// alone runs a test that is not parallel, because certmagic keeps the locks of a process in a
// global variable.
func alone(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.SimulateInUse(t, 1, 3*time.Hour, test)
}

func TestManyInstancesIssueACertificateOnce(t *testing.T) {
	alone(t, func(t *testing.T, w *sim.World) {
		dir := t.TempDir()
		ca := newIssuer(t, func(context.Context) error { time.Sleep(time.Minute); return nil })
		var all sync.WaitGroup
		for range 4 {
			cfg, _ := instance(t, w, dir, ca)
			all.Go(func() { assert.NoError(t, cfg.ObtainCertSync(t.Context(), domain)) })
		}
		all.Wait()
		assert.EqualValues(t, 1, ca.issued.Load())
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestAttemptAfterALossReacquiresTheLock: certmagic renews the lease before each attempt.
func TestAttemptAfterALossReacquiresTheLock(t *testing.T) {
	alone(t, func(t *testing.T, w *sim.World) {
		tries := 0
		cfg, _ := instance(t, w, t.TempDir(), newIssuer(t, func(context.Context) error {
			assert.Equal(t, 5, sim.Holding(w, key))
			if tries++; tries > 2 {
				return nil
			}
			forget(w)
			return assert.AnError
		}))
		require.NoError(t, cfg.ObtainCertAsync(t.Context(), domain))
		assert.Equal(t, 3, tries)
		assert.Zero(t, sim.Holding(w, key))
	})
}

// TestCertmagicCleansUpAtExit: it unlocks a second time when the work is done.
func TestCertmagicCleansUpAtExit(t *testing.T) {
	alone(t, func(t *testing.T, w *sim.World) {
		cfg, s := instance(t, w, t.TempDir(), newIssuer(t, func(ctx context.Context) error {
			certmagic.CleanUpOwnLocks(ctx, zap.NewNop())
			assert.Zero(t, sim.Holding(w, key))
			return nil
		}))
		require.NoError(t, cfg.ObtainCertSync(t.Context(), domain))
		assert.True(t, tryLock(t, s))
		require.NoError(t, s.Unlock(t.Context(), name))
	})
}
