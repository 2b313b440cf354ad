//go:build unix

package git

import (
	"errors"
	"syscall"
)

func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
