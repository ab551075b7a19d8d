package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		if err := assign(f, value); err != nil {
			return credentials{}, configErrorf("%s: %v", from, err)
		}
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

// assign sets a flag. Lists are taken apart later, wherever they are from. For other types the
// error is pflag's.
func assign(f *pflag.Flag, value []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(value)
	}
	if len(value) != 1 {
		return errors.New("one value is wanted, not a list")
	}
	return f.Value.Set(value[0])
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
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		// Not the decoder's own words: they quote what they do not understand, which may be a password.
		return nil, configErrorf("configuration file %s: not a YAML list of settings, such as \"ttl: 10s\"", path)
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

var errNoNodes = fmt.Errorf("no servers are named; give --node redis://HOST:PORT for each, set $REDLOCK_NODES (or --group and $REDLOCK_GROUPS), or write a configuration file (%q); --embedded is for a trial", "redlock help config")
