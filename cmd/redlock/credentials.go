package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/redquorum/redquorum/internal/reread"
	"github.com/spf13/pflag"
)

// credentials are for the URLs that have none of their own.
type credentials struct {
	username, password string
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
			return credentials{}, configErrorf("%s: one value is wanted, not a list", from)
		case in != nowhere && strings.ContainsAny(value[0], "\r\n"):
			return credentials{}, configErrorf("%s: there is a line break in it; take it off, as a file's reading by $(cat FILE) does", from)
		case in != nowhere:
			found[key], sources[key] = value[0], from
		}
	}
	login := credentials{username: found["username"], password: found["password"], file: found["password_file"]}
	if login.password != "" && login.file != "" {
		return credentials{}, configErrorf("there are both a password and its file (%s, %s); leave one out", sources["password"], sources["password_file"])
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
func (c credentials) by(flags *pflag.FlagSet, command string) (credentials, error) {
	if command != "" {
		if c.password != "" || c.file != "" {
			return c, wrong(flags, "password-command", "there is a password, or its file, beside this command that prints it; leave one out")
		}
		c.command = &reread.Command{Line: command}
	}
	if c.username != "" && c.password == "" && c.file == "" && c.command == nil {
		return c, configErrorf("there is a username without a password; set $REDLOCK_PASSWORD, password_file or --password-command")
	}
	return c, nil
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
	empty := errors.New("it is empty")
	return reread.Read([]string{file}, stderr, func(err error) error {
		if errors.Is(err, empty) {
			return fmt.Errorf("password file %s: %w", file, err)
		}
		return fmt.Errorf("password file: %w", err)
	}, func(texts ...[]byte) (string, error) {
		password := strings.TrimRight(string(texts[0]), "\r\n")
		if password == "" {
			return "", empty
		}
		return password, nil
	})
}
