//go:build !unix && !windows

package lock

import (
	"errors"
	"os"
)

func tryLock(*os.File) (bool, error) {
	return false, errors.New("file locks are not available on this system")
}

func tryShared(f *os.File) (bool, error) { return tryLock(f) }
