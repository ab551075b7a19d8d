package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A configuration is what the environment and the configuration file say.
type configuration struct {
	path string // of the file; empty without one
	file map[string][]string
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
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		f := flags.Lookup(name)
		value, from, in := c.setting(settings[name])
		if f == nil || f.Changed || in == nowhere || slices.Contains(overruled, name) {
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
	known := slices.Sorted(maps.Values(settings)) // of all commands, because the file is for all of them
	known = append(known, secretSettings...)
	for key := range c.file {
		if !slices.Contains(known, key) {
			return credentials{}, configErrorf("%s: unknown setting %q; there is: %s", c.path, key, strings.Join(known, ", "))
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
	_, _, in := c.setting(settings[name])
	return in
}

// overruled returns the flags whose values in the environment and the file do not count.
// Servers are named by nodes or by groups, of which those of the better source count. What else is
// said of the groups counts if it is from there or from a better one, because it would not fit
// other groups.
func (c *configuration) overruled(flags *pflag.FlagSet) (names []string, err error) {
	nodes, groups := c.sourceOf(flags, "node"), c.sourceOf(flags, "group")
	switch {
	case nodes < groups:
		return append([]string{"group"}, mapFlags...), nil
	case nodes > groups:
		names = append(names, "node")
	case nodes == onCommandLine:
		return nil, usageErrorf("--node and --group exclude each other: the servers of --node are one set; name each in its group, or leave --group out")
	case nodes == inEnvironment:
		return nil, configErrorf("$%s and $%s are both set; leave one out", variable("nodes"), variable("groups"))
	case nodes == inFile:
		return nil, configErrorf("%s: there are both nodes and groups; leave one out", c.path)
	}
	for _, name := range mapFlags {
		if c.sourceOf(flags, name) > groups {
			names = append(names, name)
		}
	}
	return names, nil
}

// variable is the setting's name in the environment.
func variable(key string) string { return "REDLOCK_" + strings.ToUpper(key) }

// setting finds a setting in the environment or the file, and returns where it was, as errors say it.
func (c *configuration) setting(key string) (value []string, from string, in source) {
	if v := os.Getenv(variable(key)); v != "" {
		return []string{v}, "$" + variable(key), inEnvironment
	}
	if value, ok := c.file[key]; ok {
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
		return errors.New("one value is wanted, not a list")
	}
	if f.Value.Set(value[0]) != nil {
		return errors.New(notOfType(f, value[0]))
	}
	return nil
}

// wanted are the words for values that a flag of a type does not take.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a time with its unit, such as 500ms, 10s or 1h30m", "int": "a whole number",
	"tick": "day, or a time with its unit, such as 5m or 1h",
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
	if kind := f.Value.Type(); kind == "int" || kind == "duration" || kind == "tick" {
		of += " " + f.Value.String()
	}
	return &exitError{code: code, err: fmt.Errorf("%s: %w", of, fmt.Errorf(format, args...))}
}

// A limit is what the value of a flag must be between, if it is set. Times are in nanoseconds.
type limit struct {
	least, most int64
	words       string
}

const year = int64(365 * 24 * time.Hour)

var limits = map[string]limit{
	"ttl":                {int64(500 * time.Millisecond), year, "must be between 500ms, since ending a command in time takes time, and a year"},
	"max-ttl":            {int64(10 * time.Millisecond), year, "must be between 10ms and a year"},
	"node-timeout":       {1, year, "must be above zero, and at most a year"},
	"dial-timeout":       {1, year, "must be above zero, and at most a year"},
	"retry-interval":     {0, year, "must be between 0 and a year"},
	"min-hold":           {0, year, "must be between 0 and a year"},
	"once-per":           {int64(time.Second), year, "must be between 1s and a year, or day"},
	"map-version":        {1, 1 << 19, "must be between 1 and 524288"},
	"retries":            {0, math.MaxInt, "must not be negative"},
	"permits":            {1, mostPermits, "must be between 1 and 1000"},
	"weight":             {1, 128, "must be between 1 and 128"},
	"conflict-exit-code": {0, 255, "must be between 0 and 255"},
	"limit":              {1, math.MaxInt, "must be at least 1"},
}

// texts are flags of which names of locks are made.
var texts = []string{"and", "group-prefix", "office", "prefix"}

// withinLimits returns an error if the value of a flag is outside of its limits, or is no text.
func withinLimits(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(texts, f.Name) && !utf8.ValidString(f.Value.String()) {
			err = cmp.Or(err, wrong(flags, f.Name, "%q must be text in UTF-8", f.Value.String()))
		}
		l, ok := limits[f.Name]
		if isSet := f.Changed || f.Annotations[origin] != nil; !ok || !isSet {
			return
		}
		text := f.Value.String()
		n, notInt := strconv.ParseInt(text, 10, 64)
		if notInt != nil {
			d, notTime := time.ParseDuration(text)
			if notTime != nil {
				return // a word, such as day
			}
			n = int64(d)
		}
		if n < l.least || n > l.most {
			err = cmp.Or(err, wrong(flags, f.Name, "%s", l.words))
		}
	})
	return err
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
func usualFiles() []string {
	var files []string
	if home, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(home, "redlock.yaml"))
	}
	return append(files, "/etc/redlock.yaml")
}

// readConfig reads a file of settings, each with one value or a list of them.
func readConfig(path string) (*configuration, error) {
	c := &configuration{path: path, file: map[string][]string{}}
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		var reason *fs.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return nil, configErrorf("configuration file %s: %v", path, err)
	}
	var raw map[string]yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		// Not the decoder's own words: they quote what they do not understand, which may be a password.
		return nil, configErrorf("configuration file %s: not a YAML list of settings, each once, such as \"ttl: 10s\"", path)
	}
	if !errors.Is(documents.Decode(new(yaml.Node)), io.EOF) {
		return nil, configErrorf("configuration file %s: more than one YAML document; leave out the line --- between them", path)
	}
	for key, node := range raw {
		if c.file[key], err = scalars(&node); err != nil {
			return nil, configErrorf("%s: %s: %v", path, key, err)
		}
	}
	return c, nil
}

// scalars returns the value or the values of a setting as they are written.
func scalars(n *yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		var all []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, errors.New("a list of plain values is wanted")
			}
			all = append(all, item.Value)
		}
		return all, nil
	}
	return nil, errors.New("a value or a list of values is wanted")
}

const noNodes = `no servers are named; give --node redis://HOST:PORT for each, set $REDLOCK_NODES (or --group and $REDLOCK_GROUPS), or write a configuration file ("redlock help config")`
