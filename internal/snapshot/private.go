package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// private is where a snapshot's own index is made and kept, in git's format:
// a cache that knows of the files what the last save saw of them.
//
// Its flag assume-unchanged says that an entry's content was stored by the rules
// alone. The others were the user's entries, which git may have made by older
// rules, or kept CRs since an entry of the user's had some (gitattributes(5),
// text=auto): they are good as long as the user's index is as it was then.
type private struct {
	repo  *git.Repo
	dir   string   // where the index is made
	index string   // its path while it is made
	kept  string   // its path from one save to the next
	env   []string // for git, where objects go to a scratch directory
	print string   // see fingerprint
	begun time.Time
	unmap []func() // what is to be called at the end, the last one first
}

// cacheKey lies beside the private index and says what it is good for.
type cacheKey struct {
	Key         string `json:"key"`         // the checkpoint that the index equals
	Fingerprint string `json:"fingerprint"` // the configuration that decides how files are stored
	Checksum    string `json:"checksum"`    // the index file's own checksum
	Tree        string `json:"tree,omitempty"`

	// What was seen of the user's index; see userKey.
	User userKey `json:"user,omitzero"`
}

// userKey is a user's index of which it is known that its checksum is right,
// and what an index commit of it holds.
type userKey struct {
	Checksum string `json:"checksum"`
	Size     int64  `json:"size"`
	Time     int64  `json:"time"`           // nanoseconds since 1970
	Dirs     bool   `json:"dirs,omitempty"` // what the private index says of directories is right for this one
	Head     string `json:"head,omitempty"`
	Index    string `json:"index,omitempty"` // the tree that IndexTree gave with this HEAD's tree; "-": none was needed
}

// userKey says which file the user's index is. It is the zero userKey where there
// is none.
func (p *private) userKey() (userKey, error) {
	file := filepath.Join(p.repo.Dir, "index")
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return userKey{}, nil
	}
	if err != nil {
		return userKey{}, err
	}
	sum, err := indexChecksum(file, p.repo.HashLen())
	return userKey{Checksum: sum, Size: info.Size(), Time: info.ModTime().UnixNano()}, err
}

// sameFile says whether two are of the same file.
func (k userKey) sameFile(other userKey) bool {
	return k.Checksum == other.Checksum && k.Size == other.Size && k.Time == other.Time
}

func openPrivate(repo *git.Repo, scratch bool) (*private, error) {
	home := filepath.Join(repo.Dir, "checkpoint")
	p := &private{begun: time.Now(), repo: repo, dir: home, kept: filepath.Join(home, "index"), print: fingerprint(repo)}
	if scratch {
		dir, err := os.MkdirTemp("", "git-checkpoint-")
		if err != nil {
			return nil, fault.New(fault.Fatal, "io", "make a temporary directory: %w", err)
		}
		// git takes a repository without an object directory for none.
		if err := os.Mkdir(filepath.Join(dir, "objects"), 0o777); err != nil {
			return nil, fault.New(fault.Fatal, "io", "make a temporary directory: %w", err)
		}
		p.dir = dir
		p.scratchObjects()
	} else if err := os.MkdirAll(home, 0o777); err != nil {
		return nil, fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	p.index = filepath.Join(p.dir, fmt.Sprintf("index.%d", os.Getpid()))
	return p, nil
}

// discard removes what is not kept.
func (p *private) discard() {
	for i := len(p.unmap) - 1; i >= 0; i-- {
		p.unmap[i]()
	}
	p.unmap = nil
	os.Remove(p.index)
	if p.env != nil {
		os.RemoveAll(p.dir)
	}
}

// read returns the content of an index until discard.
func (p *private) read(path string) ([]byte, fs.FileInfo, error) {
	data, info, unmap, err := mapFile(path)
	if err != nil {
		return nil, nil, err
	}
	p.unmap = append(p.unmap, unmap)
	return data, info, nil
}

// objects is the directory that new objects go to.
func (p *private) objects() string {
	if p.env != nil {
		return filepath.Join(p.dir, "objects")
	}
	return filepath.Join(p.repo.CommonDir, "objects")
}

// scratchObjects lets git write objects beside the repository's and read both.
func (p *private) scratchObjects() {
	real := os.Getenv("GIT_OBJECT_DIRECTORY")
	if real == "" {
		real = filepath.Join(p.repo.CommonDir, "objects")
	}
	alternates := real
	if more := os.Getenv("GIT_ALTERNATE_OBJECT_DIRECTORIES"); more != "" {
		alternates += string(os.PathListSeparator) + more
	}
	p.env = []string{
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(p.dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoteAlternate(alternates),
	}
}

// quoteAlternate protects a path in the variable's list syntax, in which a
// leading double quote starts a C-quoted path.
func quoteAlternate(list string) string {
	if strings.HasPrefix(list, `"`) {
		return `"` + strings.ReplaceAll(strings.ReplaceAll(list, `\`, `\\`), `"`, `\"`) + `"`
	}
	return list
}

func (p *private) git(ctx context.Context, args ...string) *git.Cmd {
	c := p.repo.Command(ctx, args...).WithIndex(p.index)
	c.Env = append(c.Env, p.env...)
	return c
}

// loadKey says whether the index that is kept is that of a checkpoint.
func (p *private) loadKey(key string) (k cacheKey, ok bool) {
	if key == "" {
		return k, false
	}
	data, err := os.ReadFile(p.kept + ".key")
	if err != nil || json.Unmarshal(data, &k) != nil || k.Key != key || k.Fingerprint != p.print {
		git.Trace("private index: none that fits")
		return k, false
	}
	if sum, err := indexChecksum(p.kept, p.repo.HashLen()); err != nil || sum != k.Checksum {
		git.Trace("private index: another than its key says")
		return k, false
	}
	return k, true
}

// keep makes the index that was written, if one was, that of a checkpoint.
func (p *private) keep(k cacheKey, written bool) error {
	k.Fingerprint = p.print
	if strings.Trim(k.User.Checksum, "0") == "" && k.User.Time >= p.begun.Add(-time.Second).UnixNano() {
		// Without a checksum (index.skipHash) it may have been written once more
		// since it was read, and have the same size and time.
		k.User = userKey{}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return failed("keep the private index", err)
	}
	if written {
		// In between the key does not match the index, and the cache is rebuilt.
		if err := os.Rename(p.index, p.kept); err != nil {
			return failed("keep the private index", err)
		}
		git.Step("private index in place")
	}
	if err := writeFile(p.kept+".key", data); err != nil {
		return failed("keep the private index", err)
	}
	return nil
}

func indexChecksum(path string, hashLen int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	sum := make([]byte, hashLen)
	if _, err := f.ReadAt(sum, info.Size()-int64(hashLen)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum), nil
}

func writeFile(path string, data []byte) error {
	return replaceFile(fmt.Sprintf("%s.%d", path, os.Getpid()), path, data)
}

// replaceFile writes a file by way of another on the same file system.
func replaceFile(temporary, path string, data []byte) error {
	if err := os.WriteFile(temporary, data, 0o666); err != nil {
		return err
	}
	git.Step("temporary file written")
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	git.Step("file in place")
	return nil
}

// fingerprint is over everything outside the tree that decides how git stores
// a file. Attributes in the tree are looked at by attributesChanged.
func fingerprint(repo *git.Repo) string {
	h := sha256.New()
	var keys []string
	for key := range repo.Config {
		switch key {
		case "core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
			"core.attributesfile", "core.trustctime", "core.checkstat", "core.sparsecheckout", "core.worktree", "core.checkroundtripencoding":
			keys = append(keys, key)
		default:
			if strings.HasPrefix(key, "filter.") {
				keys = append(keys, key)
			}
		}
	}
	sort.Strings(keys)
	for _, key := range keys {
		fmt.Fprintf(h, "%s=%q\n", key, repo.Config[key])
	}
	files, err := AttributeFiles(repo)
	fmt.Fprintln(h, err) // git's own way to a file that we do not know
	for _, file := range files {
		data, err := ReadRules(file)
		fmt.Fprintf(h, "%s %v %q\n", file, err == nil, data)
	}
	fmt.Fprintln(h, repo.Top)
	return hex.EncodeToString(h.Sum(nil))
}
