package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// A socket is a listener at a path. A lock on a second file keeps other processes from the path
// while this one may still use it. Otherwise, if two processes start at once, one could remove the
// new socket of the other. A process that ends could also remove its successor's socket.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
	lock *os.File
	once sync.Once
}

// Close implements net.Listener. It removes the path if the path still leads to this socket. The
// file of the lock stays: another process may be about to lock it.
func (s *socket) Close() (err error) {
	s.once.Do(func() {
		// The check precedes the close, because after the close another file can get the inode.
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
			os.Remove(s.path)
		}
		err = errors.Join(s.UnixListener.Close(), s.lock.Close())
	})
	return err
}

// listenUnix listens at a path, even if a killed process has left its socket there.
func listenUnix(path string) (_ net.Listener, err error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: its folder must exist, and this user must be able to write there: %w", path, err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if isFree, err := tryLock(lock); err != nil {
		return nil, fmt.Errorf("%s: %w", lock.Name(), err)
	} else if !isFree {
		return nil, fmt.Errorf("%s: another process listens there: stop it, or use another path", path)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	s := &socket{UnixListener: l.(*net.UnixListener), path: path, lock: lock}
	s.SetUnlinkOnClose(false)
	if s.file, err = os.Lstat(path); err != nil {
		s.UnixListener.Close()
		return nil, err
	}
	return s, nil
}

// removeStale removes a socket without a listener, or returns the reason it cannot.
func removeStale(path string) error {
	if other, err := net.Dial("unix", path); err == nil {
		other.Close()
		return fmt.Errorf("%s: another process listens there: stop it, or use another path", path)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s exists, and is not a socket that can be replaced: %w", path, err)
	}
	if file, err := os.Lstat(path); err != nil || file.Mode().Type() != fs.ModeSocket { // other files refuse connections, too
		return fmt.Errorf("%s exists, and is not a socket: remove it, or use another path", path)
	}
	return os.Remove(path)
}
