package wire

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// The errors of a server, by their codes. Package pool says what they mean.
var (
	ErrReplica          = errors.New("is a replica and must not vote: use its primary")
	ErrLoading          = errors.New("is loading its data and cannot answer yet")
	ErrAuth             = errors.New("rejects the user or password: check both, and the server's ACL")
	ErrPermission error = protocol.PermanentError("forbids a command that locks need: " +
		"grant the user the rights in docs/OPERATING.md")
	ErrCluster error = protocol.PermanentError("is a node of a Redis Cluster that does not have all keys: " +
		"use independent servers, or a cluster of one shard")
	ErrUnsupported error = protocol.PermanentError("does not know a command that locks need: " +
		"it is too old, renames the command, or is a Sentinel or proxy")

	ErrReplyTooLarge = errors.New("sends a larger reply than any about a lock")

	// ErrUnexpected is for a reply that no command of ours has.
	ErrUnexpected = errors.New("sends an invalid reply")
)

// serverErrors are the codes of Redis errors that have a meaning for locks. A fatal one would fail
// all requests: the connection is given up, and the handshakes of the next ones tell when the
// server can serve again.
var serverErrors = map[string]struct {
	err   error
	fatal bool
}{
	"READONLY":   {ErrReplica, true},
	"MASTERDOWN": {ErrReplica, true},
	"LOADING":    {ErrLoading, true},
	"NOAUTH":     {ErrAuth, true},
	"WRONGPASS":  {ErrAuth, true},
	"BUSY":       {nil, true}, // a script runs for too long
	"NOPERM":     {ErrPermission, false},
	"WRONGTYPE":  {protocol.ErrWrongType, false},

	"REDLOCKFENCE": {protocol.ErrCounter, false}, // from our own scripts

	"MOVED":       {ErrCluster, false},
	"ASK":         {ErrCluster, false},
	"TRYAGAIN":    {nil, false}, // for the moment, as CLUSTERDOWN
	"MISCONF":     {nil, false}, // for the moment: it cannot write to its disk
	"NOREPLICAS":  {nil, false}, // for the moment: it has too few replicas
	"OOM":         {nil, false}, // for the moment: its memory is full
	"CROSSSLOT":   {ErrCluster, false},
	"CLUSTERDOWN": {nil, false},

	unknownCommand: {ErrUnsupported, false},
}

// unknownCommand stands for a code, which servers do not have for this error.
const unknownCommand = "unknown command"

// wordings are errors of servers that have no code, and the code that each stands for.
var wordings = []struct{ says, code string }{
	// An ACL forbids a command within a script, or a key of one.
	{"The user executing the script", "NOPERM"}, // Redis 6.0 to 7.0
	{"ACL failure in script", "NOPERM"},         // Redis 7.2, Valkey, Redict

	{"in cluster mode", "MOVED"},                            // SELECT
	{"Script attempted to access a non local key", "MOVED"}, // that it did not name in KEYS
	{"Script attempted to access keys that do not hash to the same slot", "CROSSSLOT"},

	{"unknown command", unknownCommand},
	{"unsupported command", unknownCommand},               // Envoy
	{"Unknown Redis command called from", unknownCommand}, // in a script
}

// inScript is what Redis 7 puts behind an error in a script. It tells users nothing, and two scripts of
// ours that fail alike apart.
var inScript = regexp.MustCompile(` script: [0-9a-f]+, on @user_script:[0-9]+\.$`)

// Explain gives a server's error reply a meaning. The server's words are cut off where an error of
// Redis has long ended, because the error may be kept for as long as its caller likes.
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

// maxSaid bounds how much of a server's error is repeated. Redis's own errors are shorter.
const maxSaid = 400

// arguments matches where a server that does not know a command begins to repeat its arguments: a
// password, or the value of a lock.
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

// pieceLength is the length of the pieces of a secret that are looked for. Values of locks are five
// times as long.
const pieceLength = 8

// withoutSecret returns a server's message without the pieces of the secret. No server is known to
// repeat one but in the way that withoutArguments handles; this is for proxies and for servers to
// come.
func withoutSecret(message, secret string) string {
	for i := range len(secret) - pieceLength + 1 {
		message = strings.ReplaceAll(message, secret[i:i+pieceLength], "...")
	}
	return message
}
