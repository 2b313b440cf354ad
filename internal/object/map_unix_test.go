//go:build unix

package object

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

// However many packs there are, few files are open, and all can be read: by
// calls, and mapped.
func TestFewFilesAreOpen(t *testing.T) {
	content := []byte("the content of a file that is not very long")
	var files []file
	for i := range 4 * mostOpen {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, content[:len(content)-i%10], 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if n := openNow.Load(); n > mostOpen {
		t.Errorf("%d files are open, not %d", n, mostOpen)
	}
	for i, f := range files {
		if err := iotest.TestReader(io.NewSectionReader(f, 0, f.Size()), content[:len(content)-i%10]); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
		b := make([]byte, 10)
		if n, err := f.ReadAt(b, f.Size()-3); n != 3 || err != io.EOF {
			t.Errorf("file %d: the last bytes: %d, %v", i, n, err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
		if _, err := f.ReadAt(b, 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("file %d is read after it was closed: %v", i, err)
		}
	}
	if n := openNow.Load(); n != 0 {
		t.Errorf("%d files are still open", n)
	}
}

// A file that is cut while it is open ends early, and that is an error.
func TestCutFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 100_000), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	for range seldom + 2 {
		if _, err := f.ReadAt(make([]byte, 100), 50_000); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("beyond the end: %v", err)
		}
	}
}
