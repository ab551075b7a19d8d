package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// wrongInputs are command lines, preceded by the environment (NAME=VALUE) and the configuration
// file (file=TEXT). Quotes are as in a shell, and \n is a new line. $REDLOCK_NODES is redis://nodes
// by default.
var wrongInputs = []struct {
	input string
	code  int
	words string
}{
	// no command
	{"dance", 64, `unknown command "dance"; see`},
	{"relese x", 64, `unknown command "relese" (did you mean "release"?)`},
	{"unlock x", 64, `unknown command "unlock" (did you mean "release"?)`},
	{"lock x", 64, `unknown command "lock" (did you mean "run"?)`},
	{"run --nowait x -- true", 64, `unknown flag: --nowait (did you mean "--no-wait"?); see "redlock run --help"`},
	{"status --waitch x", 64, `unknown flag: --waitch (did you mean "--watch"?)`},
	{"help relese", 64, `did you mean "release"`},
	{"help run x", 64, `unknown command "x"; see "redlock run --help"`},
	{"version now", 64, "version takes no arguments"},
	{"man", 64, "man takes one argument, the directory to write to, not 0"},
	{"completion fishy", 64, `unknown command "fishy"; see "redlock completion --help"`},
	{"dance --loud", 64, "unknown flag: --loud"},
	{"--version=maybe", 64, `redlock: --version: "maybe" must be true or false`},

	// flags
	{"run --colour x -- true", 64, "unknown flag: --colour; see \"redlock run --help\"; put flags of the COMMAND after --: redlock run NAME -- COMMAND; and a NAME that begins with -"},
	{"status -x", 64, "put a NAME that begins with - after --: redlock status -- -NAME"},
	{"status --node", 64, "flag needs an argument: --node; see \"redlock status --help\""},
	{"run --ttl 5 x -- true", 64, `redlock: --ttl: "5" must be a time with its unit, such as 500ms, 10s or 1h30m` + "\n"},
	{"run --ttl 10s --ttl 1ms x -- true", 64, "redlock: --ttl 1ms: must be between"},
	{"run --permits 2 --weight 3 x -- true", 64, "--weight 3: must be between 1 and the number of --permits, 2"},
	{"run --ttl 1ms x -- true", 64, "redlock: --ttl 1ms: must be between 500ms and a year"},
	{"run --wait -5s x -- true", 64, "--wait -5s: must be above zero: use --no-wait to wait for no holder"},
	{"run --no-wait --wait 1s x -- true", 64, "--no-wait excludes --wait"},
	{"run --retries x x -- true", 64, `redlock: --retries: "x" must be a whole number` + "\n"},
	{"run --verbose=maybe x -- true", 64, `redlock: --verbose: "maybe" must be true or false`},
	{"run --memory-guard=off x -- true", 64, `redlock: --memory-guard: "off" must be true or false`},
	{"run --memory-guard off x -- true", 64, `one NAME must precede the --, not 2: ["off" "x"]`},
	{"run --permits 3 --weight 2 --fenced x -- true", 64, "--weight above 1 excludes --fenced"},
	{"run --permits 3 --fair x -- true", 64, "excludes --permits"},
	{"run --permits 3 --and y x -- true", 64, "--permits excludes --and"},
	{"run --fenced --and y x -- true", 64, "--fenced excludes --and"},
	{"run --shared --fenced x -- true", 64, "--shared excludes --fenced"},
	{"run -q -v x -- true", 64, "--quiet excludes --verbose: omit one"},
	{"hold --stop-within 9s x", 64, "--stop-within 9s: must be between 0 and 4s"},
	{"run --once-per 1ms x -- true", 64, "redlock: --once-per 1ms: must be between 1s and 24h, or day\n"},
	{"run --once-per 27m x -- true", 64, "redlock: --once-per 27m: does not divide a day; the nearest that do are 24m and 30m\n"},
	{"run --once-per 25h x -- true", 64, "redlock: --once-per 25h: does not divide a day; the longest that does is 24h\n"},
	{"run --once-per 5m --and y x -- true", 64, "redlock: --once-per and --at-least-apart exclude --and, --shared and --permits"},
	{"run --at-least-apart 5m --shared x -- true", 64, "redlock: --once-per and --at-least-apart exclude --and, --shared and --permits"},
	{"run --at-least-apart 1ms x -- true", 64, "redlock: --at-least-apart 1ms: must be between 1s and a year\n"},
	{"run --once-per 5m --at-least-apart 5m x -- true", 64, "--once-per excludes --at-least-apart"},
	{"run --tick @1893979800 x -- true", 64, "--tick needs --once-per: it names the slot"},
	{"run --once-per 5m --tick yesterday x -- true", 64, `redlock: --tick: "yesterday" must be a time as in RFC 3339, such as 2030-01-07T02:30:00+01:00, or @ and seconds since 1970` + "\n"},
	{"run --once-per 5m --tick @1893979800000 x -- true", 64, "must be later than 1970, and at most one slot (5m) from now"},
	{"run --once-per 5m --tick @0 x -- true", 64, "must be later than 1970"},
	{"run --ttl 9999999h x -- true", 64, `redlock: --ttl: "9999999h" is too large: must be between 500ms and a year` + "\n"},
	{"REDLOCK_TTL=9999999h30m run x -- true", 78, `redlock: $REDLOCK_TTL: "9999999h30m" is too large: must be between 500ms and a year` + "\n"},
	{"run --once-per 9999999h x -- true", 64, `redlock: --once-per: "9999999h" is too large: must be between 1s and 24h, or day` + "\n"},
	{"run --wait 9999999h x -- true", 64, `redlock: --wait: "9999999h" is too large: must be below 292 years` + "\n"},
	{"run --permits 99999999999999999999 x -- true", 64, `redlock: --permits: "99999999999999999999" is too large: must be between 1 and 1000` + "\n"},
	{"run --once-per week x -- true", 64, `redlock: --once-per: "week" must be day, or a time with its unit, such as 5m or 1h` + "\n"},
	{"run --once-per day x -- true", 64, "redlock: --once-per day needs --time-zone, because a day begins at another time in each zone: pass the zone of the crontab"},
	{"run --once-per 24h --time-zone UTC x -- true", 64, "redlock: --time-zone needs --once-per day: other slots are the same in all zones\n"},
	{"run --once-per day --time-zone Europe/Bonn x -- true", 64, `redlock: --time-zone: "Europe/Bonn" must be a name of the time zone database, such as Europe/Berlin`},
	{"run --once-per day --time-zone Local x -- true", 64, `redlock: --time-zone: "Local" must be a name`},
	{`run --owner 'a\nb' x -- true`, 64, `redlock: --owner: "a\nb" has a control character` + "\n"},
	{"run --owner " + strings.Repeat("long", 40) + " x -- true", 64, "redlock: --owner: the label has 160 bytes, at most 128 are allowed"},
	{"run --prefix " + strings.Repeat("long", 400) + " x -- true", 64, "redlock: --prefix: 1600 bytes leave no room for names"},
	{"run --prefix redlock:fence:x x -- true", 64, "redlock: --prefix: must not look like a key of redlock's own"},
	{"run --max-ttl 5s x -- true", 64, "redlock: --max-ttl 5s: must be at least the TTL of this lock, 10s"},
	{"run --node-timeout 20s x -- true", 64, "redlock: --node-timeout 20s: must be below the TTL, 10s"},
	{"run --memory-guard=false --node redis://a?standby=b:1 x -- true", 64, "fails over, and needs the memory guard, which is turned off\n"},

	// names and commands
	{"run 'nightly\r' -- true", 64, `redlock: the name "nightly\r" has a control character: it is another lock than "nightly"` + "\n"},
	{`run 'nightly ' -- true`, 64, `redlock: the name "nightly " begins or ends with a blank: it is another lock than "nightly"` + "\n"},
	{"run \u200bnightly -- true", 64, `redlock: the name "\u200bnightly" begins or ends with a blank`},
	{`run --and ' b' a -- true`, 64, `redlock: the name " b" begins or ends with a blank`},
	{"run --prefix 'p:\r' a -- true", 64, `redlock: --prefix: "p:\r" has a control character`},
	{`run --owner 'web ' a -- true`, 64, `redlock: --owner: "web " begins or ends with a blank`},
	{"hold 'nightly\t'", 64, `redlock: the name "nightly\t" has a control character`},
	{"run", 64, "the command is missing: write redlock run NAME -- COMMAND"},
	{"run x echo 'a b'", 64, "-- is missing before the command: write redlock run x -- echo 'a b'\n"},
	{"run x grep -q a", 64, "write redlock run [flags] x -- grep a [flags]\n"},
	{"run x 'echo a'", 64, "write redlock run x -- sh -c 'echo a'\n"},
	{"run x -- 'echo a'", 127, "redlock: \"echo a\": executable file not found in $PATH: redlock starts no shell, so write redlock run x -- sh -c 'echo a'\n"},
	{"run -- true", 64, "redlock: the NAME is missing: write redlock run NAME -- COMMAND\n"},
	{"serve --listen 127.0.0.1:99999", 64, `redlock: --listen: "127.0.0.1:99999" must be unix:PATH or HOST:PORT, with a port of at most 65535` + "\n"},
	{"serve --probes 8081", 64, `redlock: --probes: "8081": must be HOST:PORT`},
	{"serve --candidate a", 64, "redlock: --candidate needs --office"},
	{"run x y -- true", 64, `one NAME must precede the --, not 2: ["x" "y"]`},
	{"run '' -- true", 64, "the name of a lock must not be empty"},
	{"run redlock:epoch -- true", 64, "is a key of redlock's own, not a lock"},
	{"run " + strings.Repeat("x", 2000) + " -- true", 64, "the name of a lock is too long"},
	{"run x -- /no/command", 127, "/no/command: no such file or directory"},
	{"run x -- /", 126, "redlock: /: "},
	{"hold x -- true", 64, "hold takes one argument, the name of the lock, not 2"},
	{"hold ''", 64, "the name of a lock must not be empty"}, // although standard input has ended

	// servers
	{"REDLOCK_NODES= status", 64, "(\"redlock help config\")\n"},
	{"REDLOCK_NODES= hold x", 64, "(\"redlock help config\"); for a trial, use --embedded, or \"redlock nodes\"\n"},
	{"run --node 127.0.0.1:22001 x -- true", 64, "redlock: --node: server 1: the scheme is missing: write redis://host:port"},
	{"status --node redis://a --node redis://:hunter2@a:b", 64, "redlock: --node: server 2: not a URL of the form"},
	{"demo --node redis://:hunter2@127.0.0.1:x", 64, "redlock: --node: server 1: "},
	{"demo --node paper", 64, `redlock: --node: "paper" must be embedded, process or redis:// URLs`},
	{"status --node redis://u:hunter2%zz@a", 64, "redlock: --node: server 1: not a URL"},
	{"status --node redis://A:1,redis://a:1", 64, "URLs 1 and 2 name the same server, a:1"},
	{"run --node redis://a:1,redis://a:1 x -- true", 64, "redlock: --node: URLs 1 and 2 name the same server, a:1"},
	{"hold --embedded --node redis://a x", 64, "--embedded and --node exclude each other"},
	{"status --embedded", 64, "unknown flag: --embedded"},
	{"status --tls-cert x", 64, "redlock: --tls-cert: a certificate and its key belong together: pass both"},
	{"REDLOCK_NODES=rediss://nodes status --tls-ca /dev/null", 64, "redlock: --tls-ca: /dev/null: no certificate in PEM format"},
	{"REDLOCK_NODES=rediss://nodes status --tls-cert /no/file --tls-key /no/key", 64, "redlock: --tls-cert: open /no/file"},

	// groups
	{"status --group redis://:hunter2@a", 64, "redlock: --group: a group has no name: write NAME=URL,URL"},
	{"status --group a=,b=redis://:hunter2@a", 64, "redlock: --group: group a has no servers: write a=URL"},
	{"status --group a=redis://a --group b=redis://b --group a=redis://c", 64, "redlock: --group: group a is duplicated: list all its URLs"},
	{"status --group a=redis://a --node redis://b", 64, "--node and --group exclude each other"},
	{"run --group a=redis://a --embedded x -- true", 64, "--embedded and --group exclude each other"},
	{"status --group a=redis://b --group b=redis://:hunter2@h:99999", 64, "redlock: --group: group b: server 1: the port must"},
	{"status --group 'a=redis://:hunter2@a b=redis://b,redis://a:6379'", 64, "groups a and b have the same server, a:6379: a server belongs to one group"},

	// the environment
	{"REDLOCK_TTL=1ms run x -- true", 78, "redlock: $REDLOCK_TTL 1ms: must be between 500ms"},
	{"REDLOCK_TTL=1ms run --ttl 2ms x -- true", 64, "redlock: --ttl 2ms: must be between 500ms"},
	{"REDLOCK_MEMORY_GUARD=false REDLOCK_NODES=redis://a?standby=b run x -- true", 78, "redlock: $REDLOCK_NODES: "},
	{"REDLOCK_NODES=redis://a,redis://a reset --yes", 78, "redlock: $REDLOCK_NODES: URLs 1 and 2 name the same server"},
	{"REDLOCK_NODES=rediss://a REDLOCK_TLS_CERT=/dev/null status --tls-key /no/key", 78, "redlock: $REDLOCK_TLS_CERT: open /no/key"},
	{`REDLOCK_OWNER='a\nb' run x -- true`, 78, `redlock: $REDLOCK_OWNER: "a\nb" has a control character`},
	{"REDLOCK_MEMORY_GUARD=off status", 78, `redlock: $REDLOCK_MEMORY_GUARD: "off" must be true or false` + "\n"},
	{"REDLOCK_GROUPS=a=redis://a status", 78, "$REDLOCK_NODES and $REDLOCK_GROUPS are both set"},
	{"REDLOCK_NODES= REDLOCK_GROUPS=redis://:hunter2@a status", 78, "redlock: $REDLOCK_GROUPS: a group has no name"},
	{"REDLOCK_USERNAME=u status", 78, "redlock: $REDLOCK_USERNAME is set without a password: set"},
	{`REDLOCK_PASSWORD='hunter2\n' status`, 78, "redlock: $REDLOCK_PASSWORD: has a line break: remove it"},
	{`REDLOCK_PASSWORD=hunter2 REDLOCK_USERNAME='u\n' status`, 78, "redlock: $REDLOCK_USERNAME: has a line break: remove it"},
	{"REDLOCK_PASSWORD=hunter2 REDLOCK_PASSWORD_FILE=x status", 78, "($REDLOCK_PASSWORD, $REDLOCK_PASSWORD_FILE): unset one"},
	{"REDLOCK_PASSWORD_FILE=/no/file status", 78, "redlock: $REDLOCK_PASSWORD_FILE: password file: open /no/file"},
	{"REDLOCK_PASSWORD_FILE=/dev/null status", 78, "redlock: $REDLOCK_PASSWORD_FILE: password file /dev/null is empty"},
	{"REDLOCK_PASSWORD=hunter2 REDLOCK_PASSWORD_COMMAND=x status", 78, "redlock: $REDLOCK_PASSWORD_COMMAND: a password or a password file is also set"},
	{"REDLOCK_PASSWORD=hunter2 status --password-command x", 64, "redlock: --password-command: a password or a password file is also set"},
	{"REDLOCK_CONFIG=/no/file status", 78, "configuration file /no/file: no such file"},

	// the configuration file
	{"file='colour: red' status", 78, `redlock.yaml: unknown setting "colour": use one of accept, dial_timeout`},
	{"file='ttl: 10' run x -- true", 78, `redlock.yaml: ttl: "10" must be a time`},
	{"file='ttl: []' run x -- true", 78, "redlock.yaml: ttl: must be one value, not a list"},
	{"file='<<: {ttl: 5ms}' run x -- true", 78, "redlock.yaml: ttl 5ms: must be between 500ms"},
	{`file='password: hunter2\n hunter2: x' status`, 78, "redlock.yaml, line 2: not valid YAML of settings"},
	{"file='a: &a [*a]' status", 78, "redlock.yaml: a: must be a list of plain values"},
	{"REDLOCK_NODES= file='nodes: [redis://a, null]' status", 78, "redlock.yaml: nodes: must be a list of plain values"},
	{"file='password: [a, b]' status", 78, "redlock.yaml: password: must be one value, not a list"},
	{"REDLOCK_NODES= file='nodes: [redis://a, redis://:hunter2@a:x]' status", 78, "redlock.yaml: nodes: server 2: not a URL"},
	{"REDLOCK_NODES= file='nodes: redis://a\ngroups: a=redis://a' status", 78, "redlock.yaml: nodes and groups are both set: remove one"},
	{"file='nodes: [redis://:hunter2@a' status", 78, "not valid YAML of settings, each once"},
	{`file='ttl: 5s\n---\nttl: 6s' status`, 78, "more than one YAML document: remove the line ---"},

	// errors of single commands
	{"status -q", 64, "-q needs a NAME: the exit code reports whether every NAME is held"},
	{"status -q --json a", 64, "-q excludes --json and --watch"},
	{"status --watch 1ms x", 64, "--watch=1ms: must be at least 10ms"},
	{"status --permits 2", 64, "--permits needs a NAME: it shows the permits"},
	{"status ''", 64, "the name of a lock must not be empty"},
	{"release a b --force", 64, "release takes one argument, the name of the lock, not 2"},
	{"status redlock:epoch", 64, "a key of redlock's own"},
	{"status " + strings.Repeat("long", 400), 64, "too long"},
	{"release a", 64, "pass either --value or --force"},
	{"release a --value " + protocol.ReadersValue, 64, "stands for all readers of the lock: pass the value of one reader"},
	{"release a --value ''", 64, "--value must not be empty"},
	{"release a --value abc…", 64, "--value ends in …, so it is cut"},
	{"release a --value v --yes", 64, "--yes needs --force"},
	{"doctor now", 64, `doctor takes no arguments, only flags: ["now"]`},
	{"doctor --accept quarantine", 64, `redlock: --accept: "quarantine" cannot be accepted: use one of transport, nodes`},
	{"run a\xffb -- true", 64, `redlock: the name "a\xffb" must be text in UTF-8`},
	{"run --prefix \xff a -- true", 64, `redlock: --prefix: "\xff" must be text in UTF-8`},
	{"file='prefix: \xff' run a -- true", 78, `configuration file`},
	{"run --owner \xff a -- true", 64, `redlock: --owner`},
	{"serve --office \xff", 64, `redlock: --office: "\xff" must be text in UTF-8`},
	{"nodes -n 100", 64, "-n 100: must be between 1 and 99"},
	{"nodes --port 65533", 64, "--port 65533: must leave room for 5 ports between 1 and 65535"},
	{"nodes --kind paper", 64, `--kind: "paper" must be embedded or process`},
	{"hold --memory-guard false x", 64, `not 2; write --memory-guard=false`},
	{"serve --node-timeout 20s", 64, "redlock: --node-timeout 20s: must be below --ttl, 10s"},
	{"serve --max-ttl 5s", 64, "redlock: --max-ttl 5s: must be at least --ttl, 10s"},
	{"serve --office redlock:epoch", 64, "is a key of redlock's own"},
	{"serve --listen 127.0.0.1:0 --office a --candidate \xff", 64, "redlock: --candidate: must be printable text"},
	{"serve --ttl 500ms", 64, "redlock: --ttl 500ms: must be between 1s and 1h"},
	{"run --ttl 24h a -- true", 64, "redlock: --ttl 24h0m0s: is above an hour: after a restart of most servers no client would get any lock for 24h0m0s: if that is acceptable, set --max-ttl for all clients"},
	{"REDLOCK_TTL=24h run a -- true", 78, "is above an hour: after a restart"},
	{"serve --stop-within -1s", 64, "redlock: --stop-within -1s: must not be negative"},
	{"serve --allow-host *.example", 64, "redlock: --allow-host"},
	{"serve --allow-host a:80", 64, "must be a name without a port, such as host.docker.internal"},
	{"serve --max-sessions 0", 64, "--max-sessions, --max-leases and --max-connections must be at least 1"},
	{"serve --cert x", 64, "--cert and --key belong together: pass both"},
	{"serve --client-ca x", 64, "--client-ca needs --cert and --key"},
	{"serve --cert /no/file --key /no/key", 64, "redlock: --cert: open /no/file"},
	{"serve --token-file /dev/null", 64, "redlock: --token-file: /dev/null: line 1: a token must have at least 16 characters: make one with head -c 32"},
	{"serve --tokens /dev/null", 64, "redlock: --tokens: /dev/null: no entry, so all clients would be refused: add one"},
	{"serve --audit /dev/null/x", 64, "redlock: --audit: open /dev/null/x: not a directory"},
	{"serve --tokens x --token-file x", 64, "--token-file and --tokens exclude each other"},
	{"serve --listen /run/redlock.sock", 64, `redlock: --listen: "/run/redlock.sock" must be unix:PATH or HOST:PORT`},
	{"serve --listen unix:", 64, `redlock: --listen: "unix:" must be unix:PATH, with a path of`},
	{"serve --listen unix:/no/folder/s", 1, "redlock: --listen: /no/folder/s: its folder must exist, and this user must be able to write there: open /no/folder/s.lock: no such file or directory"},
	{"serve --listen unix:/" + strings.Repeat("long", 40), 64, "must be unix:PATH, with a path of at most 103 bytes"},
	{"serve --listen unix:/no/folder/s --socket-mode rw", 64, `redlock: --socket-mode: "rw" must be octal, such as 0660`},
}

// ofPrograms matches terms that only programmers know: Go's packages and names, and the options of
// the library.
var ofPrograms = regexp.MustCompile(`strconv|time: (missing|invalid|unknown)|parsing|syntax|OpenWith|invalid argument|pool: |yaml: (line|unmarshal)|redlock: .*redlock: |\b[A-Z][a-z]\w+\(|TTL\(|%!`)

// TestInvalidInputIsReportedInTermsOfItsSource: the report is one line that begins with the name of
// the user's setting. The exit code is 64 for the command line and 78 for the configuration.
func TestInvalidInputIsReportedInTermsOfItsSource(t *testing.T) {
	word := regexp.MustCompile(`[^\s']*'[^']*'|\S+`)
	setting := regexp.MustCompile(`^(REDLOCK_\w+|file)=((?s).*)$`)
	for _, test := range wrongInputs {
		t.Run(test.input, func(t *testing.T) {
			env := map[string]string{"REDLOCK_NODES": "redis://nodes"}
			file := ""
			var args []string
			for _, w := range word.FindAllString(test.input, -1) {
				w = strings.ReplaceAll(strings.ReplaceAll(w, "'", ""), `\n`, "\n")
				switch s := setting.FindStringSubmatch(w); {
				case s == nil || len(args) > 0:
					args = append(args, w)
				case s[1] == "file":
					file = s[2]
				default:
					env[s[1]] = s[2]
				}
			}
			isolate(t, file, env)
			code, out, errs := redlockCommand(t, args...)
			assert.Equal(t, test.code, code, errs)
			assert.Contains(t, errs, test.words)
			assert.Empty(t, out)
			assert.Regexp(t, `^redlock: [^\n]+\n$`, errs, "one line")
			assert.NotContains(t, errs, "hunter2")
			assert.NotRegexp(t, ofPrograms, errs)
		})
	}
}

// isolate sets the environment and a configuration file, without the settings of this machine.
func isolate(t *testing.T, file string, env map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redlock.yaml")
	tr.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "REDLOCK_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("REDLOCK_CONFIG", path)
	for name, value := range env {
		t.Setenv(name, value)
	}
}
