package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// repository is one whose settings a test sets. What it says nothing of is
// not set.
func repository(t *testing.T, file string, inGit git.Config) *git.Repo {
	t.Helper()
	for _, k := range Keys {
		t.Setenv(Variable(k.Name), "")
	}
	repo := &git.Repo{Top: t.TempDir(), Config: inGit}
	if file != "" {
		if err := os.WriteFile(filepath.Join(repo.Top, FileName), []byte(file), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return repo
}

func TestFaultsOfTheFile(t *testing.T) {
	for _, c := range []struct{ file, fault, hint string }{
		{"auto_chekpoint = true\n", ".checkpoint.toml:1:1: unknown key 'auto_chekpoint'", "did you mean 'auto_checkpoint'?"},
		{"# x\n[snapshot]\nmax_file_size = 1\n\n  \"max size\" = 2\n", ".checkpoint.toml:5:3: unknown key 'snapshot.\"max size\"'", ""},
		{"max_file_size = 1\n", ".checkpoint.toml:1:1: unknown key 'max_file_size'", "did you mean 'snapshot.max_file_size'?"},
		{"commit.name = 'x'\ncommit.nickname = 'y'\n", ".checkpoint.toml:2:1: unknown key 'commit.nickname'", ""},
		{"snapshot = { exclude = [], max = 1 }\n", ".checkpoint.toml:1:28: unknown key 'snapshot.max'", ""},
		{"[hooks]\nrun = 'rm -rf /'\n", ".checkpoint.toml:1:2: unknown key 'hooks'", ""},
		{"[[commit]]\nname = 'x'\n", ".checkpoint.toml:1:3: 'commit' must be a table, and is an array of tables", ""},
		{"commit = 'x'\n", ".checkpoint.toml:1:1: 'commit' must be a table, and is a string", ""},
		{"[commit.name]\n", ".checkpoint.toml:1:2: 'commit.name' is a setting, not a table", ""},
		{"auto_checkpoint = 'true'\n", ".checkpoint.toml:1:1: 'auto_checkpoint': it must be true or false, and is a string", ""},
		{"auto_checkpoint = {}\n", ".checkpoint.toml:1:1: 'auto_checkpoint': it must be true or false, and is a table", ""},
		{"branch_prefix = 2026-11-30\n", ".checkpoint.toml:1:1: 'branch_prefix': it must be a string, and is a date or time", ""},
		{"branch_prefix = '../x'\n", ".checkpoint.toml:1:1: 'branch_prefix': no branch can begin with '../x'", ""},
		{"commit.message = \"a\\nb\"\n", ".checkpoint.toml:1:1: 'commit.message': it holds a control character", ""},
		{"[snapshot]\nmax_file_size = -1\n", ".checkpoint.toml:2:1: 'snapshot.max_file_size': '-1' is no size; write bytes, or a number with k, m or g", ""},
		{"[snapshot]\nmax_file_size = 1.5\n", ".checkpoint.toml:2:1: 'snapshot.max_file_size': it must be a size: a number of bytes, or a string such as \"50m\", and is a float", ""},
		{"[snapshot]\nexclude = ['a', 1]\n", ".checkpoint.toml:2:1: 'snapshot.exclude': it must be an array of strings, and holds an integer", ""},
		{"[snapshot]\nexclude = 'a'\n", ".checkpoint.toml:2:1: 'snapshot.exclude': it must be an array of strings, and is a string", ""},
		{"a = \n", ".checkpoint.toml:1:5: expected value but found '\\n' instead", ""},
		{"auto_checkpoint = true\nauto_checkpoint = true\n", ".checkpoint.toml:2:24: key 'auto_checkpoint' has already been defined", ""},
		{"\xff\xfea\x00", ".checkpoint.toml:1:1: it is UTF-16; TOML is UTF-8", ""},
		{strings.Repeat("# much\n", maxFileLen/7+1), "read .checkpoint.toml: it is larger than 262144 bytes", ""},
	} {
		config, faults := Read(repository(t, c.file, nil))
		if len(faults) == 0 {
			t.Errorf("%.60q is accepted", c.file)
			continue
		}
		var f *fault.Error
		if !errors.As(faults[0], &f) || !errors.Is(f, fault.Invalid) || f.Code != "invalid-config" {
			t.Errorf("%.60q: %v is no invalid configuration", c.file, faults[0])
		}
		if f.Message != c.fault || c.hint != "" && f.Hint != c.hint {
			t.Errorf("%.60q:\n%s (%s), want\n%s (%s)", c.file, f.Message, f.Hint, c.fault, c.hint)
		}
		if config.MaxFileSize != DefaultMaxFileSize && config.MaxFileSize != 1 {
			t.Errorf("%.60q: the size is %d", c.file, config.MaxFileSize)
		}
	}
}

// The good part of a bad file holds.
func TestGoodPartIsKept(t *testing.T) {
	repo := repository(t, "commit.name = 'Robot'\ncolour = 'red'\n[snapshot]\nmax_file_size = '2k'\nexclude = 3\n", git.Config{"checkpoint.autocheckpoint": {"perhaps"}})
	c, faults := Read(repo)
	if len(faults) != 3 || c.CommitName != "Robot" || c.MaxFileSize != 2048 || !c.AutoCheckpoint {
		t.Errorf("%+v, %v", c, faults)
	}
}

func TestLayers(t *testing.T) {
	file := "auto_checkpoint = false\nbranch_prefix = 'file/'\n[commit]\nname = 'File'\nemail = 'file@x'\nmessage = 'file {turn_id}'\n[snapshot]\nmax_file_size = '1k'\nexclude = ['f1', 'f 2']\n"
	inGit := git.Config{
		"user.name":                 {"User"},
		"checkpoint.autocheckpoint": {"yes"}, "checkpoint.branchprefix": {"git/"},
		"checkpoint.commit.name": {"first", "Git"}, "checkpoint.commit.email": {""}, "checkpoint.commit.message": {"git"},
		"checkpoint.snapshot.maxfilesize": {"2k"}, "checkpoint.snapshot.exclude": {"dropped", "", "g1", "g2"},
	}
	// What the test sets, of all that there is.
	type some struct {
		auto                 bool
		name, email, message string
		size                 int64
		exclude              []string
		prefix               string
	}
	read := func(layer string, repo *git.Repo, want some) {
		t.Helper()
		got, faults := Read(repo)
		if len(faults) > 0 {
			t.Fatal(layer, faults)
		}
		have := some{got.AutoCheckpoint, got.CommitName, got.CommitEmail, got.CommitMessage, got.MaxFileSize, got.Exclude, got.BranchPrefix}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %+v", layer, have)
		}
	}
	user := git.Config{"user.name": {"User"}}
	read("defaults", repository(t, "", user), some{true, "User", "git-checkpoint@localhost", "", 50 << 20, nil, "checkpoint/"})
	read("file", repository(t, file, user), some{false, "File", "file@x", "file {turn_id}", 1024, []string{"f1", "f 2"}, "file/"})
	read("git config", repository(t, file, inGit), some{true, "Git", "file@x", "git", 2048, []string{"g1", "g2"}, "git/"})
	repo := repository(t, file, inGit)
	for name, value := range map[string]string{
		"auto_checkpoint": "off", "branch_prefix": "env/", "commit.name": "Env", "commit.message": "", "snapshot.max_file_size": "3k", "snapshot.exclude": "e1 e2",
	} {
		t.Setenv(Variable(name), value)
	}
	read("environment", repo, some{false, "Env", "file@x", "git", 3072, []string{"e1", "e2"}, "env/"})
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ name, key, variable string }{
		{"auto_checkpoint", "checkpoint.autoCheckpoint", "GIT_CHECKPOINT_AUTO_CHECKPOINT"},
		{"snapshot.max_file_size", "checkpoint.snapshot.maxFileSize", "GIT_CHECKPOINT_SNAPSHOT_MAX_FILE_SIZE"},
		{"commit.name", "checkpoint.commit.name", "GIT_CHECKPOINT_COMMIT_NAME"},
	} {
		if GitKey(c.name) != c.key || Variable(c.name) != c.variable {
			t.Errorf("%s: %s, %s", c.name, GitKey(c.name), Variable(c.name))
		}
	}
	if got := listed("snapshot.max_file_size"); got != "checkpoint.snapshot.maxfilesize" {
		t.Errorf("listed: %s", got)
	}
}

// What a file that comes with a clone must not say, it cannot, whatever it is
// called.
func TestUntrackedKeys(t *testing.T) {
	saved := Keys
	defer func() { Keys = saved }()
	Keys = append(Keys[:len(Keys):len(Keys)], Key{Name: "send.to", to: func(c *Config) any { return &c.CommitMessage }})
	c, faults := Read(repository(t, "[send]\nto = 'evil'\n", git.Config{}))
	if len(faults) != 1 || faults[0].Error() != ".checkpoint.toml:2:1: 'send.to' cannot be set by a file that comes with the repository" || c.CommitMessage != "" {
		t.Errorf("%v, %q", faults, c.CommitMessage)
	}
	c, faults = Read(repository(t, "", git.Config{"checkpoint.send.to": {"mine"}}))
	if len(faults) != 0 || c.CommitMessage != "mine" {
		t.Errorf("%v, %q", faults, c.CommitMessage)
	}
}

func TestPrefixes(t *testing.T) {
	for prefix, good := range map[string]bool{
		"checkpoint/": true, "wip-": true, "a/b/": true, "": true,
		"a b/": false, "../": false, "/a": false, "-a": false, ".a": false, "a//": false, "a/.b": false, "a.lock/": false, "a@{": false, "a:b": false, `a\`: false,
	} {
		if err := checkPrefix(prefix); (err == nil) != good {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
