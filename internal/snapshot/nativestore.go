package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/attributes"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/pages"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
)

// emptyBlobID is the id of a file without content.
var emptyBlobID = mustID("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")

// whole is how much of a file is read at once to look for line endings.
const whole = 8 << 20

// check makes sure of the private index before its ids go into new trees. With
// no change its tree is what counts, and that is written down elsewhere.
func (t *native) check() error {
	if !t.cached || len(t.changes) == 0 && !t.o.Exact && hex.EncodeToString(t.base.Root()) == t.found.Tree {
		return nil
	}
	if err := t.base.Check(); err != nil {
		return asidef("the private index: %v", err)
	}
	return nil
}

// store stores the content of what changed.
func (t *native) store(ctx context.Context) error {
	var todo []*change
	for i := range t.changes {
		c := &t.changes[i]
		if !c.Drop && c.base < 0 && c.user == -1 && !plainName(c.Path) {
			if c.hash == kindUnknown {
				return asidef("'%s' has a name that git may refuse", c.Path)
			}
			c.byGit = true
		}
		if c.hash != kindUnknown && !c.byGit {
			todo = append(todo, c)
		}
	}
	if err := t.storeAll(ctx, todo); err != nil {
		return err
	}
	if err := t.storeByGit(ctx); err != nil {
		return err
	}
	t.changes = slices.DeleteFunc(t.changes, func(c change) bool {
		if c.unreadable {
			t.unsettle(c.Path)
			t.out.Skipped = append(t.out.Skipped, Skip{c.Path, ReasonUnreadable})
		}
		return c.keep || c.Drop && c.base < 0
	})
	return nil
}

// plainName says whether git is certain to take a path: nothing in it looks
// like ".git" to any file system (verify_path in git's read-cache.c).
func plainName(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		lower := strings.ToLower(part)
		switch {
		case strings.HasPrefix(lower, ".git"):
			if rest := lower[4:]; rest == "" || rest[0] < 'a' || rest[0] > 'z' || strings.HasPrefix(rest, "modules") {
				return false
			}
		case strings.HasPrefix(lower, "git~"), strings.HasPrefix(lower, "gi7eba~"):
			return false
		case strings.Contains(part, `\`):
			return false
		default:
			// HFS+ leaves out some characters, all of which start with these bytes.
			if strings.ContainsAny(part, "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff") {
				return false
			}
		}
	}
	return true
}

// storeAll stores files with all processors.
func (t *native) storeAll(ctx context.Context, todo []*change) error {
	if len(todo) == 0 {
		return nil
	}
	var err error
	if t.convert, err = newConverter(t.repo, t.inUser); err != nil {
		return err
	}
	return parallel.Each(len(todo), func(i int) error {
		if ctx.Err() != nil {
			return fault.New(fault.Fatal, "interrupted", "take a snapshot: %w", context.Cause(ctx))
		}
		return t.storeOne(todo[i])
	})
}

// inUser says whether the user's index has a path. Of most directories the
// private index knows that, so that the other need not be read.
func (t *native) inUser(path string) (bool, error) {
	dir := path[:strings.LastIndexByte(path, '/')+1]
	if i := t.known.find(dir); i >= 0 && t.settled && t.found.User.Dirs && t.known.state(i).alike {
		return t.base.Find(path) >= 0, nil
	}
	if err := t.needUser(); err != nil {
		return false, err
	}
	return t.user.Find(path) >= 0, nil
}

// storeOne stores one file or link, or marks it for git.
func (t *native) storeOne(c *change) error {
	disk := DiskPath(t.repo, c.Path)
	if c.hash == kindLink {
		target, err := os.Readlink(disk)
		if err != nil {
			return asidef("'%s' changes: %v", c.Path, err)
		}
		c.ID, err = t.writer.Put(object.Blob, []byte(target))
		c.AssumeUnchanged = true
		return t.stored(c, err)
	}
	may, err := t.convert.may(c.Path)
	if err != nil {
		return err
	}
	c.AssumeUnchanged = may&attributes.ByIndex == 0
	if may&attributes.Any != 0 {
		c.byGit = true
		return nil
	}
	for range 5 {
		fi, err := os.Lstat(disk)
		if err != nil || !fi.Mode().IsRegular() {
			return asidef("'%s' changes", c.Path)
		}
		stat := index.StatOf(fi)
		mode := modeOf(c.Record[:])
		if t.modes {
			mode = index.ModeOf(fi)
		}
		c.Record = stat.Record(mode)
		if may != attributes.None {
			err = t.storeLines(c, disk, fi)
		} else {
			c.ID, err = t.writer.File(disk, fi)
		}
		if !errors.Is(err, object.ErrChanged) {
			return t.stored(c, err)
		}
	}
	return asidef("'%s' changes all the time", c.Path)
}

// stored completes a change whose file was read, or could not be.
func (t *native) stored(c *change, err error) error {
	switch {
	case err == nil:
	case !errors.Is(err, fs.ErrPermission):
		return failed("store the files", err)
	case c.user == -1 && c.base >= 0:
		c.unreadable, c.Drop = true, true
	case c.user >= 0 && c.base < 0:
		c.unreadable = true
		c.AssumeUnchanged = false
		copy(c.Record[:], t.user.Record(c.user))
		copy(c.ID[:], t.user.ID(c.user))
	default:
		c.unreadable, c.keep = true, true
	}
	return nil
}

// storeLines stores a file of which git may convert the line endings: one with
// none to convert is as it is.
func (t *native) storeLines(c *change, disk string, fi fs.FileInfo) error {
	if fi.Size() > whole {
		c.byGit = true
		return nil
	}
	data, err := os.ReadFile(disk)
	if err != nil {
		return err
	}
	if int64(len(data)) != fi.Size() {
		return object.ErrChanged
	}
	if bytes.Contains(data, []byte("\r\n")) {
		c.byGit = true
		return nil
	}
	c.ID, err = t.writer.Put(object.Blob, data)
	c.AssumeUnchanged = true
	return err
}

// userOf is the user's entry of a change, -1 if there is none.
func (t *native) userOf(c *change) (int, error) {
	if c.user != unasked {
		return c.user, nil
	}
	if err := t.needUser(); err != nil {
		return 0, err
	}
	s := filed(t.user, span{0, t.user.Len()}, []byte(c.Path))
	if s.empty() {
		return -1, nil
	}
	return ours(t.user, s), nil
}

// storeByGit lets git store the files whose content it may convert, by an
// index that holds nothing else but what the user's has of them: whether a
// file's CRs are kept can depend on that (gitattributes(5), text=auto).
func (t *native) storeByGit(ctx context.Context) error {
	var edits []index.Edit
	var input strings.Builder
	for i := range t.changes {
		c := &t.changes[i]
		if !c.byGit {
			continue
		}
		input.WriteString(c.Path + "\x00")
		user, err := t.userOf(c)
		if err != nil {
			return err
		}
		if user < 0 {
			continue
		}
		e := index.Edit{Path: c.Path}
		copy(e.ID[:], t.user.ID(user))
		e.Record = (&index.Stat{}).Record(t.user.Mode(user))
		edits = append(edits, e)
	}
	if input.Len() == 0 {
		return nil
	}
	empty, err := (&index.Index{}).View()
	if err != nil {
		return failed("store the files", err)
	}
	data, _ := empty.Splice(edits)
	if data, err = index.Seal(data, nil); err != nil {
		return failed("store the files", err)
	}
	if err := os.WriteFile(t.index, data, 0o666); err != nil {
		return failed("write the private index", err)
	}
	git.Step("private index written")
	if err := updateIndex(t.git, ctx, input.String()); err != nil {
		return err
	}
	x, err := index.Read(t.index, 20)
	if err != nil {
		return failed("read the private index", err)
	}
	for i := range t.changes {
		c := &t.changes[i]
		if !c.byGit {
			continue
		}
		e, ok := x.Lookup(c.Path, 0)
		if !ok {
			c.Drop = true
			if _, err := os.Lstat(DiskPath(t.repo, c.Path)); err == nil {
				t.unsettle(c.Path)
				t.out.Skipped = append(t.out.Skipped, Skip{c.Path, ReasonName})
			}
			continue
		}
		c.Record, c.ID = e.Stat.Record(e.Mode), mustID(e.ID)
	}
	return nil
}

// updateIndex lets git store files, whose paths each have a NUL after them.
func updateIndex(command func(context.Context, ...string) *git.Cmd, ctx context.Context, input string) error {
	if err := stubbornly(func() error {
		c := command(ctx, "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
		return c.WithInput([]byte(input)).Run()
	}); err != nil {
		return fault.New(fault.Fatal, "snapshot", "store the files: %w", err).
			WithHint("nothing was saved; git add has the same trouble, so mend the file, its filter or its attributes")
	}
	git.Step("files stored")
	return nil
}

// assemble makes the private index that is to be, and the trees.
func (t *native) assemble() error {
	t.after = t.base
	edits := make([]index.Edit, len(t.changes))
	same := t.cached
	for i := range t.changes {
		edits[i] = t.changes[i].Edit
		same = same && !t.alters(&t.changes[i])
	}
	more := t.manyNew() && t.base.Check() == nil
	var over []index.Edit // what the trees have other than t.after
	if t.few() && !more {
		t.out.Behind = len(edits) > 0
		for i := range t.changes {
			if t.alters(&t.changes[i]) {
				over = append(over, edits[i])
			}
		}
	} else if len(edits) > 0 || !t.cached || more {
		pages.Expect(2 * t.base.Size())
		var at []int
		t.data, at = t.base.Splice(edits)
		t.news = t.blurRacy(edits, at) || more || !t.cached
		var err error
		if t.after, err = index.NewView(t.data, true); err != nil {
			return asidef("the private index: %v", err)
		}
	}
	if root := t.base.Root(); same && root != nil {
		t.out.Tree = hex.EncodeToString(root)
		return nil
	}
	if t.tree = t.base.CacheTree(); t.tree == nil {
		t.tree = &index.CacheTree{EntryCount: -1}
	}
	for i := range t.changes {
		if c := &t.changes[i]; t.alters(c) {
			t.tree.Invalidate(c.Path)
		}
	}
	if !t.cached {
		t.forget(t.tree)
	}
	if t.tree.EntryCount < 0 {
		err := t.after.WriteTrees(t.tree, over, func(content []byte) ([20]byte, error) {
			return t.writer.PutLater(object.Tree, content)
		})
		if err != nil {
			return failed("write the tree", err)
		}
		git.Step("tree written")
	}
	t.out.Tree = t.tree.ID
	return nil
}

// What a snapshot may find changed without the private index being written
// anew: to write it takes longer, from ten thousand files on, than to read
// these files again the next time.
const (
	fewChanges = 32
	fewBytes   = 256 << 10
)

// few says whether the private index can stay behind what the files are. What
// it says of all others has to hold as it is, so the user's index must be the
// one that it was made with.
func (t *native) few() bool {
	if !t.cached || !t.settled || t.o.Exact || len(t.changes) > fewChanges || len(t.unsettled) > 0 || t.base.Root() == nil || len(t.base.Gitlinks) > 0 || t.base.Special {
		return false
	}
	var size uint64
	for i := range t.changes {
		c := &t.changes[i]
		if c.byGit || c.unreadable || c.keep || c.SkipWorktree || modeOf(c.Record[:]) == index.ModeGitlink {
			return false
		}
		size += uint64(binary.BigEndian.Uint32(c.Record[36:]))
	}
	return size <= fewBytes
}

// alters says whether a change is one of the tree, not of stat data alone.
func (t *native) alters(c *change) bool {
	return c.Drop || c.base < 0 || !bytes.Equal(t.base.ID(c.base), c.ID[:]) || t.base.Mode(c.base) != modeOf(c.Record[:])
}

// forget makes the user's cache tree one of trees that exist, with all that is
// below them.
func (t *native) forget(tree *index.CacheTree) {
	known := tree.EntryCount >= 0 && t.writer.Has(mustID(tree.ID))
	for _, child := range tree.Children {
		t.forget(child)
		known = known && child.EntryCount >= 0
	}
	if !known {
		tree.EntryCount, tree.ID = -1, ""
	}
}

// blurRacy finds the entries whose files may change within the second without
// a change of their stat data: once kept, the index does not vouch for them.
// It says whether there is more to keep than that again.
func (t *native) blurRacy(edits []index.Edit, at []int) (news bool) {
	for i := range edits {
		e, c := &edits[i], &t.changes[i]
		record := e.Record
		if !e.Drop && t.start > 0 && seconds(record[:]) >= t.start && modeOf(record[:]) != index.ModeGitlink {
			t.blur = append(t.blur, at[i]+36)
			binary.BigEndian.PutUint32(record[36:], 0)
		}
		news = news || t.alters(c) || !bytes.Equal(t.base.Record(c.base), record[:]) ||
			t.base.SkipWorktree(c.base) != e.SkipWorktree || t.base.AssumeUnchanged(c.base) != e.AssumeUnchanged
	}
	return news
}

// finish fills the result in.
func (t *native) finish() error {
	slices.SortFunc(t.out.Skipped, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	for _, i := range t.after.Gitlinks {
		t.out.Unprotected = append(t.out.Unprotected, string(t.after.Path(i)))
	}
	t.out.indexTree = t.indexTree
	if t.o.Exact {
		var err error
		if t.out.Files, err = t.after.Index(); err != nil {
			return failed("read the private index", err)
		}
		for i := range t.out.Files.Entries {
			t.out.Files.Entries[i].AssumeUnchanged = false
		}
		// What is written of these files from now on may be younger than the
		// second of the walk, and has their trees.
		t.out.Files.ModTime = time.Unix(int64(t.start), 0)
		tree := t.tree
		if tree == nil {
			tree = t.base.CacheTree()
		}
		if t.out.Files.Tree = tree; tree != nil && tree.ID == t.out.Tree {
			t.out.content = contents(t.after, tree)
			if !t.after.Special {
				t.out.reindex = t.reindexed
			}
		}
	}
	t.out.user = sync.OnceValues(func() (*index.Index, error) {
		if err := t.needUser(); err != nil {
			return nil, failed("read the index", err)
		}
		x, err := t.user.Index()
		if err != nil {
			return nil, failed("read the index", err)
		}
		return x, nil
	})
	t.out.named = func(name string) (ids []string, err error) {
		if err := t.needUser(); err != nil {
			return nil, failed("read the index", err)
		}
		for i := range t.user.Len() {
			if p := t.user.Path(i); bytes.HasSuffix(p, []byte(name)) && Named(string(p), name) {
				ids = append(ids, hex.EncodeToString(t.user.ID(i)))
			}
		}
		return ids, nil
	}
	if !t.o.Scratch {
		t.out.keep = t.keepNative
	}
	return nil
}

// keepNative keeps the private index, where there is anything new to keep.
func (t *native) keepNative(key string) error {
	k := cacheKey{Key: key, Fingerprint: t.print, Checksum: t.found.Checksum, Tree: t.out.Tree, User: t.seen}
	if t.out.Behind {
		return nil
	}
	k.User.Dirs = t.news || t.dirsHold()
	if !t.news {
		if k == t.found {
			return nil
		}
		return t.keep(k, false)
	}
	for _, at := range t.blur {
		clear(t.data[at : at+4])
	}
	if t.tree == nil {
		t.tree = t.base.CacheTree()
	}
	data, err := t.after.Keep(t.tree, t.dirsToKeep())
	if err != nil {
		return failed("keep the private index", err)
	}
	if err := os.WriteFile(t.index, data, 0o666); err != nil {
		return failed("keep the private index", err)
	}
	git.Step("private index written")
	k.Checksum = hex.EncodeToString(data[len(data)-20:])
	return t.keep(k, true)
}

// indexTree is IndexTree, which it leaves out where it is known what comes of it.
func (t *native) indexTree(op *Operation, headTree string, repo *git.Repo, store object.Store) (string, error) {
	plain := op.Kind == "" && len(op.Files) == 0
	if plain && t.seen.Head == headTree && t.seen.Index != "" {
		return strings.Trim(t.seen.Index, "-"), nil
	}
	if err := t.needUser(); err != nil {
		return "", failed("read the index", err)
	}
	if plain = plain && t.user.Plain(); plain && hex.EncodeToString(t.user.Root()) == headTree {
		t.seen.Head, t.seen.Index = headTree, "-"
		return "", nil
	}
	// git, or we, made the trees when the index was written, unless it was into
	// other objects than these.
	known := t.user.CacheTree()
	if known != nil {
		t.forget(known)
	}
	if plain && known != nil && known.EntryCount == t.user.Len() {
		t.seen.Head, t.seen.Index = headTree, store.Put(object.Tree, entriesTree(known.ID))
		return t.seen.Index, nil
	}
	x, err := t.out.User()
	if err != nil {
		return "", err
	}
	x.Tree = known
	absent := map[string]bool{}
	if t.after.Special {
		for i := range t.after.Len() {
			if t.after.SkipWorktree(i) {
				absent[string(t.after.Path(i))] = true
			}
		}
	}
	tree, err := IndexTree(&IndexState{Index: x, Operation: op, Absent: absent}, headTree, repo.ObjectFormat, store)
	if err == nil && plain {
		t.seen.Head, t.seen.Index = headTree, tree
		if tree == "" {
			t.seen.Index = "-"
		}
	}
	return tree, err
}

// reindexed is Snapshot.Reindex.
func (t *native) reindexed(edits []index.Edit, differs func(path, id string) bool) (data []byte, tree string, err error) {
	changed := make(map[string]bool, len(edits))
	for i := range edits {
		changed[edits[i].Path] = true
	}
	sorted := len(edits)
	for i := range t.after.Len() {
		record := t.after.Record(i)
		if seconds(record) < t.start || modeOf(record) == index.ModeGitlink || changed[string(t.after.Path(i))] {
			continue
		}
		if e := (index.Edit{Path: string(t.after.Path(i))}); differs(e.Path, hex.EncodeToString(t.after.ID(i))) {
			copy(e.Record[:], record)
			copy(e.ID[:], t.after.ID(i))
			binary.BigEndian.PutUint32(e.Record[36:], 0) // as git marks it; see Index.SmudgeRacy
			edits = append(edits, e)
		}
	}
	if len(edits) > sorted {
		slices.SortFunc(edits, func(a, b index.Edit) int { return strings.Compare(a.Path, b.Path) })
	}
	root := t.out.Files.Tree
	for i := range edits {
		root.Invalidate(edits[i].Path)
	}
	if err := t.after.WriteTrees(root, edits, func(content []byte) (id [20]byte, err error) {
		return mustID(object.ID("sha1", object.Tree, content)), nil
	}); err != nil {
		return nil, "", failed("write the index", err)
	}
	data, _ = t.after.Splice(edits)
	if t.after.Assumed { // what that says is ours; see private
		if err := index.Unmark(data); err != nil {
			return nil, "", failed("write the index", err)
		}
	}
	if data, err = index.Seal(data, root); err != nil {
		return nil, "", failed("write the index", err)
	}
	return data, root.ID, nil
}
