package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
)

// credentials are for the URLs without credentials of their own.
type credentials struct {
	username, password string
	userFrom           string                // the source of username
	file               string                // with the password
	reread             *reread.Files[string] // content of the file, read for each connection
	command            *reread.Command       // prints the password
}

// credentialsOf finds the settings, and reads the password for the first time.
func credentialsOf(c *configuration) (credentials, error) {
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

// by gets the password from the command, if there is one.
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

// areSet reports whether there are any credentials.
func (c credentials) areSet() bool { return c.password != "" || c.file != "" || c.command != nil }

// current returns the current user and password.
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

// in returns the URLs, and adds the current credentials to each URL without any. Invalid URLs stay
// as they are, because package pool reports them.
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

// readPassword reads the password in a file. Later faults of the file are reported on stderr.
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
	return reread.First(func() (*reread.Files[string], error) { return reread.Read([]string{file}, stderr, explain, parse) })
}
