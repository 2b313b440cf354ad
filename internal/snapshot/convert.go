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

// converter knows which files git may convert when it stores them (gitattributes(5)).
type converter struct {
	top    string
	every  attributes.Conversion // core.autocrlf: of every file
	shared []*attributes.File    // those that hold everywhere

	mu    sync.Mutex
	rules attributes.Rules
	dirs  map[string]*attributes.File // the .gitattributes of directories, by their paths with '/' at the end
}

func newConverter(repo *git.Repo) (*converter, error) {
	c := &converter{top: repo.Top, dirs: map[string]*attributes.File{}}
	if v, ok := repo.Config.Get("core.autocrlf"); ok {
		if yes, err := git.ParseBool(v); yes || err != nil { // "input"
			c.every = attributes.LineEndings
		}
	}
	c.rules.Driver = func(name string) bool {
		for _, key := range []string{".clean", ".process", ".required"} {
			if _, ok := repo.Config.Get("filter." + name + key); ok {
				return true
			}
		}
		return false
	}
	global, err := globalFile(repo, "core.attributesfile", "attributes")
	if err != nil {
		return nil, err
	}
	var files [][]byte
	for _, file := range []string{systemAttributes(), global, filepath.Join(repo.CommonDir, "info", "attributes"), filepath.Join(repo.Top, ".gitattributes")} {
		data, err := readRules(file)
		if err != nil {
			return nil, err
		}
		files = append(files, data)
		c.rules.Macros(data)
	}
	for _, data := range files[:3] {
		if f := c.rules.Parse(data, ""); !f.Plain() {
			c.shared = append(c.shared, f)
		}
	}
	return c, nil
}

// systemAttributes is the file that git has for the whole system, as far as it
// can be known from where git itself is: to ask git is possible since 2.41.
func systemAttributes() string {
	program, err := exec.LookPath("git")
	if err != nil {
		return ""
	}
	prefix := filepath.Dir(filepath.Dir(program))
	if prefix == "/usr" {
		prefix = "/"
	}
	return filepath.Join(prefix, "etc", "gitattributes")
}

// readRules reads a file of rules; none where there is no file.
func readRules(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil && !gone(err) {
		return nil, asidef("read '%s': %v", file, err)
	}
	return data, nil
}

// may says what git may do to a file. It errs on the side of git.
func (c *converter) may(path string) (attributes.Conversion, error) {
	may := c.every
	for _, f := range c.shared {
		may = max(may, f.Conversion([]byte(path)))
	}
	for end := len(path); end >= 0; {
		end = strings.LastIndexByte(path[:end], '/')
		f, err := c.dir(path[:end+1])
		if err != nil {
			return attributes.Any, err
		}
		may = max(may, f.Conversion([]byte(path)))
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
	data, err := readNoFollow(filepath.Join(c.top, filepath.FromSlash(dir), ".gitattributes"))
	if err != nil && !gone(err) {
		return nil, asidef("read '%s.gitattributes': %v", dir, err)
	}
	f = c.rules.Parse(data, dir)
	c.dirs[dir] = f
	return f, nil
}
