//go:build !unix

package snapshot

import (
	"errors"
	"io/fs"
)

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
