package git

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is remembered of a repository is what git says of it, in the places
// where that can be known.
func TestRememberedIsWhatGitSays(t *testing.T) {
	if !recalls {
		t.Skip("nothing is remembered here")
	}
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	places := situations(t, root, at)
	for _, p := range places {
		if r, err := open(t.Context(), p.dir, append(testEnvironment(root), p.env...)); err == nil {
			os.Mkdir(filepath.Join(r.Dir, "checkpoint"), 0o777)
		}
	}
	time.Sleep(settledFor + time.Second)
	recalled := []string{
		"top", "sub-directory", "nested repository", "linked worktree", "below a linked worktree", "submodule", "parent of a submodule",
		"separate git directory", "worktree of a bare one", "shallow clone", "symbolic link to a sub-directory", "symbolic link to the top",
		"below a symbolic link to the top", "git directory by a file", "empty configuration", "GIT_CONFIG", "a trace of one's own",
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			environ := append(testEnvironment(root), p.env...)
			if !slices.ContainsFunc(p.env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_CEILING") }) {
				environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "GIT_CEILING") })
			}
			asked, err := open(t.Context(), p.dir, environ)
			if err != nil {
				return // and nothing was remembered
			}
			again := &Repo{env: asked.env[:len(cleanEnvironment(environ, p.dir))], settings: baseArguments()}
			if got, want := again.recalls(p.dir), slices.Contains(recalled, p.name); got != want {
				t.Fatalf("recalled: %t", got)
			} else if !got {
				return
			}
			fresh := &Repo{env: again.env, settings: baseArguments()}
			if _, _, err := fresh.ask(t.Context(), p.dir); err != nil {
				t.Fatal(err)
			}
			for key, values := range fresh.Config {
				section, _, _ := strings.Cut(key, ".")
				if !slices.Contains(sections, section) {
					delete(fresh.Config, key)
				} else if strings.HasSuffix(key, ".url") {
					fresh.Config[key] = make([]string, len(values))
				}
			}
			if !reflect.DeepEqual(again, fresh) {
				t.Errorf("remembered:\n%+v\ngit says:\n%+v", again, fresh)
			}
		})
	}
}

// Whatever has a part in the configuration, or in what git takes for a
// repository, makes it ask anew.
func TestNothingStaleIsRemembered(t *testing.T) {
	if !recalls {
		t.Skip("nothing is remembered here")
	}
	t.Parallel()
	type world struct {
		top, home string
		environ   *[]string
	}
	write := func(content string, parts ...string) {
		t.Helper()
		file := filepath.Join(parts...)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	changes := map[string]func(w world){
		"nothing": func(world) {},
		"a setting": func(w world) {
			write("[core]\n\trepositoryformatversion = 0\n\tbare = false\n[user]\n\tname = B\n", w.top, ".git", "config")
		},
		"a setting, with the same size and time": func(w world) {
			file := filepath.Join(w.top, ".git", "config")
			fi, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := os.ReadFile(file)
			write(strings.Replace(string(data), "name = A", "name = C", 1), file)
			os.Chtimes(file, fi.ModTime(), fi.ModTime())
		},
		"the user's file":                 func(w world) { write("[user]\n\tname = D\n", w.home, ".gitconfig") },
		"the user's other file":           func(w world) { write("[user]\n\tname = D\n", w.home, ".config", "git", "config") },
		"a file that is included":         func(w world) { write("[user]\n\tname = E\n", w.home, "more") },
		"a file that is included, absent": func(w world) { write("[user]\n\tname = E\n", w.home, "none") },
		"a link to another file": func(w world) {
			write("[user]\n\tname = F\n", w.home, "other")
			os.Remove(filepath.Join(w.home, "linked"))
			os.Symlink("other", filepath.Join(w.home, "linked"))
		},
		"config.worktree":    func(w world) { write("", w.top, ".git", "config.worktree") },
		"HEAD":               func(w world) { write("nothing\n", w.top, ".git", "HEAD") },
		"no objects":         func(w world) { os.RemoveAll(filepath.Join(w.top, ".git", "objects")) },
		"a repository below": func(w world) { os.Mkdir(filepath.Join(w.top, "sub", ".git"), 0o777) },
		"a bare repository":  func(w world) { write("ref: refs/heads/main\n", w.top, "sub", "HEAD") },
		"damage":             func(w world) { write("{", w.top, ".git", "checkpoint", "setup") },
		"the environment": func(w world) {
			*w.environ = append(*w.environ, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=a.b", "GIT_CONFIG_VALUE_0=c")
		},
		"another name of the place": func(w world) {
			os.Symlink(w.top, filepath.Join(w.home, "top"))
			*w.environ = append(*w.environ, "PWD="+filepath.Join(w.home, "top", "sub"))
		},
		"another home":           func(w world) { *w.environ = append(*w.environ, "XDG_CONFIG_HOME="+w.home) },
		"a variable of git's":    func(w world) { *w.environ = append(*w.environ, "GIT_NEW_VARIABLE=1") },
		"a variable of a hook's": func(w world) { *w.environ = append(*w.environ, "GIT_EXEC_PATH=/x", "GIT_INDEX_FILE=/y") },
	}
	same := []string{"nothing", "a variable of a hook's"}
	var worlds []world
	var names []string
	for name := range changes {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w := world{top: filepath.Join(dir, "top"), home: filepath.Join(dir, "home")}
		environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "GIT_CONFIG_NOSYSTEM=1"}
		w.environ = &environ
		write("", w.home, "more")
		write("", w.home, "aim")
		write("", w.top, "sub", "file")
		os.Symlink("aim", filepath.Join(w.home, "linked"))
		runGit(t, w.top, environ, "init", "-q")
		for _, path := range []string{"~/more", "~/none", "~/linked"} {
			runGit(t, w.top, environ, "config", "--add", "include.path", path)
		}
		runGit(t, w.top, environ, "config", "user.name", "A")
		os.Mkdir(filepath.Join(w.top, ".git", "checkpoint"), 0o777)
		worlds, names = append(worlds, w), append(names, name)
	}
	time.Sleep(settledFor + time.Second)
	for i, w := range worlds {
		t.Run(names[i], func(t *testing.T) {
			sub := filepath.Join(w.top, "sub")
			if _, err := open(t.Context(), sub, *w.environ); err != nil {
				t.Fatal(err)
			}
			changes[names[i]](w)
			r := &Repo{env: cleanEnvironment(*w.environ, sub), settings: baseArguments()}
			if got, want := r.recalls(sub), slices.Contains(same, names[i]); got != want {
				t.Errorf("recalled: %t", got)
			}
		})
	}
}

// What depends on more than files is not remembered, and nothing is where the
// files are too young to tell.
func TestNotEverythingIsRemembered(t *testing.T) {
	if !recalls {
		t.Skip("nothing is remembered here")
	}
	t.Parallel()
	for name, settings := range map[string][]string{
		"young":             {},
		"by branch":         {"includeIf.onbranch:main.path", "x"},
		"by remote":         {"includeIf.hasconfig:remote.*.url:x.path", "x"},
		"of somebody":       {"include.path", "~nobody/x"},
		"of git's prefix":   {"include.path", "%(prefix)/x"},
		"beyond a link":     {"include.path", "~/link/../x"},
		"by git directory ": {"includeIf.gitdir:~/.path", "~/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
			runGit(t, top, environ, "init", "-q")
			for i := 0; i+1 < len(settings); i += 2 {
				runGit(t, top, environ, "config", settings[i], settings[i+1])
			}
			os.Mkdir(filepath.Join(top, ".git", "checkpoint"), 0o777)
			if name != "young" {
				time.Sleep(settledFor + time.Second)
			}
			if _, err := open(t.Context(), top, environ); err != nil {
				t.Fatal(err)
			}
			_, err = os.Stat(filepath.Join(top, ".git", "checkpoint", "setup"))
			if got, want := err == nil, strings.HasPrefix(name, "by git"); got != want {
				t.Errorf("remembered: %t", got)
			}
		})
	}
}

// What the environment says in a way that depends on where we are, or that
// cannot be written down, is not remembered.
func TestOddEnvironmentsAreNotRemembered(t *testing.T) {
	top, home := t.TempDir(), t.TempDir()
	for _, odd := range []string{"HOME=" + home + "/\xff", "HOME=" + home + "/../x", "XDG_CONFIG_HOME=here", "GIT_CONFIG_GLOBAL=../config"} {
		r := &Repo{Top: top, Dir: filepath.Join(top, ".git"), CommonDir: filepath.Join(top, ".git"), env: []string{odd}}
		if paths, ok := r.sources(nil); ok {
			t.Errorf("%q: %q", odd, paths)
		}
	}
	r := &Repo{Top: top, Dir: filepath.Join(top, ".git"), CommonDir: filepath.Join(top, ".git"), env: []string{"HOME=" + home, "XDG_CONFIG_HOME="}}
	if paths, ok := r.sources(nil); !ok || !slices.Contains(paths, filepath.Join(home, ".gitconfig")) {
		t.Errorf("%q, %t", paths, ok)
	}
}

// Every key that is read is of a section that is remembered, and what else the
// user has, such as a password for a proxy, is not copied into a repository.
func TestRememberedSections(t *testing.T) {
	key := regexp.MustCompile(`(?:onfig\.(?:Get|Bool|Subsections)\(|:= range \[\]string\{)"([a-z0-9]+)(?:\.|"\))`)
	read := map[string]bool{}
	for _, file := range goFiles(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range key.FindAllStringSubmatch(string(data), -1) {
			read[found[1]] = true
			if !slices.Contains(sections, found[1]) {
				t.Errorf("%s reads '%s', which is not remembered", file, found[1])
			}
		}
	}
	for _, section := range []string{"branch", "core", "extensions", "filter", "hook", "remote"} {
		if !read[section] {
			t.Errorf("nothing is found that reads '%s'", section)
		}
	}
	listing := ""
	for _, setting := range []string{
		"http.proxy\nsecret", "http.extraheader\nsecret", "user.name\nA", "core.bare", "remote.a.url\nhttps://secret@host", "remote.a.push\nx", "hook.b.command\nsecret",
	} {
		listing += "file:.git/config\x00" + setting + "\x00"
	}
	want := ""
	for _, setting := range []string{"user.name\nA", "core.bare", "remote.a.url\n", "remote.a.push\nx", "hook.b.command\n"} {
		want += "file:.git/config\x00" + setting + "\x00"
	}
	_, settings := parseListing(listing)
	if got := string(kept(settings)); got != want {
		t.Errorf("remembered: %q, not %q", got, want)
	}
}

// goFiles are the sources of this module but for its tests.
func goFiles(t *testing.T) []string {
	var files []string
	for _, pattern := range []string{"../*/*.go", "../../*/*.go", "../../cmd/*/*.go"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

func baseArguments() []string {
	var list []string
	for _, s := range baseSettings {
		list = append(list, "-c", s)
	}
	return list
}

// recalls says whether what is remembered of a place is enough.
func (r *Repo) recalls(cwd string) bool {
	s, ok := r.search(cwd)
	return ok && r.recall(s)
}

// What is remembered is read as it was written, or not at all.
func TestRememberedForm(t *testing.T) {
	t.Parallel()
	is := identity{1, 2, 3, 4, time.Unix(5, 6), time.Unix(-7, 8)}
	for _, m := range []remembered{
		{},
		{"question", "/top", "/top/.git", "file:a\x00user.name\nA U Thor\x00", []witness{{"/etc/gitconfig", ""}, {"/a\nb", is.String()}}},
	} {
		data := string(m.encode())
		var again remembered
		if !again.decode(data) || !reflect.DeepEqual(again, m) {
			t.Errorf("%q is read as %+v", data, again)
		}
		for i := range data {
			var cut remembered
			if cut.decode(data[:i]) {
				t.Errorf("%q is read as %+v", data[:i], cut)
			}
			zeroed := data[:i] + strings.Repeat("\x00", len(data)-i) // as a crash may leave it
			if zeroed != data && cut.decode(zeroed) {
				t.Errorf("%q is read as %+v", zeroed, cut)
			}
		}
	}
	if was, want := is.String(), "1 2 3 4 5 6 -7 8"; was != want {
		t.Errorf("the identity is %q, not %q", was, want)
	}
}
