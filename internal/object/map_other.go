//go:build !unix

package object

import "os"

const openFlags = 0

// opened is a file that is read by calls: one that is mapped could not be
// deleted by a gc.
type opened struct {
	*os.File
	size int64
}

func openFile(name string) (file, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return opened{f, info.Size()}, nil
}

func (o opened) Size() int64 { return o.size }
