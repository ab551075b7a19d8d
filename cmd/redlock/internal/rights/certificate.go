package rights

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Subjects of certificates are compared as sets of parts, such as CN=billing, because programs
// write them in different orders and forms: openssl, keytool, Go. A certificate can also be
// identified by one of its subject alternative names, in the notation of openssl: DNS:a.example,
// URI:spiffe://example/a, email:a@example, IP Address:10.0.0.1.

// types maps the names of subject parts, in capitals, to their numbers.
var types = map[string]string{
	"CN": "2.5.4.3", "SN": "2.5.4.4", "SERIALNUMBER": "2.5.4.5", "C": "2.5.4.6", "L": "2.5.4.7", "ST": "2.5.4.8", "S": "2.5.4.8",
	"STREET": "2.5.4.9", "O": "2.5.4.10", "OU": "2.5.4.11", "T": "2.5.4.12", "TITLE": "2.5.4.12", "POSTALCODE": "2.5.4.17",
	"GN": "2.5.4.42", "INITIALS": "2.5.4.43", "DNQUALIFIER": "2.5.4.46",
	"UID": "0.9.2342.19200300.100.1.1", "DC": "0.9.2342.19200300.100.1.25",
	"EMAILADDRESS": "1.2.840.113549.1.9.1", "E": "1.2.840.113549.1.9.1",
}

// alternatives are the supported kinds of subject alternative names.
var alternatives = []string{"DNS:", "URI:", "email:", "IP:"}

// namesOf returns the names that can identify a certificate.
func namesOf(c *x509.Certificate) []string {
	var parts, all []string
	for _, p := range c.Subject.Names {
		if text, ok := p.Value.(string); ok {
			parts = append(parts, p.Type.String()+"="+text)
		}
	}
	if len(parts) == len(c.Subject.Names) && len(parts) > 0 { // all parts can be compared
		all = append(all, setOf(parts))
	}
	for _, name := range c.DNSNames {
		all = append(all, "DNS:"+strings.ToLower(name))
	}
	for _, uri := range c.URIs {
		all = append(all, "URI:"+uri.String())
	}
	for _, address := range c.EmailAddresses {
		all = append(all, "email:"+address)
	}
	for _, ip := range c.IPAddresses {
		all = append(all, "IP:"+ip.String())
	}
	return all
}

// Describe returns the identity of a certificate, as a subject in the notation of the file.
func Describe(c *x509.Certificate) string {
	all := []string{c.Subject.String()}
	for _, name := range namesOf(c) {
		if slices.ContainsFunc(alternatives, func(kind string) bool { return strings.HasPrefix(name, kind) }) {
			all = append(all, name)
		}
	}
	return strings.TrimPrefix(strings.Join(all, " "), " ")
}

// setOf returns the set of parts as a text to compare.
func setOf(parts []string) string {
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), "\x00")
}

// nameOf converts a subject of the file to the form of namesOf.
func nameOf(text string) (string, error) {
	text = strings.TrimSpace(strings.Replace(text, "IP Address:", "IP:", 1))
	for _, kind := range alternatives {
		if name, ok := strings.CutPrefix(text, kind); ok && name != "" {
			if kind == "DNS:" {
				name = strings.ToLower(name)
			}
			return kind + name, nil
		}
	}
	text = strings.TrimSpace(strings.TrimPrefix(text, "subject="))
	separators := ",;+"
	if strings.HasPrefix(text, "/") { // notation of old versions of openssl
		text, separators = text[1:], "/"
	}
	var parts []string
	for text != "" {
		var part string
		var err error
		if part, text, err = cutPart(text, separators); err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "", errors.New("is empty")
	}
	return setOf(parts), nil
}

// cutPart returns the first part of a subject, and the rest. A separator, quote or backslash in a
// value is escaped by a backslash or quoted. \C3\BC are bytes, written \xC3\xBC in the old
// notation, which has no quotes.
func cutPart(text, separators string) (part, rest string, err error) {
	kind, text, ok := strings.Cut(text, "=")
	kind = strings.TrimSpace(kind)
	number := types[strings.ToUpper(kind)]
	if number == "" && strings.Trim(kind, "0123456789.") == "" {
		number = kind
	}
	if !ok || number == "" {
		return "", "", fmt.Errorf("%q is not a part of a subject, such as CN=billing", kind)
	}
	text = strings.TrimLeft(text, " ")
	var value []byte
	kept := 0 // length of the prefix whose trailing blanks are kept
	isQuoted, isOld := false, separators == "/"
	i := 0
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			if isOld && text[i+1] == 'x' {
				i++
			}
			if b, err := hex.DecodeString(text[i+1 : min(i+3, len(text))]); err == nil && len(b) == 1 {
				value = append(value, b[0])
				i += 2
			} else {
				value = append(value, text[i+1])
				i++
			}
			kept = len(value)
		case c == '"' && !isOld:
			isQuoted = !isQuoted
			kept = len(value)
		case !isQuoted && strings.IndexByte(separators, c) >= 0:
			return number + "=" + valueOf(value, kept), strings.TrimLeft(text[i+1:], " "), nil
		default:
			value = append(value, c)
		}
	}
	return number + "=" + valueOf(value, kept), "", nil
}

// valueOf returns a value without trailing blanks. It decodes a value in DER, which begins with #.
func valueOf(value []byte, kept int) string {
	for len(value) > kept && value[len(value)-1] == ' ' {
		value = value[:len(value)-1]
	}
	if der, err := hex.DecodeString(strings.TrimPrefix(string(value), "#")); err == nil && len(value) > 0 && value[0] == '#' {
		var raw asn1.RawValue
		if rest, err := asn1.Unmarshal(der, &raw); err == nil && len(rest) == 0 {
			return string(raw.Bytes)
		}
	}
	return string(value)
}
