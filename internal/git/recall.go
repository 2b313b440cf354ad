package git

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A hook runs at every turn, and to start git for its configuration takes a
// third of what it does. So Open remembers what git said, and with it every
// file that had a part in it; while these are the same, git would say it again.
// Whatever is out of the ordinary is not remembered, and git is asked.

// remembered is what git said of a repository.
type remembered struct {
	question string    // what can lead to another answer, and is in no file; see question
	top      string    // where it was found
	common   string    // the git directory that all worktrees share
	listing  string    // the configuration, as `git config --list -z --show-origin` prints it
	files    []witness // what it came from
}

// witness is a file and its identity as text: "" if there was no such file.
type witness struct{ path, was string }

// rememberedForm begins the file that holds it.
const rememberedForm = "setup 2 "

// encode makes a line of the form and a checksum of what follows: fields that
// each end with a NUL, the listing last, which has NULs of its own. To read JSON
// instead would take longer than all else that Open does.
func (m *remembered) encode() []byte {
	fields := []string{m.question, m.top, m.common, strconv.Itoa(len(m.files))}
	for _, w := range m.files {
		fields = append(fields, w.path, w.was)
	}
	body := strings.Join(append(fields, m.listing), "\x00")
	return []byte(rememberedForm + digest(body) + "\n" + body)
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// decode reads what encode made; it is false for anything else.
func (m *remembered) decode(data string) bool {
	head, body, _ := strings.Cut(data, "\n")
	if head != rememberedForm+digest(body) {
		return false
	}
	field := func() (f string) {
		f, body, _ = strings.Cut(body, "\x00")
		return f
	}
	m.question, m.top, m.common = field(), field(), field()
	files, err := strconv.Atoi(field())
	for range files {
		m.files = append(m.files, witness{field(), field()})
	}
	m.listing = body
	return err == nil
}

// rememberedName is the file that holds it, in the git directory.
func rememberedName(dir string) string { return filepath.Join(dir, "checkpoint", "setup") }

// settledFor is how long a file has to be as it is before its times tell that
// it is the same: file systems have times of up to two seconds.
const settledFor = 3 * time.Second

// search is what is known of a repository without asking git.
type search struct {
	question, top, dir, prefix string
}

// search looks for the repository around a directory. It is false where only
// git can tell.
func (r *Repo) search(cwd string) (s search, ok bool) {
	real, err := filepath.EvalSymlinks(cwd)
	if err != nil || !filepath.IsAbs(real) {
		return s, false
	}
	if s.question, ok = r.question(real); ok {
		s.top, s.dir, s.prefix, ok = discover(real)
	}
	return s, ok && (s.prefix == "" || !r.ceiling())
}

// recall sets the location and the configuration from what is remembered of a
// repository. It is false where git has to be asked.
func (r *Repo) recall(s search) bool {
	f, err := os.Open(rememberedName(s.dir))
	if err != nil {
		return false
	}
	defer f.Close()
	var m remembered
	if fi, err := f.Stat(); err != nil || !ours(fi) {
		return false
	}
	if data, err := io.ReadAll(f); err != nil || !m.decode(string(data)) {
		return false
	}
	if m.question != s.question || m.top != s.top || !works(s.dir, m.common) {
		return false
	}
	for _, w := range m.files {
		if !w.holds() {
			return false
		}
	}
	r.Config, _ = parseListing(m.listing)
	r.Top, r.Dir, r.CommonDir, r.Prefix, r.ObjectFormat = s.top, s.dir, m.common, s.prefix, "sha1"
	r.Shallow = isShallow(m.common)
	Trace("git config: as it was")
	return true
}

// remember keeps what git said, where that can be known to hold the next time.
func (r *Repo) remember(s search, settings []setting, asked time.Time) {
	if s.top != r.Top || s.dir != r.Dir || !works(s.dir, r.CommonDir) {
		return
	}
	paths, ok := r.sources(settings)
	if !ok || !certain(s.top) || !certain(r.CommonDir) {
		return
	}
	m := remembered{question: s.question, top: s.top, common: r.CommonDir, listing: string(kept(settings))}
	for _, path := range paths {
		w := witness{path: path}
		switch fi, err := os.Stat(path); {
		case err == nil:
			now := identify(fi)
			if settled := asked.Add(-settledFor); now.Written.After(settled) || now.Moved.After(settled) {
				return // it may change again and look the same
			}
			w.was = now.String()
		case !Missing(err):
			return
		}
		m.files = append(m.files, w)
	}
	// Of a directory that nobody has saved in nothing is kept.
	file := rememberedName(s.dir)
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	if os.WriteFile(temporary, m.encode(), 0o600) != nil || os.Rename(temporary, file) != nil {
		os.Remove(temporary)
	}
}

// question stands for what of the environment decides about the answer. It is
// false where the environment says where the repository is, or holds settings.
// cwd has no links in it.
func (r *Repo) question(cwd string) (string, bool) {
	if !recalls {
		return "", false
	}
	h := sha256.New()
	fmt.Fprintln(h, "1", os.Geteuid(), r.settings)
	var about []string
	for _, kv := range r.env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS":
			if value != "" {
				return "", false
			}
		case "HOME", "XDG_CONFIG_HOME", "SUDO_UID":
			about = append(about, kv)
		case "PWD":
			// By another name of the directory git finds other conditions met.
			if value != cwd {
				about = append(about, kv)
			}
		default:
			if strings.HasPrefix(name, "GIT_") && !harmless(name) {
				about = append(about, kv)
			}
		}
	}
	slices.Sort(about)
	fmt.Fprintf(h, "%q\n", about)
	program, err := exec.LookPath("git")
	if err != nil {
		return "", false
	}
	fi, err := os.Stat(program)
	if err != nil {
		return "", false
	}
	io.WriteString(h, identify(fi).String())
	return hex.EncodeToString(h.Sum(nil)), true
}

// harmless says whether a variable has to do neither with where a repository
// is nor with its configuration: a hook has others than a shell.
func harmless(name string) bool {
	switch name {
	case "GIT_EXEC_PATH", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_MERGE_AUTOEDIT",
		"GIT_QUARANTINE_PATH", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES":
		return true
	}
	return strings.HasPrefix(name, "GIT_TRACE") || strings.HasPrefix(name, "GIT_CHECKPOINT_")
}

// ceiling says whether there are directories above which git does not look.
func (r *Repo) ceiling() bool {
	return slices.ContainsFunc(r.env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_CEILING_DIRECTORIES=") })
}

// discover looks for a repository as git does, from a directory upwards. It
// is false where that is not all there is to it: then git is asked. cwd has no
// links in it.
func discover(cwd string) (top, dir, prefix string, ok bool) {
	device := func(path string) (uint64, bool) {
		fi, err := os.Lstat(path)
		if err != nil || !ours(fi) {
			return 0, false
		}
		return identify(fi).Device, true
	}
	first, ok := device(cwd)
	if !ok {
		return "", "", "", false
	}
	for top = cwd; ; top = filepath.Dir(top) {
		fi, err := os.Lstat(filepath.Join(top, ".git"))
		if err == nil {
			if dir, ok = gitDirectory(filepath.Join(top, ".git"), fi); !ok {
				return "", "", "", false
			}
			break
		}
		// Above a file system, in a bare repository, or where there is none.
		parent := filepath.Dir(top)
		_, bare := os.Lstat(filepath.Join(top, "HEAD"))
		dev, ok := device(parent)
		if !Missing(err) || !Missing(bare) || parent == top || !ok || dev != first {
			return "", "", "", false
		}
	}
	prefix, err := filepath.Rel(top, cwd)
	if err != nil {
		return "", "", "", false
	}
	if prefix = filepath.ToSlash(prefix) + "/"; prefix == "./" {
		prefix = ""
	}
	return top, dir, prefix, true
}

// gitDirectory is the git directory that a .git is or names.
func gitDirectory(path string, fi fs.FileInfo) (string, bool) {
	switch {
	case !ours(fi):
		return "", false // git has rules for that (safe.directory)
	case fi.IsDir():
		return path, true
	case !fi.Mode().IsRegular() || fi.Size() > 4096:
		return "", false
	}
	data, err := os.ReadFile(path)
	to, named := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	if err != nil || !named || strings.ContainsRune(to, '\n') {
		return "", false
	}
	to, err = physical(filepath.Dir(path), to)
	if err != nil {
		return "", false
	}
	fi, err = os.Lstat(to)
	return to, err == nil && fi.IsDir() && ours(fi)
}

// works says whether git takes a directory for a repository of the usual form.
func works(dir, common string) bool {
	file := filepath.Join(dir, "HEAD")
	if fi, err := os.Lstat(file); err != nil || !fi.Mode().IsRegular() || fi.Size() > 1024 {
		return false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	head := strings.TrimRight(string(data), "\n")
	if ref, symbolic := strings.CutPrefix(head, "ref:"); symbolic {
		if !strings.HasPrefix(strings.TrimLeft(ref, " \t"), "refs/") {
			return false
		}
	} else if id, err := hex.DecodeString(head); err != nil || len(id) != 20 {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if fi, err := os.Stat(filepath.Join(common, name)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// sources are all files that the configuration came from, and those that
// would have a part in it if they were there.
func (r *Repo) sources(settings []setting) ([]string, bool) {
	paths := []string{
		"/etc/gitconfig", filepath.Join(r.CommonDir, "config"), filepath.Join(r.Dir, "config.worktree"),
		filepath.Join(r.Dir, "commondir"), filepath.Join(r.Dir, "gitdir"),
	}
	if fi, err := os.Lstat(filepath.Join(r.Top, ".git")); err == nil && !fi.IsDir() {
		paths = append(paths, filepath.Join(r.Top, ".git"))
	}
	for _, place := range Places() {
		paths = append(paths, filepath.Join(place, "etc", "gitconfig"))
	}
	home := ""
	for _, kv := range r.env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "HOME":
			if home = value; home != "" {
				paths = append(paths, home+"/.gitconfig", home+"/.config/git/config")
			}
		case "XDG_CONFIG_HOME":
			if value != "" {
				paths = append(paths, value+"/git/config")
			}
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM":
			if value != "" {
				paths = append(paths, value)
			}
		}
	}
	for _, origin := range settings {
		// git quotes what it must, and then a path is not what it seems.
		file, ok := strings.CutPrefix(origin.from, "file:")
		if !ok && origin.from != "command line:" || strings.HasPrefix(file, `"`) {
			return nil, false
		}
		if !ok {
			continue
		}
		file = absolute(r.Top, file)
		paths = append(paths, file)
		condition, include := strings.CutPrefix(origin.key, "includeif.")
		if include && !strings.HasPrefix(condition, "gitdir:") && !strings.HasPrefix(condition, "gitdir/i:") {
			return nil, false // it depends on the branch or on a remote
		}
		if !include && origin.key != "include.path" || !strings.HasSuffix(origin.key, ".path") {
			continue
		}
		included := origin.value
		if rest, ofHome := strings.CutPrefix(included, "~/"); ofHome && home != "" {
			included = home + "/" + rest
		} else if included == "" || strings.HasPrefix(included, "~") || strings.HasPrefix(included, "%(") {
			return nil, false
		} else if !filepath.IsAbs(included) {
			included = filepath.Dir(file) + "/" + included
		}
		paths = append(paths, included)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return paths, !slices.ContainsFunc(paths, func(path string) bool { return !certain(path) })
}

// certain says whether a path leads to the same file wherever we are, and can
// be written down.
func certain(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && utf8.ValidString(path)
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// sections are those of which a command of ours reads keys. Others, such as
// those that hold passwords for a proxy, are not copied.
var sections = []string{"author", "branch", "checkpoint", "committer", "core", "extensions", "filter", "hook", "remote", "user"}

// kept is the part of a listing that is remembered.
func kept(settings []setting) []byte {
	var data []byte
	for _, s := range settings {
		section, _, _ := strings.Cut(s.key, ".")
		if !slices.Contains(sections, section) {
			continue
		}
		data = append(data, s.from+"\x00"+s.key...)
		// Of these it only counts that they are there, and they may hold passwords.
		if section == "hook" || section == "remote" && strings.HasSuffix(s.key, "url") {
			s.value, s.assigned = "", true
		}
		if s.assigned {
			data = append(data, "\n"+s.value...)
		}
		data = append(data, 0)
	}
	return data
}

func (w *witness) holds() bool {
	fi, err := os.Stat(w.path)
	if err != nil {
		return w.was == "" && Missing(err)
	}
	return w.was == identify(fi).String()
}
