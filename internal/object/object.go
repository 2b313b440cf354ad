// Package object knows git's objects: what a commit, a tree and a blob look
// like (gitformat, "git cat-file"), and how to read and write them. Two
// stores do that behind one interface: one in process, and one on the git
// program. Open picks the one that is exact for a repository. A Writer, in
// process too, stores many objects at once.
//
// Ids are strings of lower-case hexadecimal digits: 40 in a SHA-1
// repository, 64 in a SHA-256 one.
package object

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Kind is the type of an object, as git spells it.
type Kind string

// The kinds of object.
const (
	Commit Kind = "commit"
	Tree   Kind = "tree"
	Blob   Kind = "blob"
	Tag    Kind = "tag"
)

// ErrMissing is matched by the error of reading an object that is not there.
var ErrMissing = errors.New("object is missing")

// Store reads and writes objects. It is not safe for concurrent use.
type Store interface {
	// Read returns an object's kind and content. An absent one is an error
	// that matches ErrMissing and fault.Integrity; one that cannot be read
	// matches fault.Integrity alone.
	Read(ctx context.Context, id string) (Kind, []byte, error)
	// Put computes the id of an object and keeps it for Flush. Read finds it at once.
	Put(kind Kind, data []byte) string
	// Flush writes what was Put. An object that exists is freshened, so that
	// a running "git gc" does not take it for old. Ids are good for refs
	// only after Flush.
	Flush(ctx context.Context) error
	// Close ends what the store started.
	Close() error
}

// Open returns the store that is exact for the repository: in process where
// that knows every feature in use, the git program elsewhere.
func Open(repo *git.Repo) Store {
	if why := Native(repo); why != "" {
		git.Trace("objects: by the git program (%s)", why)
		return NewProgram(repo)
	}
	return NewInProcess(repo)
}

// Native says why InProcess and Writer are not exact for the repository, in a
// few words for a trace; "" where they are.
func Native(repo *git.Repo) string {
	if repo.ObjectFormat != "sha1" {
		return "object format " + repo.ObjectFormat
	}
	if repo.Shallow {
		return "shallow clone"
	}
	for key := range repo.Config {
		if name, ok := strings.CutPrefix(key, "extensions."); ok && name != "worktreeconfig" && name != "objectformat" {
			return "extension " + name
		}
		if strings.HasPrefix(key, "remote.") && strings.HasSuffix(key, ".promisor") {
			return "partial clone"
		}
	}
	if repo.Config.Bool("extensions.worktreeconfig", false) {
		return "extension worktreeConfig"
	}
	if v, ok := repo.Config.Get("core.sharedrepository"); ok && v != "umask" && v != "false" && v != "0" {
		return "shared repository"
	}
	if syncsLoose(repo.Config) {
		return "core.fsync"
	}
	if os.Getenv("GIT_OBJECT_DIRECTORY") != "" || os.Getenv("GIT_ALTERNATE_OBJECT_DIRECTORIES") != "" {
		return "object directory from the environment"
	}
	if _, err := os.Stat(filepath.Join(repo.CommonDir, "objects", "info", "alternates")); err == nil {
		return "alternates"
	}
	return ""
}

// syncsLoose says whether loose objects are to be made durable one by one.
// By default git does that for packs alone, as Writer does.
func syncsLoose(config git.Config) bool {
	components, _ := config.Get("core.fsync")
	for _, c := range strings.Split(components, ",") {
		switch strings.TrimSpace(c) {
		case "loose-object", "objects", "committed", "added", "all":
			return true
		}
	}
	return config.Bool("core.fsyncobjectfiles", false)
}

// ID computes the id that git gives to an object.
func ID(objectFormat string, kind Kind, data []byte) string {
	h := NewHash(objectFormat)
	h.Write([]byte(string(kind) + " " + strconv.Itoa(len(data)) + "\x00"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// NewHash returns the hash function of an object format.
func NewHash(objectFormat string) interface {
	io.Writer
	Sum([]byte) []byte
} {
	if objectFormat == "sha256" {
		return sha256.New()
	}
	return sha1.New()
}

// EmptyTree is the id of the tree with no entries.
func EmptyTree(objectFormat string) string { return ID(objectFormat, Tree, nil) }

// IsID says whether s is a full object id.
func IsID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func missing(id string) error {
	return fault.New(fault.Integrity, "object-missing", "read object %s: %w", id, ErrMissing).
		WithHint("git fsck tells what else is missing; a shallow clone may lack it")
}

// errMismatch is found by us: cat-file does not compare an object
// that it reads with its id.
var errMismatch = errors.New("its content does not match its id")

func unreadable(id string, err error) error {
	return fault.New(fault.Integrity, "object-unreadable", "read object %s: %w", id, err)
}

// Signature is who did something, and when.
type Signature struct {
	Name  string
	Email string
	When  time.Time
}

func (s Signature) String() string {
	return fmt.Sprintf("%s <%s> %d %s", crumbs(s.Name), crumbs(s.Email), s.When.Unix(), s.When.Format("-0700"))
}

// crumbs removes what a name or an address in a commit must not hold, as git
// does (ident.c).
func crumbs(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '<' || r == '>' || r == '\n' || r == 0 {
			return -1
		}
		return r
	}, s)
	return strings.Trim(s, " .,:;\"\\'\t\r")
}

func parseSignature(s string) (Signature, bool) {
	open, end := strings.IndexByte(s, '<'), strings.LastIndexByte(s, '>')
	if open < 0 || end < open {
		return Signature{}, false
	}
	sig := Signature{Name: strings.TrimSpace(s[:open]), Email: s[open+1 : end]}
	seconds, zone, _ := strings.Cut(strings.TrimSpace(s[end+1:]), " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return sig, false
	}
	sig.When = time.Unix(n, 0).In(parseZone(zone))
	return sig, true
}

func parseZone(zone string) *time.Location {
	n, err := strconv.Atoi(zone)
	if err != nil {
		return time.UTC
	}
	return time.FixedZone("", (n/100*60+n%100)*60)
}

// CommitObject is a commit's content. Headers that are not fields here
// (gpgsig, encoding, mergetag, …) are not kept.
type CommitObject struct {
	Tree      string
	Parents   []string
	Author    Signature
	Committer Signature
	Message   string
}

// Encode returns the content in git's form.
func (c *CommitObject) Encode() []byte {
	var b bytes.Buffer
	b.WriteString("tree " + c.Tree + "\n")
	for _, p := range c.Parents {
		b.WriteString("parent " + p + "\n")
	}
	b.WriteString("author " + c.Author.String() + "\ncommitter " + c.Committer.String() + "\n\n")
	b.WriteString(c.Message)
	return b.Bytes()
}

// ParseCommit reads a commit's content.
func ParseCommit(data []byte) (c CommitObject, err error) {
	head, message, _ := strings.Cut(string(data), "\n\n")
	c.Message = message
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			c.Tree = value
		case "parent":
			if !IsID(value) {
				return c, fmt.Errorf("parse commit: parent '%s' is no object id", value)
			}
			if c.Parents == nil {
				c.Parents = make([]string, 0, 2) // what a checkpoint has, or three
			}
			c.Parents = append(c.Parents, value)
		case "author":
			c.Author, _ = parseSignature(value)
		case "committer":
			c.Committer, _ = parseSignature(value)
		}
	}
	if !IsID(c.Tree) {
		return c, fmt.Errorf("parse commit: no tree")
	}
	return c, nil
}

// Subject is the first paragraph of the message on one line, as git prints it.
func (c *CommitObject) Subject() string {
	paragraph, _, _ := strings.Cut(strings.TrimLeft(c.Message, "\n"), "\n\n")
	return strings.ReplaceAll(strings.TrimRight(paragraph, "\n"), "\n", " ")
}

// Trailer is one line "Key: value" of a message's last paragraph.
type Trailer struct{ Key, Value string }

// Trailers are the trailers of the message's last paragraph, in order. Lines
// there that are no trailers are passed over.
func (c *CommitObject) Trailers() iter.Seq[Trailer] {
	return func(yield func(Trailer) bool) {
		for line := range strings.SplitSeq(lastParagraph(c.Message), "\n") {
			key, value, ok := strings.Cut(line, ":")
			if ok && key != "" && strings.IndexByte(key, ' ') < 0 && strings.IndexByte(key, '\t') < 0 && !yield(Trailer{key, strings.TrimSpace(value)}) {
				return
			}
		}
	}
}

// lastParagraph is what follows the last empty line of a message, "" where
// there is none. It searches forward, which is faster than strings.LastIndex.
func lastParagraph(message string) string {
	message = strings.TrimRight(message, "\n")
	last := ""
	for {
		i := strings.Index(message, "\n\n")
		if i < 0 {
			return last
		}
		// Of three newlines in a row the last two count.
		message = message[i+1:]
		last = message[1:]
	}
}

// TreeEntry is one entry of a tree.
type TreeEntry struct {
	Mode uint32 // 0o100644, 0o100755, 0o120000, 0o040000 or 0o160000
	Name string // one component, any bytes but '/' and NUL
	ID   string
}

// The modes of tree entries.
const (
	ModeFile       uint32 = 0o100644
	ModeExecutable uint32 = 0o100755
	ModeLink       uint32 = 0o120000
	ModeTree       uint32 = 0o040000
	ModeCommit     uint32 = 0o160000
)

// ParseTree reads a tree's content.
func ParseTree(data []byte, hashLen int) ([]TreeEntry, error) {
	var entries []TreeEntry
	for len(data) > 0 {
		end := bytes.IndexByte(data, 0)
		if end < 0 || len(data) < end+1+hashLen {
			return nil, errors.New("parse tree: it ends in the middle of an entry")
		}
		mode, name, ok := strings.Cut(string(data[:end]), " ")
		m, err := strconv.ParseUint(mode, 8, 32)
		if !ok || err != nil || name == "" {
			return nil, errors.New("parse tree: an entry has no mode or no name")
		}
		entries = append(entries, TreeEntry{uint32(m), name, hex.EncodeToString(data[end+1 : end+1+hashLen])})
		data = data[end+1+hashLen:]
	}
	return entries, nil
}

// EncodeTree returns a tree's content; it sorts entries in place, in git's order.
func EncodeTree(entries []TreeEntry) []byte {
	SortTree(entries)
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		id, _ := hex.DecodeString(e.ID)
		b.Write(id)
	}
	return b.Bytes()
}
