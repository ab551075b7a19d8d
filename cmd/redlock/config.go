package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
)

// A setting is a flag with more to it than its type.
type setting struct {
	flag   string // without one it is a secret, because others can see a command line
	key    string // its name in the configuration file and, behind REDLOCK_, in the environment
	isText bool   // names of locks are made of it

	least, most int64  // if it is set; times are in nanoseconds
	limits      string // the same in words
}

const (
	ms   = int64(time.Millisecond)
	year = int64(365 * 24 * time.Hour)
)

// settings are in the order in which help lists those that have a key.
var settings = []setting{
	{flag: "node", key: "nodes"},
	{flag: "group", key: "groups"},
	{flag: "prefix", key: "prefix", isText: true},
	{flag: "ttl", key: "ttl", least: 500 * ms, most: year, limits: "must be between 500ms and a year"},
	{flag: "owner", key: "owner"},
	{flag: "max-ttl", key: "max_ttl", least: 10 * ms, most: year, limits: "must be between 10ms and a year"},
	{flag: "memory-guard", key: "memory_guard"},
	{flag: "node-timeout", key: "node_timeout", least: 1, most: year, limits: "must be above zero, and at most a year"},
	{flag: "dial-timeout", key: "dial_timeout", least: 1, most: year, limits: "must be above zero, and at most a year"},
	{flag: "tls-ca", key: "tls_ca"},
	{flag: "tls-cert", key: "tls_cert"},
	{flag: "tls-key", key: "tls_key"},
	{flag: "listen", key: "listen"},
	{flag: "accept", key: "accept"},
	{key: "username"},
	{key: "password"},
	{key: "password_file"},
	{flag: "password-command", key: "password_command"},

	{flag: "and", isText: true},
	{flag: "office", isText: true},
	{flag: "retry-interval", most: year, limits: "must be between 0 and a year"},
	{flag: "min-hold", most: year, limits: "must be between 0 and a year"},
	{flag: "once-per", least: int64(time.Second), most: year, limits: "must be between 1s and 24h, or day"},
	{flag: "at-least-apart", least: int64(time.Second), most: year, limits: "must be between 1s and a year"},
	{flag: "retries", most: math.MaxInt, limits: "must not be negative"},
	{flag: "permits", least: 1, most: inspect.MostPermits, limits: "must be between 1 and 1000"},
	{flag: "weight", least: 1, most: 128, limits: "must be between 1 and 128"},
	{flag: "conflict-exit-code", most: 255, limits: "must be between 0 and 255"},
	{flag: "limit", least: 1, most: math.MaxInt, limits: "must be at least 1"},
}

// variable is the name of a key in the environment.
func variable(key string) string { return "REDLOCK_" + strings.ToUpper(key) }

// A configuration is what the environment and the configuration file say.
type configuration struct {
	path string              // of the file; empty without one
	file map[string][]string // nil: the key has no value, which is as if it were not there
}

// configure gives the flags that were not set on the command line the values of
// the environment, or else of the configuration file.
func configure(flags *pflag.FlagSet, files []string) (credentials, error) {
	c, err := readConfig(configFile(flags, files))
	if err != nil {
		return credentials{}, err
	}
	overruled, err := c.overruled(flags)
	if err != nil {
		return credentials{}, err
	}
	var known []string // of all commands, because the file is for all of them
	for _, s := range settings {
		if s.key == "" {
			continue
		}
		known = append(known, s.key)
		f := flags.Lookup(s.flag)
		value, from, in := c.find(s.key)
		if f == nil || f.Changed || in == nowhere || s.flag == overruled {
			continue
		}
		f.Annotations = map[string][]string{origin: {from}}
		if err := assign(f, value); err != nil {
			return credentials{}, configErrorf("%s: %v", from, err)
		}
	}
	if err := withinLimits(flags); err != nil {
		return credentials{}, err
	}
	slices.Sort(known)
	for key := range c.file {
		if !slices.Contains(known, key) {
			return credentials{}, configErrorf("%s: unknown setting %q: use one of %s", c.path, key, strings.Join(known, ", "))
		}
	}
	return c.credentials()
}

// A source is where a flag's value is from. Of two, the lower one wins.
type source int

const (
	onCommandLine source = iota
	inEnvironment
	inFile
	nowhere
)

func (c *configuration) sourceOf(flags *pflag.FlagSet, name string) source {
	f := flags.Lookup(name)
	switch {
	case f == nil:
		return nowhere
	case f.Changed:
		return onCommandLine
	}
	i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == name })
	_, _, in := c.find(settings[i].key)
	return in
}

// overruled returns the flag whose value in the environment and the file does not count, if there is
// one. Servers are named by nodes or by groups, of which those of the better source count.
func (c *configuration) overruled(flags *pflag.FlagSet) (name string, err error) {
	nodes, groups := c.sourceOf(flags, "node"), c.sourceOf(flags, "group")
	switch {
	case nodes < groups:
		return "group", nil
	case nodes > groups:
		return "node", nil
	case nodes == onCommandLine:
		return "", usageErrorf("--node and --group exclude each other: pass all servers in their groups, or omit --group")
	case nodes == inEnvironment:
		return "", configErrorf("$%s and $%s are both set: unset one", variable("nodes"), variable("groups"))
	case nodes == inFile:
		return "", configErrorf("%s: nodes and groups are both set: remove one", c.path)
	}
	return "", nil
}

// find finds a key in the environment or the file, and returns where it was, as errors say it.
func (c *configuration) find(key string) (value []string, from string, in source) {
	if v := os.Getenv(variable(key)); v != "" {
		return []string{v}, "$" + variable(key), inEnvironment
	}
	if value := c.file[key]; value != nil {
		return value, c.path + ": " + key, inFile
	}
	return nil, "", nowhere
}

// assign sets a flag. Lists are taken apart later, wherever they are from.
func assign(f *pflag.Flag, value []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(value)
	}
	if len(value) != 1 {
		return errors.New("must be one value, not a list")
	}
	if f.Value.Set(value[0]) != nil {
		return errors.New(notOfType(f, value[0]))
	}
	return nil
}

// wanted are the words for values that a flag of a type does not take.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a time with its unit, such as 500ms, 10s or 1h30m", "int": "a whole number",
	"tick": "day, or a time with its unit, such as 5m or 1h", "time": "a time as in RFC 3339, such as 2030-01-07T02:30:00+01:00, or @ and seconds since 1970",
}

// notOfType says what a flag takes instead of a value. It takes the place of the words of the
// packages that read values, which are for programmers.
func notOfType(f *pflag.Flag, value string) string {
	return fmt.Sprintf("%q must be %s", value, wanted[f.Value.Type()])
}

// origin is the annotation of a flag whose value is not from the command line. It says where it is
// from.
const origin = "origin"

// wrong returns the error of a flag's value. It begins with what the user has set, which is not
// the flag if the value is from the environment or the file, and has the exit code of that.
func wrong(flags *pflag.FlagSet, name, format string, args ...any) error {
	f := flags.Lookup(name)
	of, code := "--"+name, exitUsage
	if from := f.Annotations[origin]; from != nil && !f.Changed {
		of, code = from[0], exitConfig
	}
	if kind := f.Value.Type(); kind == "int" || kind == "duration" || kind == "tick" || kind == "time" {
		of += " " + f.Value.String()
	}
	return &exitError{code: code, err: fmt.Errorf("%s: %w", of, fmt.Errorf(format, args...))}
}

// withinLimits returns an error if the value of a flag is outside of its limits, or is no text.
func withinLimits(flags *pflag.FlagSet) error {
	for _, s := range settings {
		f := flags.Lookup(s.flag)
		if f == nil || !f.Changed && f.Annotations[origin] == nil {
			continue
		}
		text := f.Value.String()
		if s.isText && !utf8.ValidString(text) {
			return wrong(flags, s.flag, "%q must be text in UTF-8", text)
		}
		if why := plain.Untidy(text); why != "" && (s.isText || s.flag == "owner") {
			return wrong(flags, s.flag, "%q %s", text, why)
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			var d time.Duration
			d, err = time.ParseDuration(text)
			n = int64(d)
		}
		if s.limits != "" && err == nil && (n < s.least || n > s.most) { // else it is a word, such as day
			return wrong(flags, s.flag, "%s", s.limits)
		}
	}
	return nil
}

// configFile returns the file to read: the one asked for, or the first of files that exists, or
// none.
func configFile(flags *pflag.FlagSet, files []string) string {
	if path := cmp.Or(flags.Lookup("config").Value.String(), os.Getenv("REDLOCK_CONFIG")); path != "" {
		return path
	}
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return f
		}
	}
	return ""
}

// usualFiles returns where configuration is looked for.
func usualFiles() (files []string) {
	if home, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(home, "redlock.yaml"))
	}
	return append(files, "/etc/redlock.yaml")
}

var lineOf = regexp.MustCompile(`\bline \d+`)

// where returns the place that an error of the decoder names, without the text there.
func where(err error) string {
	if line := lineOf.FindString(err.Error()); line != "" {
		return ", " + line
	}
	return ""
}

// readConfig reads a file of settings, each with one value or a list of them.
func readConfig(path string) (*configuration, error) {
	c := &configuration{path: path, file: map[string][]string{}}
	if path == "" {
		return c, nil
	}
	text, err := firstRead(func() ([]byte, error) { return os.ReadFile(path) })
	if err != nil {
		if reason, is := errors.AsType[*fs.PathError](err); is {
			err = reason.Err
		}
		return nil, configErrorf("configuration file %s: %v", path, err)
	}
	var raw map[string]yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		// Not the decoder's own words: they quote what they do not understand, which may be a password.
		return nil, configErrorf("configuration file %s%s: not valid YAML of settings, each once, such as \"ttl: 10s\"", path, where(err))
	}
	if !errors.Is(documents.Decode(new(yaml.Node)), io.EOF) {
		return nil, configErrorf("configuration file %s: more than one YAML document: remove the line --- between them", path)
	}
	for key, n := range raw {
		values := []*yaml.Node{&n}
		switch {
		case n.Kind == yaml.SequenceNode:
			values = n.Content
		case n.Kind != yaml.ScalarNode:
			return nil, configErrorf("%s: %s: must be a value or a list of values", path, key)
		case isNull(&n): // not the text "null" or "~", which would be a prefix
			c.file[key] = nil
			continue
		}
		c.file[key] = []string{}
		for _, v := range values {
			if v.Kind != yaml.ScalarNode || isNull(v) {
				return nil, configErrorf("%s: %s: must be a list of plain values", path, key)
			}
			c.file[key] = append(c.file[key], v.Value)
		}
	}
	return c, nil
}

// isNull reports whether a scalar of a file is no value.
func isNull(n *yaml.Node) bool { return n.ShortTag() == "!!null" }

// credentials are for the URLs that have none of their own.
type credentials struct {
	username, password string
	userFrom           string                // the source of username
	file               string                // that has the password
	reread             *reread.Files[string] // of the file, for each connection
	command            *reread.Command       // that prints it
}

// credentials finds the settings, and sees that a password can be had.
func (c *configuration) credentials() (credentials, error) {
	found, sources := map[string]string{}, map[string]string{}
	for _, key := range []string{"username", "password", "password_file"} {
		switch value, from, in := c.find(key); {
		case in != nowhere && len(value) != 1:
			return credentials{}, configErrorf("%s: must be one value, not a list", from)
		case in != nowhere && strings.ContainsAny(value[0], "\r\n"):
			return credentials{}, configErrorf("%s: has a line break: remove it, as $(cat FILE) does", from)
		case in != nowhere:
			found[key], sources[key] = value[0], from
		}
	}
	login := credentials{username: found["username"], userFrom: sources["username"], password: found["password"], file: found["password_file"]}
	if login.password != "" && login.file != "" {
		return credentials{}, configErrorf("a password and a password file are both set (%s, %s): unset one", sources["password"], sources["password_file"])
	}
	if login.file != "" {
		secret, err := readPassword(login.file, io.Discard)
		if err != nil {
			return credentials{}, configErrorf("%s: %v", sources["password_file"], err)
		}
		login.reread = secret
	}
	return login, nil
}

// by has the command print the password, if there is one.
func (c *credentials) by(flags *pflag.FlagSet, command string) error {
	switch {
	case command != "" && c.areSet():
		return wrong(flags, "password-command", "a password or a password file is also set: unset it, or omit this command")
	case command != "":
		c.command = &reread.Command{Line: command}
	case c.username != "" && !c.areSet():
		return configErrorf("%s is set without a password: set $REDLOCK_PASSWORD, password_file or --password-command", c.userFrom)
	}
	return nil
}

// areSet reports whether there are any.
func (c credentials) areSet() bool { return c.password != "" || c.file != "" || c.command != nil }

// current returns the user and the password of this moment.
func (c credentials) current(ctx context.Context, _ string) (user, password string, err error) {
	switch {
	case c.reread != nil:
		password = c.reread.Current()
	case c.command != nil:
		password, err = c.command.Output(ctx)
	default:
		password = c.password
	}
	return c.username, password, err
}

// in returns URLs with the credentials of this moment where they have none. What is no URL stays as it is,
// because package pool reports it.
func (c credentials) in(ctx context.Context, urls []string) ([]string, error) {
	user, password, err := c.current(ctx, "")
	if err != nil || !c.areSet() {
		return urls, err
	}
	with := make([]string, len(urls))
	for i, raw := range urls {
		with[i] = raw
		if u, err := url.Parse(raw); err == nil && u.User == nil {
			u.User = url.UserPassword(user, password)
			with[i] = u.String()
		}
	}
	return with, nil
}

// readPassword reads the password that a file has. What is wrong with it later is told on stderr.
func readPassword(file string, stderr io.Writer) (*reread.Files[string], error) {
	empty := errors.New("is empty")
	explain := func(err error) error {
		if errors.Is(err, empty) {
			return fmt.Errorf("password file %s %w", file, err)
		}
		return fmt.Errorf("password file: %w", err)
	}
	parse := func(texts ...[]byte) (string, error) {
		password := strings.TrimRight(string(texts[0]), "\r\n")
		if password == "" {
			return "", empty
		}
		return password, nil
	}
	return firstRead(func() (*reread.Files[string], error) { return reread.Read([]string{file}, stderr, explain, parse) })
}

// reading counts the files that are read before anything is locked. That can take for ever, as with a pipe that
// nobody writes to, and no context ends it.
var reading atomic.Int32

// firstRead reads what is needed to begin.
func firstRead[T any](read func() (T, error)) (T, error) {
	reading.Add(1)
	defer reading.Add(-1)
	return read()
}
