//go:build unix

package backend

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// unprivileged has root run the command as another user, who gets the folder: PostgreSQL refuses to
// run as root.
func unprivileged(cmd *exec.Cmd, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return err
	}
	return os.Chmod(filepath.Dir(dir), 0o711) // so that the user gets to it
}
