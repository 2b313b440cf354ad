//go:build unix

package git

import (
	"errors"
	"io/fs"
	"syscall"
)

// Missing says whether a path is not there; beneath a file is not there either.
func Missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
