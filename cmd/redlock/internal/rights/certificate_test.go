package rights

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certificateOf returns a certificate after encoding and decoding it. Its subject has each kind of
// part that programs write differently.
func certificateOf(t *testing.T, parts ...string) *x509.Certificate {
	t.Helper()
	numbers := map[string]asn1.ObjectIdentifier{
		"UID": {0, 9, 2342, 19200300, 100, 1, 1}, "DC": {0, 9, 2342, 19200300, 100, 1, 25}, "CN": {2, 5, 4, 3}, "O": {2, 5, 4, 10}, "OU": {2, 5, 4, 11},
		"E": {1, 2, 840, 113549, 1, 9, 1},
	}
	var subject pkix.Name
	for i := 0; i < len(parts); i += 2 {
		subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{Type: numbers[parts[i]], Value: parts[i+1]})
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	uri, err := url.Parse("spiffe://example/billing")
	require.NoError(t, err)
	of := &x509.Certificate{
		Subject: subject, SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"Billing.example"}, URIs: []*url.URL{uri}, EmailAddresses: []string{"billing@example"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	require.NoError(t, err)
	read, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return read
}

// TestSubjectsAreSetsOfParts: the parts can be in the notations of openssl, keytool and Go.
func TestSubjectsAreSetsOfParts(t *testing.T) {
	t.Parallel()
	c := certificateOf(t, "DC", "example", "DC", "com", "O", "Müller, Inc.", "OU", "a+b", "OU", "jobs", "CN", "billing", "UID", "42")
	isOf := func(subject string) bool {
		table, err := Parse([]byte("- label: a\n  subjects: ['" + subject + "']\n"))
		require.NoError(t, err, subject)
		return table.OfCertificate(c) != nil
	}
	for _, subject := range []string{
		c.Subject.String(),
		`subject=DC=example, DC=com, O="M\C3\BCller, Inc.", OU="a+b", OU=jobs, CN=billing, UID=42`,
		`subject=DC = example, DC = com, O = "M\C3\BCller, Inc.", OU = a\+b, OU = jobs, CN = billing, UID = 42`,
		`/DC=example/DC=com/O=M\xC3\xBCller, Inc./OU=a+b/OU=jobs/CN=billing/UID=42`,
		`UID=42,CN=billing,OU=jobs,OU=a\+b,O=Müller\, Inc.,DC=com,DC=example`,
		`uid=42 + cn=billing; ou=jobs, ou=a\2Bb, o=Müller\, Inc., dc=com, dc=example`,
		`0.9.2342.19200300.100.1.1=#13023432,CN=billing,OU=jobs,OU=a\+b,O=Müller\, Inc.,DC=com,DC=example`,
		"DNS:billing.EXAMPLE", "URI:spiffe://example/billing", "email:billing@example", "IP:10.0.0.1", "IP Address:10.0.0.1",
	} {
		assert.True(t, isOf(subject), subject)
	}
	for _, subject := range []string{
		"CN=billing", "DC=example,DC=com", `UID=42,CN=Billing,OU=jobs,OU=a\+b,O=Müller\, Inc.,DC=com,DC=example`,
		`UID=42,CN=billing,OU=jobs,O=Müller\, Inc.,DC=com,DC=example`, `UID=42,CN=billing,OU=jobs,OU=a\+b,O=Müller\, Inc.,DC=com,DC=example,C=DE`,
		"DNS:example", "URI:spiffe://example/billing/x", "DNS:10.0.0.1", "DNS:spiffe://example/billing",
	} {
		assert.False(t, isOf(subject), subject)
	}
	assert.Contains(t, Describe(c), "CN=billing")
	assert.Contains(t, Describe(c), " DNS:billing.example URI:spiffe://example/billing email:billing@example IP:10.0.0.1")
}

// TestCertificateWithoutASubject: only its alternative names identify it.
func TestCertificateWithoutASubject(t *testing.T) {
	t.Parallel()
	c := certificateOf(t)
	table, err := Parse([]byte("- {label: a, subjects: [CN=a]}\n- {label: b, subjects: ['URI:spiffe://example/billing']}"))
	require.NoError(t, err)
	assert.Equal(t, "b", table.OfCertificate(c).Label)
	assert.Equal(t, "DNS:billing.example URI:spiffe://example/billing email:billing@example IP:10.0.0.1", Describe(c))
}
