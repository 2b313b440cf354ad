//go:build unix

package snapshot

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile returns a file's content until unmap is called. An index is never
// written in place, only replaced, so the content stays as it is.
func mapFile(path string) (data []byte, info fs.FileInfo, unmap func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, nil, nil, errors.New("not a regular file with a content")
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	return data, info, func() { unix.Munmap(data) }, err
}
