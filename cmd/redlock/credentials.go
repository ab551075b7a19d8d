package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// credentials are for the URLs that have none of their own.
type credentials struct {
	username, password string
	file               string           // that has the password
	reread             *reread[string]  // of the file, for each connection
	command            *passwordCommand // that prints it
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
		reread, err := readPassword(login.file, io.Discard)
		if err != nil {
			return credentials{}, configErrorf("%s: %v", sources["password_file"], err)
		}
		login.reread = reread
	}
	return login, nil
}

// by has the command print the password, if there is one.
func (c credentials) by(flags *pflag.FlagSet, command string) (credentials, error) {
	if command != "" {
		if c.password != "" || c.file != "" {
			return c, wrong(flags, "password-command", "there is a password, or its file, beside this command that prints it; leave one out")
		}
		c.command = &passwordCommand{line: command}
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
		password = c.reread.current()
	case c.command != nil:
		password, err = c.command.output(ctx)
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

var errEmpty = errors.New("it is empty")

// readPassword reads the password that a file has. What is wrong with it later is told on stderr.
func readPassword(file string, stderr io.Writer) (*reread[string], error) {
	return (&reread[string]{
		files: []string{file}, stderr: stderr,
		explain: func(err error) error {
			if errors.Is(err, errEmpty) {
				return fmt.Errorf("password file %s: %w", file, err)
			}
			return fmt.Errorf("password file: %w", err)
		},
		parse: func(texts ...[]byte) (string, error) {
			password := strings.TrimRight(string(texts[0]), "\r\n")
			if password == "" {
				return "", errEmpty
			}
			return password, nil
		},
	}).begin()
}

// A passwordCommand prints a password. What it has printed is good for a while, because connections to
// many servers are made at the same moment.
type passwordCommand struct {
	line string // for the shell

	mu   sync.Mutex
	last *commandRun
}

const (
	passwordReused  = time.Second
	passwordTimeout = 30 * time.Second
)

// A commandRun is one run of a passwordCommand. The rest is set when done is closed.
type commandRun struct {
	began    time.Time
	done     chan struct{}
	password string
	err      error
}

// output waits for the password until ctx ends. A command that takes longer than a connection may goes
// on, and the next connection has what it printed.
func (c *passwordCommand) output(ctx context.Context) (string, error) {
	c.mu.Lock()
	if c.last == nil || c.last.isOver() && time.Since(c.last.began) > passwordReused {
		c.last = &commandRun{began: time.Now(), done: make(chan struct{})}
		go c.last.run(c.line)
	}
	r := c.last
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.password, r.err
	case <-ctx.Done():
		return "", fmt.Errorf("the password command has printed nothing yet: %w", ctx.Err())
	}
}

func (r *commandRun) isOver() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *commandRun) run(line string) {
	defer close(r.done)
	ctx, cancel := context.WithTimeout(context.Background(), passwordTimeout)
	defer cancel()
	shell := []string{"/bin/sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	command := exec.CommandContext(ctx, shell[0], shell[1], line)
	command.Stderr = os.Stderr
	text, err := command.Output()
	r.password = strings.TrimRight(string(text), "\r\n")
	if errors.Is(err, syscall.ECHILD) { // the warden of "redlock run" reaps all children
		err = nil
	}
	switch {
	case err != nil:
		r.err = fmt.Errorf("the password command failed: %w", err)
	case r.password == "":
		r.err = fmt.Errorf("the password command printed nothing")
	}
}
