package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
)

// A setting is a flag that has more properties than its type.
type setting struct {
	flag   string // empty for a secret, because others can see a command line
	key    string // its name in the configuration file and, with the prefix REDLOCK_, in the environment
	isText bool   // part of the names of locks

	least, most int64  // limits, if it is set; times are in nanoseconds
	limits      string // the same in words
}

const (
	ms   = int64(time.Millisecond)
	year = int64(365 * 24 * time.Hour)
)

// settings are all settings. The help lists the ones with a key in this order.
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
	{flag: "tls-server-name", key: "tls_server_name"},
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

// variable returns the name of a key in the environment.
func variable(key string) string { return "REDLOCK_" + strings.ToUpper(key) }

// A cli is the command line of a command, and its standard error.
type cli struct {
	flags  *pflag.FlagSet
	stderr io.Writer
}

// A configuration is the settings of the environment and of the configuration file.
type configuration struct {
	path string              // of the file; empty without one
	file map[string][]string // nil: the key has no value, and counts as absent
}

// configure sets each flag that is not on the command line to its value in the environment, or
// otherwise in the configuration file.
func configure(flags *pflag.FlagSet, files []string) (*configuration, error) {
	c, err := readConfig(configFile(flags, files))
	if err != nil {
		return nil, err
	}
	overruled, err := c.overruled(flags)
	if err != nil {
		return nil, err
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
			return nil, configErrorf("%s: %v", from, err)
		}
	}
	if err := withinLimits(flags); err != nil {
		return nil, err
	}
	slices.Sort(known)
	for key := range c.file {
		if !slices.Contains(known, key) {
			return nil, configErrorf("%s: unknown setting %q: use one of %s", c.path, key, strings.Join(known, ", "))
		}
	}
	return c, nil
}

// A source is the origin of a flag's value. The lower of two sources wins.
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

// overruled returns a flag whose value in the environment and the file is ignored, if there is one.
// Either nodes or groups name the servers, and the source with the higher priority applies.
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

// find finds a key in the environment or the file, and returns its place in the words of errors.
func (c *configuration) find(key string) (value []string, from string, in source) {
	if v := os.Getenv(variable(key)); v != "" {
		return []string{v}, "$" + variable(key), inEnvironment
	}
	if value := c.file[key]; value != nil {
		return value, c.path + ": " + key, inFile
	}
	return nil, "", nowhere
}

// assign sets a flag. Lists are split later, whatever their source.
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

// wanted describes, for each type of flag, the values that it takes.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a time with its unit, such as 500ms, 10s or 1h30m", "int": "a whole number",
	"tick": "day, or a time with its unit, such as 5m or 1h", "time": "a time as in RFC 3339, such as 2030-01-07T02:30:00+01:00, or @ and seconds since 1970",
}

// beyond has the form of the values of each type. A value of that form that a flag refuses is too
// large.
var beyond = map[string]*regexp.Regexp{
	"duration": aTime, "tick": aTime, "int": regexp.MustCompile(`^[-+]?\d+$`),
}

var aTime = regexp.MustCompile(`^[-+]?((\d+\.?\d*|\.\d+)([nuµμm]s|[smh]))+$`)

// notOfType describes the valid values of a flag after an invalid one. It replaces the errors of
// the packages that parse values, because their words are for programmers.
func notOfType(f *pflag.Flag, value string) string {
	if large := beyond[f.Value.Type()]; large != nil && large.MatchString(value) {
		limits := "must be below 292 years"
		if i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == f.Name && s.limits != "" }); i >= 0 {
			limits = settings[i].limits
		} else if f.Value.Type() == "int" {
			limits = fmt.Sprintf("must be at most %d", math.MaxInt)
		}
		return fmt.Sprintf("%q is too large: %s", value, limits)
	}
	return fmt.Sprintf("%q must be %s", value, wanted[f.Value.Type()])
}

// origin is the annotation of a flag whose value is not from the command line. It has the source of
// the value.
const origin = "origin"

// ofServers marks the flags of servers, which "redlock help config" describes for all commands.
const ofServers = "servers"

// wrong returns the error of a flag's value. It begins with the setting that the user wrote: the
// flag, the variable or the key in the file. Its exit code depends on that source.
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

// withinLimits returns an error if the value of a flag is outside its limits, or is not text.
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
		if s.limits != "" && err == nil && (n < s.least || n > s.most) { // otherwise the value is a word, such as day
			return wrong(flags, s.flag, "%s", s.limits)
		}
	}
	return nil
}

// configFile returns the file to read: the one that the user specified, or the first of files that
// exists, or none.
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

// usualFiles returns the usual paths of configuration files.
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
	text, err := reread.First(func() ([]byte, error) { return os.ReadFile(path) })
	if err != nil {
		if reason, is := errors.AsType[*fs.PathError](err); is {
			err = reason.Err
		}
		return nil, configErrorf("configuration file %s: %v", path, err)
	}
	var raw map[string]yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		// The decoder's own error is not used, because it quotes the invalid text, which may be a
		// password.
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
		case isNull(&n): // the text "null" or "~" would be a prefix
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

// isNull reports whether a scalar of a file is null.
func isNull(n *yaml.Node) bool { return n.ShortTag() == "!!null" }
