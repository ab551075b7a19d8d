package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// configure gives the flags that were not set on the command line the values of
// the environment, or else of the configuration file.
func configure(flags *pflag.FlagSet, files []string) (credentials, error) {
	path, err := configFile(flags, files)
	if err != nil {
		return credentials{}, err
	}
	file, err := readConfig(path)
	if err != nil {
		return credentials{}, err
	}
	overruled, err := overruledFlags(flags, file, path)
	if err != nil {
		return credentials{}, err
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[shared] == nil || slices.Contains(overruled, f.Name) {
			return
		}
		key := f.Annotations[shared][0]
		value, from, ok := setting(file, path, key)
		if err != nil || f.Changed || !ok {
			return
		}
		if e := assign(f, value); e != nil {
			err = configErrorf("%s: %v", from, e)
		}
	})
	if err != nil {
		return credentials{}, err
	}
	for key := range file {
		if known := append(secretSettings(), flagSettings...); !slices.Contains(known, key) {
			slices.Sort(known)
			return credentials{}, configErrorf("%s: unknown setting %q; there is: %s", path, key, strings.Join(known, ", "))
		}
	}
	return readCredentials(file, path)
}

// A source is where a flag's value is from. Of two, the lower one wins.
type source int

const (
	onCommandLine source = iota
	inEnvironment
	inFile
	nowhere
)

func sourceOf(flags *pflag.FlagSet, file map[string][]string, name string) source {
	f := flags.Lookup(name)
	if f == nil {
		return nowhere
	}
	key := f.Annotations[shared][0]
	_, filed := file[key]
	switch {
	case f.Changed:
		return onCommandLine
	case os.Getenv(variable(key)) != "":
		return inEnvironment
	case filed:
		return inFile
	}
	return nowhere
}

// overruledFlags returns the flags whose values in the environment and the file do not count.
// Servers are named by nodes or by groups, of which those of the better source count. What else is
// said of the groups counts if it is from there or from a better one, because it would not fit
// other groups.
func overruledFlags(flags *pflag.FlagSet, file map[string][]string, path string) (names []string, err error) {
	nodes, groups := sourceOf(flags, file, "node"), sourceOf(flags, file, "group")
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
		return nil, configErrorf("%s: there are both nodes and groups; leave one out", path)
	}
	for _, name := range mapFlags {
		if sourceOf(flags, file, name) > groups {
			names = append(names, name)
		}
	}
	return names, nil
}

// variable is the setting's name in the environment.
func variable(key string) string { return "REDLOCK_" + strings.ToUpper(key) }

// setting finds a setting in the environment or the file, and returns where it was, for errors.
func setting(file map[string][]string, path, key string) (value []string, from string, ok bool) {
	env := variable(key)
	if v, ok := os.LookupEnv(env); ok && v != "" {
		return []string{v}, "$" + env, true
	}
	value, ok = file[key]
	return value, path + ": " + key, ok
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
func configFile(flags *pflag.FlagSet, files []string) (string, error) {
	path, err := flags.GetString("config")
	if err != nil {
		return "", err
	}
	if path == "" {
		path = os.Getenv("REDLOCK_CONFIG")
	}
	if path != "" {
		return path, nil
	}
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return f, nil
		}
	}
	return "", nil
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
func readConfig(path string) (map[string][]string, error) {
	if path == "" {
		return nil, nil
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
	settings := map[string][]string{}
	for key, node := range raw {
		value, err := scalars(&node)
		if err != nil {
			return nil, configErrorf("%s: %s: %v", path, key, err)
		}
		settings[key] = value
	}
	return settings, nil
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

// flagSettings are those with a flag. The file is for all commands, and not each has all flags.
var flagSettings = []string{
	"nodes", "groups", "map_version", "joining", "leaving", "group_prefixes", "prefix", "ttl", "owner", "max_ttl", "memory_guard", "node_timeout", "dial_timeout", "tls_ca", "tls_cert", "tls_key", "password_command",
}

var errNoNodes = fmt.Errorf("no servers are named; give --node redis://HOST:PORT for each, set $REDLOCK_NODES (or --group and $REDLOCK_GROUPS), or write a configuration file (%q); --embedded is for a trial", "redlock help config")
