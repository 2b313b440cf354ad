//go:build unix

package snapshot

import (
	"errors"
	"io/fs"
	"syscall"
)

// missing says whether a path is not there; beneath a file is not there either.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
