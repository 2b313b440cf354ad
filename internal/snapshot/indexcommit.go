package snapshot

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// The names in the tree of an index commit (docs/format.md).
const (
	entriesName   = "entries"   // stage 0, as a tree
	stagesName    = "stages"    // 1, 2 and 3, each a tree
	flagsName     = "flags"     // "<flag>[,<flag>…] <mode> <path>" NUL, sorted by path
	stateName     = "state"     // files of the operation under way
	operationName = "operation" // in state: "<kind> <identity>", for those of several steps
)

// The flags, by the names that git gives them.
const (
	flagIntentToAdd     = "intent-to-add"
	flagSkipWorktree    = "skip-worktree"
	flagAssumeUnchanged = "assume-unchanged"
	// flagAbsent goes with skip-worktree: the file was not on disk.
	flagAbsent = "absent"
)

// IndexState is an index together with the operation under way.
type IndexState struct {
	Index     *index.Index
	Operation *Operation
	// Absent are the entries with skip-worktree that have no file on disk.
	Absent map[string]bool
}

// State is the index state of a snapshot.
func (s *Snapshot) State(op *Operation) *IndexState {
	absent := map[string]bool{}
	for _, e := range s.Files.Entries {
		if e.SkipWorktree {
			absent[e.Path] = true
		}
	}
	return &IndexState{Index: s.User, Operation: op, Absent: absent}
}

// IndexTree returns the tree that holds all that is in an index beyond HEAD's
// tree, and the operation under way; empty where there is nothing beyond it.
func IndexTree(s *IndexState, headTree, objectFormat string, store object.Store) (string, error) {
	x, op := s.Index, s.Operation
	hashLen := 20
	if objectFormat == "sha256" {
		hashLen = 32
	}
	put := func(tree []byte) string { return store.Put(object.Tree, tree) }
	var flags strings.Builder
	var stages [4][]index.TreeEntry
	for _, e := range x.Entries {
		if names := flagNames(e, s.Absent[e.Path]); names != "" {
			fmt.Fprintf(&flags, "%s %o %s\x00", names, e.Mode, e.Path)
		}
		if !e.IntentToAdd {
			stages[e.Stage] = append(stages[e.Stage], index.TreeEntry{Mode: e.Mode, ID: e.ID, Path: e.Path})
		}
	}
	unmerged := len(stages[1])+len(stages[2])+len(stages[3]) > 0
	entries, err := index.BuildTrees(stages[0], x.Tree, hashLen, put)
	if err != nil {
		return "", fault.New(fault.Fatal, "index-unreadable", "store the index: %w", err)
	}
	if entries == headTree && flags.Len() == 0 && !unmerged && op.Kind == "" && len(op.Files) == 0 {
		return "", nil
	}
	root := []object.TreeEntry{{Mode: object.ModeTree, Name: entriesName, ID: entries}}
	if unmerged {
		var dirs []object.TreeEntry
		for stage := 1; stage <= 3; stage++ {
			if len(stages[stage]) == 0 {
				continue
			}
			id, err := index.BuildTrees(stages[stage], nil, hashLen, put)
			if err != nil {
				return "", fault.New(fault.Fatal, "index-unreadable", "store the conflicts of the index: %w", err)
			}
			dirs = append(dirs, object.TreeEntry{Mode: object.ModeTree, Name: strconv.Itoa(stage), ID: id})
		}
		root = append(root, object.TreeEntry{Mode: object.ModeTree, Name: stagesName, ID: put(object.EncodeTree(dirs))})
	}
	if flags.Len() > 0 {
		root = append(root, object.TreeEntry{Mode: object.ModeFile, Name: flagsName, ID: store.Put(object.Blob, []byte(flags.String()))})
	}
	var state []object.TreeEntry
	for _, name := range op.names() {
		state = append(state, object.TreeEntry{Mode: object.ModeFile, Name: name, ID: store.Put(object.Blob, op.Files[name])})
	}
	if op.Kind != "" && !op.Single {
		text := op.Kind + " " + op.Identity + "\n"
		state = append(state, object.TreeEntry{Mode: object.ModeFile, Name: operationName, ID: store.Put(object.Blob, []byte(text))})
	}
	if len(state) > 0 {
		root = append(root, object.TreeEntry{Mode: object.ModeTree, Name: stateName, ID: put(object.EncodeTree(state))})
	}
	return put(object.EncodeTree(root)), nil
}

func flagNames(e index.Entry, absent bool) string {
	var names []string
	if e.IntentToAdd {
		names = append(names, flagIntentToAdd)
	}
	if e.SkipWorktree {
		names = append(names, flagSkipWorktree)
		if absent {
			names = append(names, flagAbsent)
		}
	}
	if e.AssumeUnchanged {
		names = append(names, flagAssumeUnchanged)
	}
	return strings.Join(names, ",")
}

// emptyBlob is the id that git gives an intent-to-add entry.
func emptyBlob(objectFormat string) string { return object.ID(objectFormat, object.Blob, nil) }

// ReadIndexTree reads back what IndexTree stored: the entries of the index,
// without stat data, sorted, and the operation. An empty tree id means that
// the index is headTree.
func ReadIndexTree(ctx context.Context, repo *git.Repo, store object.Store, tree, headTree string) (*IndexState, error) {
	x := &index.Index{}
	s := &IndexState{Index: x, Operation: &Operation{}, Absent: map[string]bool{}}
	if tree == "" {
		entries, err := ListTree(ctx, repo, headTree)
		x.Entries = entries
		return s, err
	}
	root, err := readTree(ctx, repo, store, tree)
	if err != nil {
		return nil, err
	}
	var flags []byte
	for _, e := range root {
		switch e.Name {
		case entriesName:
			if x.Entries, err = ListTree(ctx, repo, e.ID); err != nil {
				return nil, err
			}
		case flagsName:
			if _, flags, err = store.Read(ctx, e.ID); err != nil {
				return nil, err
			}
		}
	}
	if err := applyFlags(s, flags, repo.ObjectFormat); err != nil {
		return nil, err
	}
	for _, e := range root {
		switch e.Name {
		case stagesName:
			if err := readStages(ctx, repo, store, e.ID, x); err != nil {
				return nil, err
			}
		case stateName:
			if s.Operation, err = readStateTree(ctx, repo, store, e.ID); err != nil {
				return nil, err
			}
		}
	}
	sort.SliceStable(x.Entries, func(i, j int) bool {
		a, b := &x.Entries[i], &x.Entries[j]
		return a.Path < b.Path || a.Path == b.Path && a.Stage < b.Stage
	})
	return s, nil
}

func readTree(ctx context.Context, repo *git.Repo, store object.Store, id string) ([]object.TreeEntry, error) {
	kind, data, err := store.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if kind != object.Tree {
		return nil, fault.New(fault.Integrity, "not-a-tree", "read tree %s: it is a %s", id, kind)
	}
	entries, err := object.ParseTree(data, repo.HashLen())
	if err != nil {
		return nil, fault.New(fault.Integrity, "tree-damaged", "read tree %s: %w", id, err)
	}
	return entries, nil
}

// ListTree lists the files of a tree, below its directories too, in the order
// of an index.
func ListTree(ctx context.Context, repo *git.Repo, tree string) ([]index.Entry, error) {
	if tree == "" || tree == object.EmptyTree(repo.ObjectFormat) {
		return nil, nil
	}
	list, err := repo.Command(ctx, "ls-tree", "-r", "-z", "--full-tree", tree).Lines()
	if err != nil {
		return nil, fault.New(fault.Integrity, "tree-damaged", "list the files of tree %s: %w", tree, err).
			WithHint("git fsck tells what is missing")
	}
	entries := make([]index.Entry, 0, len(list))
	for _, line := range list {
		meta, path, ok := strings.Cut(line, "\t")
		fields := strings.Fields(meta)
		if !ok || len(fields) != 3 {
			return nil, fault.New(fault.Integrity, "tree-damaged", "list the files of tree %s: git printed '%s'", tree, line)
		}
		mode, err := strconv.ParseUint(fields[0], 8, 32)
		if err != nil {
			return nil, fault.New(fault.Integrity, "tree-damaged", "list the files of tree %s: git printed '%s'", tree, line)
		}
		entries = append(entries, index.Entry{Mode: uint32(mode), ID: fields[2], Path: path})
	}
	// A directory sorts as if its name ended in '/' in a tree; by its path in
	// an index. The two differ only between files and directories, but they do.
	sort.Slice(entries, func(i, j int) bool { return entries[i].Path < entries[j].Path })
	return entries, nil
}

func applyFlags(s *IndexState, flags []byte, objectFormat string) error {
	x := s.Index
	at := make(map[string]int, len(x.Entries))
	for i := range x.Entries {
		at[x.Entries[i].Path] = i
	}
	for _, record := range strings.Split(strings.TrimSuffix(string(flags), "\x00"), "\x00") {
		if record == "" {
			continue
		}
		names, rest, _ := strings.Cut(record, " ")
		octal, path, ok := strings.Cut(rest, " ")
		mode, err := strconv.ParseUint(octal, 8, 32)
		if !ok || err != nil || path == "" {
			return fault.New(fault.Integrity, "index-commit-damaged", "read the flags of an index commit: '%s' is no record", record)
		}
		i, known := at[path]
		if !known {
			x.Entries = append(x.Entries, index.Entry{Mode: uint32(mode), ID: emptyBlob(objectFormat), Path: path})
			i = len(x.Entries) - 1
			if !strings.Contains(names, flagIntentToAdd) {
				return fault.New(fault.Integrity, "index-commit-damaged", "read the flags of an index commit: no entry '%s'", path)
			}
		}
		for _, name := range strings.Split(names, ",") {
			switch name {
			case flagIntentToAdd:
				x.Entries[i].IntentToAdd = true
			case flagSkipWorktree:
				x.Entries[i].SkipWorktree = true
			case flagAssumeUnchanged:
				x.Entries[i].AssumeUnchanged = true
			case flagAbsent:
				s.Absent[path] = true
			}
		}
	}
	return nil
}

func readStages(ctx context.Context, repo *git.Repo, store object.Store, tree string, x *index.Index) error {
	dirs, err := readTree(ctx, repo, store, tree)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		stage, err := strconv.Atoi(d.Name)
		if err != nil || stage < 1 || stage > 3 {
			continue
		}
		entries, err := ListTree(ctx, repo, d.ID)
		if err != nil {
			return err
		}
		for _, e := range entries {
			e.Stage = stage
			x.Entries = append(x.Entries, e)
		}
	}
	return nil
}

func readStateTree(ctx context.Context, repo *git.Repo, store object.Store, tree string) (*Operation, error) {
	files, err := readTree(ctx, repo, store, tree)
	if err != nil {
		return nil, err
	}
	op := &Operation{Files: map[string][]byte{}}
	for _, f := range files {
		_, data, err := store.Read(ctx, f.ID)
		if err != nil {
			return nil, err
		}
		switch f.Name {
		case operationName:
			op.Kind, op.Identity, _ = strings.Cut(strings.TrimSpace(string(data)), " ")
		case "MERGE_HEAD":
			op.Kind, op.Single = Merge, true
		case "CHERRY_PICK_HEAD":
			op.Kind, op.Single = CherryPick, true
		case "REVERT_HEAD":
			op.Kind, op.Single = Revert, true
		}
		if f.Name != operationName && knownState(f.Name) {
			op.Files[f.Name] = data
		}
	}
	return op, nil
}

// knownState keeps a tree from naming any other file of the git directory.
func knownState(name string) bool {
	for _, known := range stateFiles {
		if name == known {
			return true
		}
	}
	return false
}
