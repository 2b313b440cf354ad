//go:build !unix

package git

import (
	"errors"
	"io/fs"
)

// Missing says whether a path is not there.
func Missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
