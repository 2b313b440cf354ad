//go:build !unix

package snapshot

import (
	"io/fs"
	"os"
)

// mapFile returns a file's content until unmap is called.
func mapFile(path string) (data []byte, info fs.FileInfo, unmap func(), err error) {
	if info, err = os.Stat(path); err != nil {
		return nil, nil, nil, err
	}
	data, err = os.ReadFile(path)
	return data, info, func() {}, err
}
