package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/attributes"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// conversion is what git may do to a file's content when it stores it.
type conversion uint8

const (
	convertsNothing conversion = iota
	convertsLines              // CRLF to LF, nothing else
	convertsAny
)

// converter knows which files git may convert (gitattributes(5)).
type converter struct {
	top    string
	lines  bool               // core.autocrlf: of all files
	shared []*attributes.File // those that hold everywhere
	err    error

	mu   sync.Mutex
	dirs map[string]*attributes.File // the .gitattributes of directories, nil where there is none that counts
}

func newConverter(repo *git.Repo) *converter {
	c := &converter{top: repo.Top, dirs: map[string]*attributes.File{}}
	if v, ok := repo.Config.Get("core.autocrlf"); ok {
		b, err := git.ParseBool(v)
		c.lines = b || err != nil // "input"
	}
	global, err := globalFile(repo, "core.attributesfile", "attributes")
	if err != nil {
		c.err = err
	}
	for _, file := range []string{filepath.Join(repo.CommonDir, "info", "attributes"), global, systemAttributes()} {
		f, err := c.read(file, "")
		if err != nil {
			c.err = err
		}
		if f != nil {
			c.shared = append(c.shared, f)
		}
	}
	return c
}

// systemAttributes is the file that git has for the whole system, as far as it
// can be known where git itself is: "git var GIT_ATTR_SYSTEM" is too new.
func systemAttributes() string {
	program, err := exec.LookPath("git")
	if err != nil {
		return "/etc/gitattributes"
	}
	prefix := filepath.Dir(filepath.Dir(program))
	if prefix == "/usr" {
		prefix = "/"
	}
	return filepath.Join(prefix, "etc", "gitattributes")
}

// read reads a file of attributes; nil where it cannot convert anything.
func (c *converter) read(file, base string) (*attributes.File, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, asidef("read '%s': %v", file, err)
	}
	f := attributes.Parse(data, base, false)
	if f.Plain() {
		return nil, nil
	}
	return f, nil
}

// may says what git may do to a file. It errs on the side of git.
func (c *converter) may(path string) (conversion, error) {
	if c.err != nil {
		return convertsAny, c.err
	}
	may := convertsNothing
	if c.lines {
		may = convertsLines
	}
	for _, f := range c.shared {
		if f.MayConvert([]byte(path)) {
			return convertsAny, nil
		}
	}
	for dir := path; dir != ""; {
		dir = dir[:strings.LastIndexByte(dir, '/')+1]
		f, err := c.dir(dir)
		if err != nil {
			return convertsAny, err
		}
		if f != nil && f.MayConvert([]byte(path)) {
			return convertsAny, nil
		}
		dir = strings.TrimSuffix(dir, "/")
	}
	return may, nil
}

// dir returns the attributes of a directory, whose path ends in '/'.
func (c *converter) dir(dir string) (*attributes.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.dirs[dir]
	if ok {
		return f, nil
	}
	f, err := c.read(filepath.Join(c.top, filepath.FromSlash(dir), ".gitattributes"), dir)
	if err == nil {
		c.dirs[dir] = f
	}
	return f, err
}
