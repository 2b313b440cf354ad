package worktree

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// The operations that restore files.
const (
	opRestore  = "restore"
	opSwitch   = "switch"
	opUndo     = "undo"
	opRedo     = "redo"
	opRollback = "rollback" // undo of an operation that did not come to its end
)

// operation is one change of the working tree: what it goes to and where it
// came from. It is kept as a commit, under "restoring" while it is under way
// and under "undo" or "redo" afterwards: its parents are the safety commit,
// the target, and half-done states; its tree holds operation.json, lists of
// paths with a NUL after each, and under
// "raw" and "target-raw" exact bytes that belong to the safety commit and to
// the target.
type operation struct {
	Kind       string    `json:"kind"`
	At         time.Time `json:"at"`
	Target     string    `json:"target"`
	Safety     string    `json:"safety"`
	Before     point     `json:"before"`
	After      point     `json:"after"`
	Created    string    `json:"created,omitempty"`     // a branch that was made
	HalfDone   []string  `json:"half_done,omitempty"`   // safety commits of attempts that were killed
	RolledBack string    `json:"rolled_back,omitempty"` // the target of the killed operation that this takes back
	Undoes     string    `json:"undoes,omitempty"`      // the undo or redo ref that this takes back
	Reverses   string    `json:"reverses,omitempty"`    // the target of the finished operation that this takes back
	MovesHead  bool      `json:"moves_head,omitempty"`  // HEAD or the current run are part of it
	Rewound    *rewound  `json:"rewound,omitempty"`     // a run was made and its source archived with it

	// Paths may hold any byte, which JSON cannot: each list is a file of its own.
	Paths   []string `json:"-"` // of a partial restore, from the top
	wrote   []string // what the operation that this takes back was limited to
	skipped []string // what the safety commit did not take
	leave   []string // what the target did not take, where it is a safety commit

	commit    string
	raw       map[string]string
	targetRaw map[string]string
	halfRaw   map[string]string // of the newest half-done state; kept for whoever looks for it
}

// point is where HEAD and the current run are.
type point struct {
	Branch string `json:"branch,omitempty"` // full name; empty: detached
	Head   string `json:"head,omitempty"`   // empty: unborn
	Run    string `json:"run,omitempty"`
}

func (w *Worktree) point0(ctx context.Context) (point, error) {
	head, err := w.repo.Head(ctx)
	if err != nil {
		return point{}, err
	}
	run, err := w.repo.CurrentRun(ctx)
	return point{Branch: head.Branch, Head: head.Commit, Run: run}, err
}

const operationFile = "operation.json"

// lists are the paths of an operation, by the names of the files that hold them.
func (op *operation) lists() map[string]*[]string {
	return map[string]*[]string{"paths": &op.Paths, "wrote": &op.wrote, "skipped": &op.skipped, "leave": &op.leave}
}

// put makes the operation's commit.
func (w *Worktree) put(op *operation, by refs.Identity) error {
	data, err := json.MarshalIndent(op, "", "  ")
	if err != nil {
		return err
	}
	store := w.repo.Objects()
	root := []object.TreeEntry{{Mode: object.ModeFile, Name: operationFile, ID: store.Put(object.Blob, append(data, '\n'))}}
	for name, list := range op.lists() {
		if len(*list) > 0 {
			data := []byte(strings.Join(*list, "\x00") + "\x00")
			root = append(root, object.TreeEntry{Mode: object.ModeFile, Name: name, ID: store.Put(object.Blob, data)})
		}
	}
	for name, raw := range map[string]map[string]string{"raw": op.raw, "target-raw": op.targetRaw, "half-done-raw": op.halfRaw} {
		if len(raw) == 0 {
			continue
		}
		tree, err := w.putRaw(raw)
		if err != nil {
			return err
		}
		root = append(root, object.TreeEntry{Mode: object.ModeTree, Name: name, ID: tree})
	}
	parents := append([]string{op.Safety, op.Target}, op.HalfDone...)
	op.commit = w.repo.PutCommit(store.Put(object.Tree, object.EncodeTree(root)), parents, "operation: "+op.Kind+"\n", by)
	return nil
}

func (w *Worktree) putRaw(raw map[string]string) (string, error) {
	var entries []index.TreeEntry
	for p, id := range raw {
		entries = append(entries, index.TreeEntry{Mode: index.ModeFile, ID: id, Path: p})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Path < entries[j].Path })
	return index.BuildTrees(entries, nil, w.git.HashLen(), func(tree []byte) string {
		return w.repo.Objects().Put(object.Tree, tree)
	})
}

// readOperation reads what put made.
func (w *Worktree) readOperation(ctx context.Context, commit string) (*operation, error) {
	damaged := func(err error) error {
		return fault.New(fault.Integrity, "operation-damaged", "read operation %s: %w", commit, err).
			WithHint("git checkpoint verify lists what is damaged")
	}
	tree, err := w.repo.CommitTree(ctx, commit)
	if err != nil {
		return nil, err
	}
	_, data, err := w.repo.Objects().Read(ctx, tree)
	if err != nil {
		return nil, err
	}
	entries, err := object.ParseTree(data, w.git.HashLen())
	if err != nil {
		return nil, damaged(err)
	}
	op := &operation{commit: commit}
	for _, e := range entries {
		if list := op.lists()[e.Name]; list != nil {
			_, data, err := w.repo.Objects().Read(ctx, e.ID)
			if err != nil {
				return nil, err
			}
			*list = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
			continue
		}
		switch e.Name {
		case operationFile:
			_, data, err := w.repo.Objects().Read(ctx, e.ID)
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal(data, op); err != nil {
				return nil, damaged(err)
			}
		case "raw", "target-raw":
			list, err := snapshot.ListTree(ctx, w.git, e.ID)
			if err != nil {
				return nil, err
			}
			raw := make(map[string]string, len(list))
			for _, f := range list {
				raw[f.Path] = f.ID
			}
			if e.Name == "raw" {
				op.raw = raw
			} else {
				op.targetRaw = raw
			}
		}
	}
	if !object.IsID(op.Target) || !object.IsID(op.Safety) {
		return nil, damaged(fmt.Errorf("it names no target or no safety checkpoint"))
	}
	return op, nil
}

// numbered is a local ref with a number, such as undo/000003.
type numbered struct {
	ref    string
	commit string
	number int
}

// stack lists the refs below a local name, by number.
func (w *Worktree) stack(ctx context.Context, name string) ([]numbered, error) {
	if w.id == "" {
		return nil, nil
	}
	prefix := w.localRef(name)
	below, err := w.repo.Below(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var list []numbered
	for _, r := range below {
		n := 0
		if _, err := fmt.Sscanf(path.Base(r.Name), "%d", &n); err == nil {
			list = append(list, numbered{r.Name, r.ID, n})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].number < list[j].number })
	return list, nil
}

// next is the ref that goes on top of a stack.
func (w *Worktree) next(name string, list []numbered) string {
	n := 1
	if len(list) > 0 {
		n = list[len(list)-1].number + 1
	}
	return w.localRef(fmt.Sprintf("%s%06d", name, n))
}

// inProgress reads the operation that was killed before its end, nil if none.
func (w *Worktree) inProgress(ctx context.Context) (*operation, error) {
	if w.id == "" {
		return nil, nil
	}
	commit, err := w.repo.Ref(ctx, w.localRef(restoringName))
	if err != nil || commit == "" {
		return nil, err
	}
	return w.readOperation(ctx, commit)
}

// refuseInProgress refuses to work on files that are half restored.
func (w *Worktree) refuseInProgress(ctx context.Context) error {
	op, err := w.inProgress(ctx)
	if err != nil || op == nil {
		return err
	}
	return fault.New(fault.Conflict, "restore-in-progress", "a %s is unfinished: the files are partly those of %.12s", op.Kind, op.Target).
		WithHint("git checkpoint restore --continue finishes it, git checkpoint undo takes it back")
}
