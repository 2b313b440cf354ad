package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Key is one setting: how it is called, what it is for, and where its value
// goes. Its default is what defaults returns.
type Key struct {
	Name string // as in .checkpoint.toml
	Help string
	// Tracked says that .checkpoint.toml may set it. A file that comes with a
	// clone must make nothing run and send nothing.
	Tracked bool
	// Strictest lists the values from the strictest on, where .checkpoint.toml
	// may only tighten what holds otherwise.
	Strictest []string

	to    func(*Config) any  // *bool, *string, *int64 (a size) or *[]string
	check func(string) error // of a text; may be nil
}

// Keys are all settings, in the order in which they are listed. Another one is
// an entry here and a field of Config, and something that reads it.
var Keys = []Key{
	{
		Name: "auto_checkpoint", Tracked: true,
		Help: "whether hooks and git checkpoint react do anything",
		to:   func(c *Config) any { return &c.AutoCheckpoint },
	},
	{
		Name: "commit.name", Tracked: true,
		Help: "who signs checkpoints; user.name unless set",
		to:   func(c *Config) any { return &c.CommitName },
	},
	{
		Name: "commit.email", Tracked: true,
		Help: "the address of who signs checkpoints; user.email unless set",
		to:   func(c *Config) any { return &c.CommitEmail },
	},
	{
		Name: "commit.message", Tracked: true,
		Help: "the subject of checkpoints without a message; {turn_id}, {session_id}, {run}, {step_name}, {step_kind} and {number} stand for the checkpoint's",
		to:   func(c *Config) any { return &c.CommitMessage },
	},
	{
		Name: "snapshot.max_file_size", Tracked: true,
		Help: "untracked files above this size are skipped: bytes, or a number with k, m or g; 0: no limit",
		to:   func(c *Config) any { return &c.MaxFileSize },
	},
	{
		Name: "snapshot.exclude", Tracked: true,
		Help: "untracked files to leave out, as patterns of gitignore",
		to:   func(c *Config) any { return &c.Exclude },
	},
	{
		Name: "branch_prefix", Tracked: true,
		Help:  "how the branches begin that rewind and switch make",
		to:    func(c *Config) any { return &c.BranchPrefix },
		check: checkPrefix,
	},
	{
		Name: "worktree_dir",
		Help: "where the tasks of plans get their worktrees; the user's cache directory unless set",
		to:   func(c *Config) any { return &c.WorktreeDir },
	},
	{
		Name: "push.auto",
		Help: "whether git push shares checkpoints too, by the hook pre-push",
		to:   func(c *Config) any { return &c.PushAuto },
	},
	{
		Name: "push.remote",
		Help: "the remote or URL that checkpoints are shared with; where the branch is pushed unless set",
		to:   func(c *Config) any { return &c.PushRemote },
	},
	{
		Name: "push.secrets", Tracked: true, Strictest: []string{"block", "warn", "off"},
		Help: "what happens when a push would publish a secret: block, warn or off; .checkpoint.toml can only tighten it",
		to:   func(c *Config) any { return &c.PushSecrets },
		check: func(v string) error {
			if v != "block" && v != "warn" && v != "off" {
				return fmt.Errorf("'%s' is none of block, warn and off", v)
			}
			return nil
		},
	},
	{
		Name: "retention.require_pushed", Tracked: true,
		Help: "whether git checkpoint prune drops only runs that a remote has",
		to:   func(c *Config) any { return &c.RequirePushed },
	},
	{
		Name: "retention.rollover", Tracked: true,
		Help: "after so many checkpoints a session goes on in a new run, so that the old one can be pruned; 0: never",
		to:   func(c *Config) any { return &c.Rollover },
	},
}

// defaults are the settings of somebody who has set nothing.
func defaults(repo *git.Repo) *Config {
	return &Config{
		AutoCheckpoint: true,
		CommitName:     first(repo, "git-checkpoint", "user.name"),
		CommitEmail:    first(repo, "git-checkpoint@localhost", "user.email"),
		MaxFileSize:    DefaultMaxFileSize,
		BranchPrefix:   "checkpoint/",
		WorktreeDir:    cacheDir(),
		PushSecrets:    "block",
		Rollover:       2000,
	}
}

// cacheDir is where worktrees of tasks go unless somebody says otherwise.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "git-checkpoint")
}

// GitKey is how a setting is called in git config: snapshot.max_file_size is
// checkpoint.snapshot.maxFileSize.
func GitKey(name string) string {
	parts := strings.Split(name, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return "checkpoint." + strings.Join(parts, "")
}

// listed is the key as git lists it: it folds the case of a section's and a
// variable's name, not of what is between.
func listed(name string) string {
	key := GitKey(name)
	i := strings.LastIndexByte(key, '.')
	return key[:i] + strings.ToLower(key[i:])
}

// Variable is how a setting is called in the environment:
// GIT_CHECKPOINT_SNAPSHOT_MAX_FILE_SIZE.
func Variable(name string) string {
	return "GIT_CHECKPOINT_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// setText sets the value from texts, of which a key of one value takes the
// last. set is false where an empty text means that nothing is said.
func (k *Key) setText(c *Config, texts []string) (set bool, err error) {
	last := texts[len(texts)-1]
	switch to := k.to(c).(type) {
	case *bool:
		v, err := git.ParseBool(last)
		if err != nil {
			return false, fmt.Errorf("'%s' is neither true nor false", last)
		}
		*to = v
	case *int64:
		v, err := ParseSize(last)
		if err != nil {
			return false, err
		}
		*to = v
	case *string:
		if last == "" {
			return false, nil
		}
		if err := k.checkText(last); err != nil {
			return false, err
		}
		*to = last
	case *[]string:
		var list []string
		for _, t := range texts {
			if t == "" {
				list = nil // as git's own lists: what came before is dropped
			} else if err := k.checkText(t); err != nil {
				return false, err
			} else {
				list = append(list, t)
			}
		}
		*to = list
	}
	return true, nil
}

// setValue sets the value from what a TOML file says.
func (k *Key) setValue(c *Config, value any) (set bool, err error) {
	wrong := func(want string) (bool, error) {
		return false, fmt.Errorf("it must be %s, and is %s", want, typeName(value))
	}
	switch to := k.to(c).(type) {
	case *bool:
		v, ok := value.(bool)
		if !ok {
			return wrong("true or false")
		}
		*to = v
		return true, nil
	case *int64:
		switch v := value.(type) {
		case int64:
			return k.setText(c, []string{strconv.FormatInt(v, 10)})
		case string:
			return k.setText(c, []string{v})
		}
		return wrong("a size: a number of bytes, or a string such as \"50m\"")
	case *string:
		v, ok := value.(string)
		if !ok {
			return wrong("a string")
		}
		return k.setText(c, []string{v})
	case *[]string:
		list, ok := value.([]any)
		if !ok {
			return wrong("an array of strings")
		}
		texts := []string{""}
		for _, item := range list {
			v, ok := item.(string)
			if !ok {
				return false, fmt.Errorf("it must be an array of strings, and holds %s", typeName(item))
			}
			texts = append(texts, v)
		}
		return k.setText(c, texts)
	}
	return false, nil
}

func typeName(value any) string {
	switch value.(type) {
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	}
	return "a date or time"
}

// checkText refuses what would end a line of a commit's header or message.
func (k *Key) checkText(text string) error {
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("it holds a control character")
		}
	}
	if k.check != nil {
		return k.check(text)
	}
	return nil
}

// checkPrefix refuses what no branch can begin with (git check-ref-format).
func checkPrefix(prefix string) error {
	bad := strings.ContainsAny(prefix, " ~^:?*[\\") || strings.Contains(prefix, "..") || strings.Contains(prefix, "@{") ||
		strings.Contains(prefix, "//") || strings.Contains(prefix, "/.") || strings.Contains(prefix, ".lock/") ||
		strings.HasPrefix(prefix, "/") || strings.HasPrefix(prefix, "-") || strings.HasPrefix(prefix, ".")
	if bad {
		return fmt.Errorf("no branch can begin with '%s'", prefix)
	}
	return nil
}

// ParseSize reads a size as git does: bytes, or with k, m or g.
func ParseSize(v string) (int64, error) {
	number, unit := strings.TrimSpace(v), int64(1)
	if number != "" {
		switch number[len(number)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
	}
	if unit > 1 {
		number = number[:len(number)-1]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("'%s' is no size; write bytes, or a number with k, m or g", v)
	}
	return n * unit, nil
}
