package snapshot

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/attributes"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// converter knows which files git may convert when it stores them (gitattributes(5)).
type converter struct {
	top string
	// indexed says whether the user's index has a path. git reads attributes from
	// there where they are not on disk, until it takes them out of its own index.
	indexed func(path string) (bool, error)
	every   attributes.Conversion // core.autocrlf: of every file
	shared  []*attributes.File    // those that hold everywhere

	mu    sync.Mutex
	rules attributes.Rules
	dirs  map[string]*attributes.File // the .gitattributes of directories, by their paths with '/' at the end
}

func newConverter(repo *git.Repo, indexed func(path string) (bool, error)) (*converter, error) {
	c := &converter{top: repo.Top, indexed: indexed, dirs: map[string]*attributes.File{}}
	if v, ok := repo.Config.Get("core.autocrlf"); ok {
		if yes, err := git.ParseBool(v); yes || err != nil { // "input"
			c.every = attributes.LineEndings | attributes.ByIndex
		}
	}
	c.rules.Fold = repo.Config.Bool("core.ignorecase", false)
	c.rules.Driver = func(name string) bool {
		for _, key := range []string{".clean", ".process", ".required"} {
			if _, ok := repo.Config.Get("filter." + name + key); ok {
				return true
			}
		}
		return false
	}
	files, err := AttributeFiles(repo)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, file := range append(files, filepath.Join(repo.Top, ".gitattributes")) {
		data, err := readRules(file)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
		c.rules.Macros(data)
	}
	for _, data := range all[:len(files)] {
		if f := c.rules.Parse(data, ""); !f.Plain() {
			c.shared = append(c.shared, f)
		}
	}
	return c, nil
}

// AttributeFiles are the files of attributes outside the working tree: the
// system's, as far as it can be known from where git is (to ask git is
// possible since 2.41), the user's and the repository's. Not all of them need
// be there. An error says that git may read another one.
func AttributeFiles(repo *git.Repo) ([]string, error) {
	files := []string{"/etc/gitattributes"}
	for _, dir := range git.Places() {
		files = append(files, filepath.Join(dir, "etc", "gitattributes"))
	}
	global, err := globalFile(repo, "core.attributesfile", "attributes")
	if err != nil {
		return nil, err
	}
	if global != "" {
		files = append(files, global)
	}
	return append(files, filepath.Join(repo.CommonDir, "info", "attributes")), nil
}

// ReadRules reads a file of attributes or ignore rules. What is neither a file
// nor a directory is not there: a FIFO would let us wait for ever.
func ReadRules(file string) ([]byte, error) {
	if fi, err := os.Stat(file); err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(file)
}

// readRules reads a file of rules; none where there is no file.
func readRules(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := ReadRules(file)
	if err != nil && !gone(err) {
		return nil, asidef("read '%s': %v", file, err)
	}
	return data, nil
}

// may says what git may do to a file. It errs on the side of git.
func (c *converter) may(path string) (attributes.Conversion, error) {
	may := c.every
	for _, f := range c.shared {
		may |= f.Conversion([]byte(path))
	}
	for end := len(path); end >= 0; {
		end = strings.LastIndexByte(path[:end], '/')
		f, err := c.dir(path[:end+1])
		if err != nil {
			return attributes.Any, err
		}
		may |= f.Conversion([]byte(path))
	}
	return may, nil
}

// plain says whether the rules alone decide how a file is stored, whatever
// an index holds of it.
func (c *converter) plain(path string) bool {
	may, err := c.may(path)
	if err != nil || may&attributes.ByIndex == 0 {
		return err == nil
	}
	disk := diskPath(c.top, path)
	if fi, err := os.Lstat(disk); may&attributes.Any != 0 || err != nil || fi.Size() > whole {
		return false
	}
	data, err := os.ReadFile(disk)
	return err == nil && !bytes.Contains(data, []byte("\r\n"))
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
	if err != nil {
		if is, err := c.indexed(dir + ".gitattributes"); is || err != nil {
			return nil, cmp.Or(err, asidef("'%s.gitattributes' is in the index, but not on disk", dir))
		}
	}
	f = c.rules.Parse(data, dir)
	c.dirs[dir] = f
	return f, nil
}
