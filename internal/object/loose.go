package object

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// loosePath is the file of a loose object in a directory of objects.
func loosePath(dir, id string) string { return filepath.Join(dir, id[:2], id[2:]) }

// writeLoose makes a loose object as git does, by a temporary file and a
// rename. A "git gc" beside us removes directories as they become empty:
// then it is tried again.
func writeLoose(file string, data []byte) (err error) {
	for range 10 {
		if err = writeNew(file, data); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func writeNew(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	temporary := filepath.Join(dir, "tmp_obj_"+rand.Text()[:8])
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temporary, file)
	}
	if err != nil {
		os.Remove(temporary)
	}
	return err
}
