package index

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"
	"time"
)

func TestStatOfAndModeOfAreWhatGitRecords(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	modes := []os.FileMode{0o600, 0o644, 0o666, 0o654, 0o744, 0o700, 0o711, 0o777}
	for _, mode := range modes {
		name := mode.String()
		r.write(name, name)
		if err := os.Chmod(filepath.Join(r.dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	chtimes(t, filepath.Join(r.dir, "a.txt"), time.Unix(1_000_000_000, 123_456_700))
	r.git("add", "-A")
	entries := r.entries()
	if len(entries) < 8+len(modes) {
		t.Fatalf("there are %d entries", len(entries))
	}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(e.Path)))
		if err != nil {
			t.Fatal(err)
		}
		want := e.Stat
		if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
			want = Stat{MTimeSec: want.MTimeSec, MTimeNsec: want.MTimeNsec, Size: want.Size}
		}
		if got := StatOf(info); got != want {
			t.Errorf("%s: got %+v, want %+v", e.Path, got, want)
		}
		if got := ModeOf(info); got != e.Mode {
			t.Errorf("%s: got the mode %o, want %o", e.Path, got, e.Mode)
		}
	}
}

func TestModeOfTellsDirectoriesAndWhatGitDoesNotTrack(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // the path of a socket has to be short
	listener, err := net.Listen("unix", "socket")
	if err != nil {
		t.Skip(err)
	}
	defer listener.Close()
	for path, want := range map[string]uint32{dir: ModeDir, "socket": 0, os.DevNull: 0} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Skip(err)
		}
		if got := ModeOf(info); got != want {
			t.Errorf("%s: got the mode %o, want %o", path, got, want)
		}
	}
}

func TestStatOfAFileThatIsNotOnDiskHasItsSizeAndTime(t *testing.T) {
	files := fstest.MapFS{"f": {Data: []byte("four"), ModTime: time.Unix(7, 8)}}
	info, err := files.Stat("f")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := StatOf(info), (Stat{MTimeSec: 7, MTimeNsec: 8, Size: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSizesAreCutTo32BitsButNeverToZero(t *testing.T) {
	for size, want := range map[int64]uint32{
		0: 0, 1: 1, 1<<32 - 1: 1<<32 - 1, 1 << 32: 1 << 31, 1<<32 + 5: 5, 3 << 32: 1 << 31,
	} {
		if got := SizeOf(size); got != want {
			t.Errorf("size %d: got %d, want %d", size, got, want)
		}
	}
}
