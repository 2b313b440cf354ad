package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// The operations that git can be in the middle of.
const (
	Merge      = "merge"
	CherryPick = "cherry-pick"
	Revert     = "revert"
	Rebase     = "rebase"
	Am         = "am"
	Bisect     = "bisect"
	Sequence   = "sequence" // a cherry-pick or revert of several commits
)

// Operation is what git is in the middle of, as the files of the worktree's
// git directory tell.
type Operation struct {
	Kind string // empty: nothing
	// Single says that it is one step, whose state is saved and restored
	// whole. The others are several steps, and only recognised.
	Single bool
	// Identity tells one rebase, am, bisect or sequence from another.
	Identity string
	// Files are the state of a single step, by name.
	Files map[string][]byte
	// Commits are those that the state names; they are kept alive.
	Commits []string
}

// stateFiles are those of a single step. The first of a kind marks it.
var stateFiles = []string{"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_RR", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_AUTOSTASH"}

// pseudoRefs are those state files that git keeps as refs; in a reftable
// repository they are no files.
var pseudoRefs = map[string]bool{"CHERRY_PICK_HEAD": true, "REVERT_HEAD": true, "MERGE_AUTOSTASH": true}

// ReadOperation looks for an operation under way.
func ReadOperation(ctx context.Context, repo *git.Repo) (*Operation, error) {
	op := &Operation{Files: map[string][]byte{}}
	for _, name := range stateFiles {
		data, err := readState(ctx, repo, name)
		if err != nil {
			return nil, err
		}
		if data != nil {
			op.Files[name] = data
		}
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(repo.Dir, filepath.FromSlash(name)))
		return err == nil
	}
	switch {
	case exists("rebase-merge"):
		op.Kind = Rebase
		op.Identity = identity(repo, "rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/head-name")
	case exists("rebase-apply/applying"):
		op.Kind = Am
		op.Identity = identity(repo, "rebase-apply/last", "rebase-apply/0001", "rebase-apply/abort-safety")
	case exists("rebase-apply"):
		op.Kind = Rebase
		op.Identity = identity(repo, "rebase-apply/onto", "rebase-apply/orig-head", "rebase-apply/head-name")
	case exists("sequencer"):
		op.Kind = Sequence
		op.Identity = identity(repo, "sequencer/head", "sequencer/opts", "sequencer/abort-safety")
	case op.Files["MERGE_HEAD"] != nil:
		op.Kind, op.Single = Merge, true
	case op.Files["CHERRY_PICK_HEAD"] != nil:
		op.Kind, op.Single = CherryPick, true
	case op.Files["REVERT_HEAD"] != nil:
		op.Kind, op.Single = Revert, true
	case exists("BISECT_LOG"):
		op.Kind = Bisect
		op.Identity = identity(repo, "BISECT_START", "BISECT_NAMES")
	}
	if !op.Single && op.Kind != "" {
		op.Files = nil
		return op, nil
	}
	if op.Kind == "" && op.Files["SQUASH_MSG"] == nil && op.Files["MERGE_MSG"] == nil {
		op.Files = nil
		return op, nil
	}
	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_AUTOSTASH"} {
		for _, line := range strings.Fields(string(op.Files[name])) {
			if object.IsID(line) {
				op.Commits = append(op.Commits, line)
			}
		}
	}
	return op, nil
}

func readState(ctx context.Context, repo *git.Repo, name string) ([]byte, error) {
	if pseudoRefs[name] && repo.RefFormat() != "files" {
		id, err := repo.Command(ctx, "rev-parse", "--verify", "--quiet", name).Text()
		if err != nil || id == "" {
			return nil, nil
		}
		return []byte(id + "\n"), nil
	}
	data, err := os.ReadFile(filepath.Join(repo.Dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "read the state of the operation under way: %w", err)
	}
	return data, nil
}

// identity is a digest over files that stay the same during an operation.
func identity(repo *git.Repo, names ...string) string {
	h := sha256.New()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(repo.Dir, filepath.FromSlash(name)))
		fmt.Fprintf(h, "%s %v %q\n", name, err == nil, data)
	}
	return hex.EncodeToString(h.Sum(nil))[:40]
}

// WriteState makes the single-step state of the worktree's git directory
// equal to op's. Pseudo-refs are left to the caller's ref transaction: they
// are returned, with an empty value for those to delete.
func WriteState(repo *git.Repo, op *Operation) (pseudo map[string]string, err error) {
	pseudo = map[string]string{}
	for _, name := range stateFiles {
		data, want := op.Files[name]
		if pseudoRefs[name] {
			pseudo[name] = strings.TrimSpace(string(data))
			continue
		}
		file := filepath.Join(repo.Dir, name)
		if !want {
			switch err := os.Remove(file); {
			case err == nil:
				git.Step("state file removed")
			case !errors.Is(err, os.ErrNotExist):
				return nil, fault.New(fault.Fatal, "io", "remove '%s': %w", file, err)
			}
			continue
		}
		// The temporary file is where the next command removes it after a kill.
		temporary := filepath.Join(repo.Dir, "checkpoint", fmt.Sprintf("stage-state.%d", os.Getpid()))
		if err := replaceFile(temporary, file, data); err != nil {
			return nil, fault.New(fault.Fatal, "io", "write '%s': %w", file, err)
		}
	}
	// What merge machinery made of the state that is gone.
	if os.Remove(filepath.Join(repo.Dir, "AUTO_MERGE")) == nil {
		git.Step("state file removed")
	}
	return pseudo, nil
}

// names lists the state files in order.
func (op *Operation) names() []string {
	var names []string
	for name := range op.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
