package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGitAgreesWithWhatIsWrittenAbout(t *testing.T) {
	for _, s := range situations {
		for _, hashLen := range []int{20, 32} {
			t.Run(fmt.Sprintf("%s/ids of %d bytes", s.title, hashLen), func(t *testing.T) {
				t.Parallel()
				r := newRepo(t, hashLen)
				s.make(r)
				want, status, tree := r.entries(), "", ""
				if s.tracked {
					status = r.git("status", "--porcelain=v2", "--untracked-files=all")
					tree, _ = r.run("", "write-tree")
				}
				x := r.read()
				if err := x.WriteFile(r.indexPath(), hashLen); err != nil {
					t.Fatal(err)
				}

				version := uint32(2)
				for _, e := range want {
					if e.SkipWorktree || e.IntentToAdd {
						version = 3
					}
				}
				if got := binary.BigEndian.Uint32(r.indexBytes()[4:]); got != version {
					t.Errorf("version %d was written, want %d", got, version)
				}
				if i := firstDifference(r.entries(), want); i >= 0 {
					t.Fatalf("git reads another entry %d", i)
				}
				if y := r.read(); !reflect.DeepEqual(x.Tree, y.Tree) {
					t.Errorf("the cache tree differs")
				}
				if !s.tracked {
					return
				}
				if got := r.git("status", "--porcelain=v2", "--untracked-files=all"); got != status {
					t.Errorf("git status says\n%s, want\n%s", got, status)
				}
				if got, _ := r.run("", "write-tree"); got != tree {
					t.Errorf("git write-tree says %q, want %q", got, tree)
				}
				r.git("fsck", "--strict")
				compareWithGit(r)
			})
		}
	}
}

func TestEncodeGivesTheBytesThatGitWrote(t *testing.T) {
	// Where git writes version 2 or 3 and no extension but the cache tree.
	for _, hashLen := range []int{20, 32} {
		for _, flags := range []bool{false, true} {
			t.Run(fmt.Sprintf("ids of %d bytes, extended flags %v", hashLen, flags), func(t *testing.T) {
				r := newRepo(t, hashLen)
				makeFiles(r)
				r.commit("one")
				r.write("other/e.txt", "changed")
				r.write("new.txt", "new")
				r.git("add", "other/e.txt")
				if flags {
					r.git("add", "-N", "new.txt")
					r.git("update-index", "--skip-worktree", "a.txt")
				}
				if got, want := encode(t, r.read(), hashLen), r.indexBytes(); !bytes.Equal(got, want) {
					t.Errorf("got\n%q, want\n%q", got, want)
				}
			})
		}
	}
}

func TestEncodeSortsWithoutTouchingTheIndex(t *testing.T) {
	sorted := []Entry{fileEntry("a"), fileEntry("a-b"), fileEntry("a/b"), fileEntry("b"), fileEntry("b"), fileEntry("\xff")}
	sorted[3].Stage, sorted[4].Stage = 1, 3
	want := encode(t, &Index{Entries: sorted}, 20)

	x := &Index{Entries: slices.Clone(sorted)}
	slices.Reverse(x.Entries)
	reversed := slices.Clone(x.Entries)
	if got := encode(t, x, 20); !bytes.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if !slices.Equal(x.Entries, reversed) {
		t.Error("the entries of the index were sorted")
	}
}

func TestEncodeRefuses(t *testing.T) {
	changed := func(change func(e *Entry)) *Index {
		e := fileEntry("a")
		change(&e)
		return &Index{Entries: []Entry{e}}
	}
	stages := func(stages ...int) *Index {
		x := &Index{}
		for _, stage := range stages {
			e := fileEntry("a")
			e.Stage = stage
			x.Entries = append(x.Entries, e)
		}
		return x
	}
	invalid := func(name string, children ...*CacheTree) *CacheTree {
		return &CacheTree{Name: name, EntryCount: -1, Children: children}
	}
	deep := invalid("d")
	for range maxDepth {
		deep = invalid("d", deep)
	}
	tests := []struct {
		title string
		x     *Index
		says  string
	}{
		{"an entry that is there twice", stages(0, 0), "more than once"},
		{"a stage that is there twice", stages(2, 2), "after stage 2"},
		{"a stage of a path that is merged", stages(1, 0), "more than once"},
		{"a stage that does not exist", stages(4), "stage 4"},
		{"a negative stage", stages(-1), "stage -1"},
		{"an id that is too short", changed(func(e *Entry) { e.ID = "aa" }), `object id "aa"`},
		{"an id in upper case", changed(func(e *Entry) { e.ID = strings.Repeat("A", 40) }), `object id "AAAA`},
		{"the null id", changed(func(e *Entry) { e.ID = strings.Repeat("0", 40) }), `object id "0000`},
		{"a directory", changed(func(e *Entry) { e.Mode = ModeDir }), "mode 040000"},
		{"a path with a NUL byte", changed(func(e *Entry) { e.Path = "a\x00b" }), "NUL"},
		{"a path in the repository", changed(func(e *Entry) { e.Path = "x/.git" }), `".git"`},
		{"a cache tree whose root has a name", &Index{Tree: invalid("a")}, `the name "a"`},
		{"a cache tree without id", &Index{Tree: &CacheTree{}}, `object id ""`},
		{"a cache tree with a negative count", &Index{Tree: &CacheTree{EntryCount: -2}}, "count -2"},
		{"a cache tree that is not sorted by length first",
			&Index{Tree: invalid("", invalid("aa"), invalid("b"))}, `"b" after "aa"`},
		{"a cache tree that is too deep", &Index{Tree: invalid("", deep)}, "nest more than"},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			data, err := test.x.Encode(20)
			if err == nil || data != nil {
				t.Fatalf("got %q and the error %v", data, err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error %q does not say %q", err, test.says)
			}
		})
	}
}

func TestWriteFileLeavesNothingButTheIndex(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "index")
	x := &Index{Entries: []Entry{fileEntry("a")}}
	for range 2 {
		if err := x.WriteFile(path, 20); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Index{Entries: []Entry{fileEntry("")}}).WriteFile(path, 20); err == nil {
		t.Error("an empty path was written")
	}
	if err := os.Mkdir(path+".d", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := x.WriteFile(path+".d", 20); err == nil || !strings.Contains(err.Error(), "write index '"+path+".d'") {
		t.Errorf("a directory was replaced: %v", err)
	}
	if err := x.WriteFile(filepath.Join(dir, "missing", "index"), 20); err == nil {
		t.Error("a file was made in a directory that is missing")
	}
	names, err := filepath.Glob(path + "*")
	if err != nil || !slices.Equal(names, []string{path, path + ".d"}) {
		t.Errorf("there are the files %q, %v", names, err)
	}
	if y, err := Read(path, 20); err != nil || len(y.Entries) != 1 {
		t.Errorf("got %+v, %v", y, err)
	}
}

func TestGitSeesAChangeOfARacyFileWithTheSmudgedCopy(t *testing.T) {
	second := time.Now().Add(-time.Hour).Truncate(time.Second)
	at := func(ms int) time.Time { return second.Add(time.Duration(ms) * time.Millisecond) }
	tests := []struct {
		title                 string
		file, index, changed  time.Time
		missedWithoutSmudging bool
	}{
		{"all within one timestamp", at(100), at(100), at(100), true},
		// A git that was built with USE_NSEC sees this one anyway.
		{"one after another within one second", at(100), at(500), at(800), false},
		{"the file from the future", at(5000), at(100), at(5000), true},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			r := newRepo(t, 20)
			r.git("config", "core.trustctime", "false") // nobody can set the ctime
			r.write("racy", "before")
			r.write("clean", "clean")
			file := filepath.Join(r.dir, "racy")
			chtimes(t, file, test.file)
			chtimes(t, filepath.Join(r.dir, "clean"), at(-2000))
			r.git("add", "-A")
			chtimes(t, r.indexPath(), test.index)
			x := r.read()

			r.write("racy", "after!")
			chtimes(t, file, test.changed)
			if got := r.git("diff-files", "--name-only"); got != "racy\n" {
				t.Fatalf("with the first index, git sees %q", got)
			}
			if err := x.WriteFile(r.indexPath(), 20); err != nil {
				t.Fatal(err)
			}
			if got := r.git("diff-files", "--name-only"); test.missedWithoutSmudging && got != "" {
				t.Fatalf("with a copy that is not smudged, git sees %q: the test shows nothing", got)
			}
			x.SmudgeRacy()
			if err := x.WriteFile(r.indexPath(), 20); err != nil {
				t.Fatal(err)
			}
			if got := r.git("diff-files", "--name-only"); got != "racy\n" {
				t.Errorf("with the smudged copy, git sees %q", got)
			}
			if e, _ := x.Lookup("clean", 0); e.Stat.Size != 5 {
				t.Errorf("the clean file has the size %d", e.Stat.Size)
			}
		})
	}
}

func chtimes(t *testing.T, path string, mtime time.Time) {
	t.Helper()
	if err := os.Chtimes(path, mtime, mtime); err != nil {
		t.Fatal(err)
	}
}

func TestSmudgeRacyGoesBySecondsAndSparesGitlinks(t *testing.T) {
	written := time.Unix(1_700_000_000, 500)
	tests := []struct {
		title   string
		modTime time.Time
		mode    uint32
		mtime   uint32
		racy    bool
	}{
		{"the second before", written, ModeFile, 1_699_999_999, false},
		{"the same second", written, ModeFile, 1_700_000_000, true},
		{"the second after", written, ModeSymlink, 1_700_000_001, true},
		{"a gitlink", written, ModeGitlink, 1_700_000_001, false},
		{"an index that is not from a file", time.Time{}, ModeFile, 1_700_000_001, false},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			x := &Index{ModTime: test.modTime, Entries: []Entry{{Mode: test.mode, Stat: Stat{MTimeSec: test.mtime, Size: 7}}}}
			if got := x.Racy(&x.Entries[0]); got != test.racy {
				t.Errorf("racy is %v", got)
			}
			x.SmudgeRacy()
			if got := x.Entries[0].Stat.Size == 0; got != test.racy {
				t.Errorf("smudged is %v", got)
			}
		})
	}
}
