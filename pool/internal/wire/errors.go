package wire

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// The errors of a server, by their codes. Package pool explains them.
var (
	ErrLoading          = errors.New("is loading its data and cannot answer yet")
	ErrAuth             = errors.New("rejects the user or password: check both, and the server's ACL")
	ErrPermission error = protocol.PermanentError("forbids a command that locks need: " +
		"grant the user the rights in docs/OPERATING.md")
	ErrUnsupported error = protocol.PermanentError("does not know a command that locks need: " +
		"it is too old, renames the command, or is a Sentinel or proxy")

	ErrReplyTooLarge = errors.New("sends a larger reply than any about a lock")

	// ErrUnexpected means that none of our commands has such a reply.
	ErrUnexpected = errors.New("sends an invalid reply")
)

// serverErrors are the codes of Redis errors with a meaning for locks. A fatal error would fail all
// requests, so the connection ends, and the handshakes of the next ones show when the server can
// serve again.
var serverErrors = map[string]struct {
	err   error
	fatal bool
}{
	"READONLY":   {record.ErrReplica, true},
	"MASTERDOWN": {record.ErrReplica, true},
	"LOADING":    {ErrLoading, true},
	"NOAUTH":     {ErrAuth, true},
	"WRONGPASS":  {ErrAuth, true},
	"BUSY":       {nil, true}, // a script runs for too long
	"NOPERM":     {ErrPermission, false},
	"WRONGTYPE":  {protocol.ErrWrongType, false},

	"REDLOCKFENCE": {protocol.ErrCounter, false}, // from our own scripts

	"MOVED":       {record.ErrCluster, false},
	"ASK":         {record.ErrCluster, false},
	"TRYAGAIN":    {nil, false}, // temporary, like CLUSTERDOWN
	"MISCONF":     {nil, false}, // temporary: it cannot write to its disk
	"NOREPLICAS":  {nil, false}, // temporary: it has too few replicas
	"OOM":         {nil, false}, // temporary: its memory is full
	"CROSSSLOT":   {record.ErrCluster, false},
	"CLUSTERDOWN": {nil, false},

	unknownCommand: {ErrUnsupported, false},
}

// unknownCommand replaces a code, because servers have none for this error.
const unknownCommand = "unknown command"

// wordings maps the text of errors without a code to the code that this package assigns.
var wordings = []struct{ says, code string }{
	// An ACL forbids a command within a script, or a key of one.
	{"The user executing the script", "NOPERM"}, // Redis 6.0 to 7.0
	{"ACL failure in script", "NOPERM"},         // Redis 7.2, Valkey, Redict

	{"in cluster mode", "MOVED"},                            // SELECT
	{"Script attempted to access a non local key", "MOVED"}, // a key that is missing in KEYS
	{"Script attempted to access keys that do not hash to the same slot", "CROSSSLOT"},

	{"unknown command", unknownCommand},
	{"unsupported command", unknownCommand},               // Envoy
	{"Unknown Redis command called from", unknownCommand}, // in a script
}

// inScript matches the text that Redis 7 appends to an error in a script. It is of no use to users,
// and would make the same error of two scripts look different.
var inScript = regexp.MustCompile(` script: [0-9a-f]+, on @user_script:[0-9]+\.$`)

// Explain returns the meaning of a server's error reply. It cuts off a text that is longer than any
// error of Redis, because the caller may keep the error without limit.
func Explain(err redis.Error) (meaning error, fatal bool) {
	said := inScript.ReplaceAllString(withoutArguments(string(err)), "")
	known := serverErrors[Code(said)]
	if known.err == nil {
		return fmt.Errorf("answers %q", said), known.fatal
	}
	if strings.HasPrefix(said, "NOAUTH") {
		said = "none was sent: " + said
	}
	return fmt.Errorf("%w (%s)", known.err, said), known.fatal
}

// IsPermanent reports whether a request that failed with this meaning would fail again.
func IsPermanent(meaning error) bool {
	var permanent protocol.PermanentError
	return errors.As(meaning, &permanent)
}

// Code returns the code of a server's error. Servers before Redis 7 wrap the error of a script:
// "ERR Error running script (...): WRONGTYPE ...".
func Code(message string) string {
	first, rest, _ := strings.Cut(message, " ")
	if _, known := serverErrors[first]; known {
		return first
	}
	for _, w := range wordings {
		if strings.Contains(message, w.says) {
			return w.code
		}
	}
	if first != "ERR" {
		return first
	}
	for word := range strings.FieldsSeq(rest) {
		word = strings.TrimLeft(word, "-")
		if _, known := serverErrors[word]; known {
			return word
		}
	}
	return first
}

// maxSaid limits the length of a server's error in our errors. Redis's own errors are shorter.
const maxSaid = 400

// arguments matches the place at which a server that does not know a command begins to repeat its
// arguments: a password, or the value of a lock.
var arguments = regexp.MustCompile(`(?i)[ ,]*with args beginning with`)

// withoutArguments returns a server's message without a command's arguments.
func withoutArguments(message string) string {
	if at := arguments.FindStringIndex(message); at != nil {
		message = message[:at[0]]
	}
	if len(message) > maxSaid {
		message = message[:maxSaid] + "..."
	}
	return message
}

// pieceLength is the length of the pieces of a secret that are removed. Values of locks are five
// times as long.
const pieceLength = 8

// withoutSecret returns a server's message without the pieces of the secret. All known servers
// repeat a secret only as an argument, which withoutArguments removes. withoutSecret guards against
// proxies and future servers.
func withoutSecret(message, secret string) string {
	for i := range len(secret) - pieceLength + 1 {
		message = strings.ReplaceAll(message, secret[i:i+pieceLength], "...")
	}
	return message
}
