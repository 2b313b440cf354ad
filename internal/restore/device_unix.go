//go:build unix

package restore

import (
	"errors"
	"syscall"
)

func crossesDevices(err error) bool { return errors.Is(err, syscall.EXDEV) }
