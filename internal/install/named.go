package install

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Hooks by configuration: hook.<name>.event and hook.<name>.command, which git
// runs before the hook in the folder, whoever writes that.

// knowsHooksByName says whether git is 2.54 or newer.
func knowsHooksByName(ctx context.Context, repo *git.Repo) (bool, error) {
	out, err := repo.Command(ctx, "version").Text()
	if err != nil {
		return false, fault.New(fault.Fatal, "git", "ask git for its version: %w", err)
	}
	fields := strings.Fields(out)
	if len(fields) < 3 {
		return false, nil
	}
	parts := strings.Split(fields[2]+".0", ".")
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return major > 2 || major == 2 && minor >= 54, nil
}

func sectionName(hook string) string { return "hook.checkpoint-" + hook }

// The command is one line for sh, to which git adds the hook's arguments.
const (
	commandBegin = "checkpoint() { "
	commandEnd   = "; }; checkpoint"
)

func command(hook, program string) string {
	nothing := " </dev/null"
	if hook == "pre-push" {
		nothing = "" // it reads what is pushed
	}
	return commandBegin +
		`case ${GIT_CHECKPOINT_SKIP:-0} in 0|false|no|off) ;; *) return 0;; esac; ` +
		`c=` + quote(program) + `; [ -x "$c" ] || c=$(command -v git-checkpoint); ` +
		`if [ -n "$c" ]; then "$c" hook ` + hook + ` -- "$@"` + nothing + ` || :; ` +
		`else echo 'warning: no checkpoint: git-checkpoint is not found (git config ` + sectionName(hook) + `)' >&2; fi` +
		commandEnd
}

// section is one hook in the repository's own configuration.
type section struct {
	there   bool
	ours    bool // as we write it, for whatever place of the program
	command string
}

func (i *installer) section(ctx context.Context, hook string) (section, error) {
	name := sectionName(hook)
	out, err := plain(ctx, i.repo, "config", "--local", "-z", "--get-regexp", `^hook\.checkpoint-`+hook+`\.`).Lines()
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return section{}, nil
	}
	if err != nil {
		return section{}, fault.New(fault.Fatal, "git-config", "read %s: %w", name, err)
	}
	s := section{there: true, ours: len(out) == 2}
	for _, item := range out {
		key, value, _ := strings.Cut(item, "\n")
		switch strings.TrimPrefix(key, name+".") {
		case "command":
			s.command = value
			s.ours = s.ours && strings.HasPrefix(value, commandBegin) && strings.HasSuffix(value, commandEnd)
		case "event":
			s.ours = s.ours && value == hook
		default:
			s.ours = false
		}
	}
	return s, nil
}

func (i *installer) configure(ctx context.Context, hook, program string) (Result, error) {
	r := Result{State: Installed, Config: sectionName(hook)}
	s, err := i.section(ctx, hook)
	switch want := command(hook, program); {
	case err != nil:
		return Result{}, err
	case s.there && !s.ours:
		r.State, r.Reason = Blocked, "it is ours, and somebody has changed it"
		return r, nil
	case s.command == want:
		r.State = Unchanged
		return r, nil
	case s.there:
		r.State = Updated
	}
	if r.State == Installed {
		// What a hook that is there calls already would be called twice.
		if there, err := readHook(i.folder.file(hook)); err == nil && there.calls(hook) {
			return Result{State: Present, Path: i.folder.file(hook)}, nil
		}
		if m := i.folder.managerOf(i.repo, hook, nil); m != nil && m.present(hook) {
			return m.result(hook), nil
		}
	}
	if i.dryRun {
		return r, nil
	}
	// The command first: an event without one is an error to git.
	for _, pair := range [][2]string{{"command", command(hook, program)}, {"event", hook}} {
		if err := plain(ctx, i.repo, "config", "--local", sectionName(hook)+"."+pair[0], pair[1]).Run(); err != nil {
			return Result{}, fault.New(fault.Fatal, "git-config", "set %s: %w", sectionName(hook), err)
		}
	}
	return r, nil
}

func (i *installer) unconfigure(ctx context.Context, hook string) (Result, error) {
	r := Result{State: Removed, Config: sectionName(hook)}
	s, err := i.section(ctx, hook)
	switch {
	case err != nil:
		return Result{}, err
	case !s.there:
		return Result{State: Absent}, nil
	case !s.ours:
		r.State, r.Reason = Left, "it is ours, and somebody has changed it"
		return r, nil
	case i.dryRun:
		return r, nil
	}
	return r, i.removeSection(ctx, hook)
}

func (i *installer) removeSection(ctx context.Context, hook string) error {
	if err := plain(ctx, i.repo, "config", "--local", "--remove-section", sectionName(hook)).Run(); err != nil {
		return fault.New(fault.Fatal, "git-config", "remove %s: %w", sectionName(hook), err)
	}
	return nil
}
