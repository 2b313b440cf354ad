package snapshot

import (
	"context"
	"fmt"
	"slices"
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

// state is the index state of a snapshot.
func (s *Snapshot) state(op *Operation) (*IndexState, error) {
	absent := map[string]bool{}
	for _, e := range s.Files.Entries {
		if e.SkipWorktree {
			absent[e.Path] = true
		}
	}
	x, err := s.User()
	return &IndexState{Index: x, Operation: op, Absent: absent}, err
}

// entriesTree is the tree of an index that has nothing but entries.
func entriesTree(entries string) []byte {
	return object.EncodeTree([]object.TreeEntry{{Mode: object.ModeTree, Name: entriesName, ID: entries}})
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
	staged, unmerged := 0, false
	for i := range x.Entries {
		e := &x.Entries[i]
		if e.IntentToAdd || e.SkipWorktree || e.AssumeUnchanged {
			fmt.Fprintf(&flags, "%s %o %s\x00", flagNames(*e, s.Absent[e.Path]), e.Mode, e.Path)
		}
		switch {
		case e.IntentToAdd:
		case e.Stage == 0:
			staged++
		default:
			unmerged = true
		}
	}
	var entries string
	var stages [4][]index.TreeEntry
	if x.Tree != nil && staged > 0 && x.Tree.EntryCount == staged && staged == len(x.Entries) {
		entries = x.Tree.ID // git, or we, made the tree when the index was written
	} else {
		stages[0] = make([]index.TreeEntry, 0, staged)
		for i := range x.Entries {
			if e := &x.Entries[i]; !e.IntentToAdd {
				stages[e.Stage] = append(stages[e.Stage], index.TreeEntry{Mode: e.Mode, ID: e.ID, Path: e.Path})
			}
		}
		var err error
		if entries, err = index.BuildTrees(stages[0], x.Tree, hashLen, put); err != nil {
			return "", fault.New(fault.Fatal, "index-unreadable", "store the index: %w", err)
		}
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

// StoredIndex is what IndexTree stored, but for the entries at stage 0, which
// are a tree of their own.
type StoredIndex struct {
	Entries   string // their tree
	Operation *Operation

	flags  []flagged
	stages []index.Entry
}

// flagged is an entry with flags, as an index commit holds it.
type flagged struct {
	names string
	mode  uint32
	path  string
}

// OpenIndexTree reads what IndexTree stored. An empty tree id means that the
// index is headTree.
func OpenIndexTree(ctx context.Context, repo *git.Repo, store object.Store, tree, headTree string) (*StoredIndex, error) {
	s := &StoredIndex{Entries: headTree, Operation: &Operation{}}
	if tree == "" {
		return s, nil
	}
	root, err := readTree(ctx, repo, store, tree)
	if err != nil {
		return nil, err
	}
	for _, e := range root {
		switch e.Name {
		case entriesName:
			s.Entries = e.ID
		case flagsName:
			_, data, err := store.Read(ctx, e.ID)
			if err != nil {
				return nil, err
			}
			if s.flags, err = parseFlags(data); err != nil {
				return nil, err
			}
		case stagesName:
			if s.stages, err = readStages(ctx, repo, store, e.ID); err != nil {
				return nil, err
			}
		case stateName:
			if s.Operation, err = readStateTree(ctx, repo, store, e.ID); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// Plain says whether the index is nothing but Entries: no flags, no conflicts.
func (s *StoredIndex) Plain() bool { return len(s.flags)+len(s.stages) == 0 }

// Beyond lists the paths that the index has an entry for other than in Entries.
func (s *StoredIndex) Beyond() []string {
	var paths []string
	for _, f := range s.flags {
		if strings.Contains(f.names, flagIntentToAdd) {
			paths = append(paths, f.path)
		}
	}
	for _, e := range s.stages {
		paths = append(paths, e.Path)
	}
	return paths
}

// Absent are the entries with skip-worktree that had no file on disk.
func (s *StoredIndex) Absent() map[string]bool {
	absent := map[string]bool{}
	for _, f := range s.flags {
		if slices.Contains(strings.Split(f.names, ","), flagAbsent) {
			absent[f.path] = true
		}
	}
	return absent
}

// State is the whole index, sorted, without stat data. entries are those of
// the tree Entries, sorted; they are taken over.
func (s *StoredIndex) State(entries []index.Entry, objectFormat string) (*IndexState, error) {
	state := &IndexState{Index: &index.Index{Entries: entries}, Operation: s.Operation, Absent: s.Absent()}
	if s.Plain() {
		return state, nil
	}
	x := state.Index
	tracked := len(entries)
	for _, f := range s.flags {
		e, known := (&index.Index{Entries: x.Entries[:tracked]}).Lookup(f.path, 0)
		intent := strings.Contains(f.names, flagIntentToAdd)
		if !known {
			if !intent {
				return nil, fault.New(fault.Integrity, "index-commit-damaged", "read the flags of an index commit: no entry '%s'", f.path)
			}
			x.Entries = append(x.Entries, index.Entry{Mode: f.mode, ID: emptyBlob(objectFormat), Path: f.path})
			e = &x.Entries[len(x.Entries)-1]
		}
		for _, name := range strings.Split(f.names, ",") {
			switch name {
			case flagIntentToAdd:
				e.IntentToAdd = true
			case flagSkipWorktree:
				e.SkipWorktree = true
			case flagAssumeUnchanged:
				e.AssumeUnchanged = true
			}
		}
	}
	x.Entries = append(x.Entries, s.stages...)
	sort.SliceStable(x.Entries, func(i, j int) bool {
		a, b := &x.Entries[i], &x.Entries[j]
		return a.Path < b.Path || a.Path == b.Path && a.Stage < b.Stage
	})
	return state, nil
}

// ReadIndexTree is OpenIndexTree with the entries listed.
func ReadIndexTree(ctx context.Context, repo *git.Repo, store object.Store, tree, headTree string) (*IndexState, error) {
	s, err := OpenIndexTree(ctx, repo, store, tree, headTree)
	if err != nil {
		return nil, err
	}
	entries, err := ListTree(ctx, repo, s.Entries)
	if err != nil {
		return nil, err
	}
	return s.State(entries, repo.ObjectFormat)
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

func parseFlags(data []byte) ([]flagged, error) {
	var list []flagged
	for _, record := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		if record == "" {
			continue
		}
		names, rest, _ := strings.Cut(record, " ")
		octal, path, ok := strings.Cut(rest, " ")
		mode, err := strconv.ParseUint(octal, 8, 32)
		if !ok || err != nil || path == "" {
			return nil, fault.New(fault.Integrity, "index-commit-damaged", "read the flags of an index commit: '%s' is no record", record)
		}
		list = append(list, flagged{names, uint32(mode), path})
	}
	return list, nil
}

func readStages(ctx context.Context, repo *git.Repo, store object.Store, tree string) ([]index.Entry, error) {
	dirs, err := readTree(ctx, repo, store, tree)
	if err != nil {
		return nil, err
	}
	var list []index.Entry
	for _, d := range dirs {
		stage, err := strconv.Atoi(d.Name)
		if err != nil || stage < 1 || stage > 3 {
			continue
		}
		entries, err := ListTree(ctx, repo, d.ID)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			e.Stage = stage
			list = append(list, e)
		}
	}
	return list, nil
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
