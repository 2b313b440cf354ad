package object

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Program is the store on the git program: `cat-file --batch` reads,
// `unpack-objects` writes, one process each however many objects.
type Program struct {
	queue
	repo  *git.Repo
	batch *Batch
}

// NewProgram returns the store of a repository on the git program. It is
// exact for every repository that git reads.
func NewProgram(repo *git.Repo) *Program {
	return &Program{queue: queue{format: repo.ObjectFormat}, repo: repo}
}

// Read implements Store.
func (s *Program) Read(ctx context.Context, id string) (Kind, []byte, error) {
	if kind, data, ok := s.queued(id); ok {
		return kind, data, nil
	}
	if !IsID(id) {
		return "", nil, missing(id)
	}
	if err := s.start(ctx); err != nil {
		return "", nil, err
	}
	_, kind, data, err := s.batch.Read(id)
	if errors.Is(err, ErrMissing) {
		// So git answers for a damaged one too.
		if _, lost := os.Lstat(filepath.Join(s.repo.CommonDir, "objects", id[:2], id[2:])); lost == nil {
			return "", nil, unreadable(id, errors.New("its file is damaged"))
		}
	}
	if err == nil && ID(s.format, kind, data) != id {
		return "", nil, unreadable(id, errMismatch)
	}
	return kind, data, err
}

// start starts the batch, and another after one that ended: a damaged object
// ends git, and the next is another matter.
func (s *Program) start(ctx context.Context) (err error) {
	if s.batch == nil || s.batch.broken != nil {
		s.batch, err = OpenBatch(ctx, s.repo)
	}
	return err
}

// Flush implements Store: one pack goes through unpack-objects, which writes
// loose objects and freshens those that exist.
func (s *Program) Flush(ctx context.Context) error {
	if len(s.order) == 0 {
		return nil
	}
	var pack bytes.Buffer
	hash := NewHash(s.format)
	out := io.MultiWriter(&pack, hash)
	out.Write([]byte("PACK"))
	binary.Write(out, binary.BigEndian, []uint32{2, uint32(len(s.order))})
	for _, id := range s.order {
		h := s.held[id]
		out.Write(packHeader(h.kind, int64(len(h.data))))
		z := zlib.NewWriter(out)
		z.Write(h.data)
		z.Close()
	}
	pack.Write(hash.Sum(nil))
	if err := s.repo.Command(ctx, "unpack-objects", "-q").WithInput(pack.Bytes()).Run(); err != nil {
		return fault.New(fault.Fatal, "object-write", "write %d objects: %w", len(s.order), err)
	}
	for range s.order {
		git.Step("object")
	}
	s.clear()
	return nil
}

// packHeader is the type and size of an object in a pack (gitformat-pack).
func packHeader(kind Kind, size int64) []byte {
	types := map[Kind]byte{Commit: 1, Tree: 2, Blob: 3, Tag: 4}
	c := types[kind]<<4 | byte(size&0x0f)
	size >>= 4
	var b []byte
	for size > 0 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	return append(b, c)
}

// Close implements Store.
func (s *Program) Close() error {
	if s.batch == nil {
		return nil
	}
	err := s.batch.Close()
	s.batch = nil
	return err
}

// Batch is a running `git cat-file --batch`, for bulk reads.
type Batch struct {
	ctx     context.Context
	repo    *git.Repo
	process *git.Process
	in      *bufio.Writer
	out     *bufio.Reader
	broken  error
}

// OpenBatch starts a batch.
func OpenBatch(ctx context.Context, repo *git.Repo) (*Batch, error) {
	b := &Batch{ctx: ctx, repo: repo}
	if err := b.start(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Batch) start() error {
	p, err := b.repo.Command(b.ctx, "cat-file", "--batch").Start()
	if err != nil {
		return err
	}
	b.process, b.in, b.out, b.broken = p, bufio.NewWriter(p.Stdin), bufio.NewReaderSize(p.Stdout, 64<<10), nil
	return nil
}

// Read returns the object that a name (an id or any other extended SHA-1
// expression without a newline, such as "ref:path") stands for. A name that
// stands for nothing is ErrMissing. An object that is damaged ends the batch.
func (b *Batch) Read(name string) (id string, kind Kind, data []byte, err error) {
	if b.broken != nil {
		return "", "", nil, b.broken
	}
	b.in.WriteString(name + "\n")
	if err := b.in.Flush(); err != nil {
		return "", "", nil, b.fail(name, err)
	}
	return b.answer(name)
}

// maxDamaged is how many names in a row may end git before the repository as a
// whole counts as damaged.
const maxDamaged = 16

// ReadAll reads many names and hands over each answer in order: an object, or
// ErrMissing where a name stands for nothing, or another fault.Integrity where
// what it stands for is damaged. An error from visit ends it.
func (b *Batch) ReadAll(names []string, visit func(i int, id string, kind Kind, data []byte, err error) error) error {
	if b.broken != nil {
		return b.broken
	}
	damaged := 0
	for i := 0; i < len(names); {
		asked := make(chan error, 1)
		in := b.in
		go func(names []string) {
			for _, name := range names {
				in.WriteString(name + "\n")
			}
			asked <- in.Flush()
		}(names[i:])
		for ; i < len(names) && b.broken == nil; i++ {
			id, kind, data, err := b.answer(names[i])
			if b.broken == nil {
				damaged = 0
			} else if damaged++; damaged > maxDamaged || b.ctx.Err() != nil {
				return b.broken
			}
			if err := visit(i, id, kind, data, err); err != nil {
				if b.broken == nil {
					b.process.Stop()
				}
				b.broken = fmt.Errorf("read objects: an earlier read was given up: %w", err)
				return err
			}
		}
		err := <-asked
		if b.broken == nil {
			return err
		}
		// A damaged object ended git; the next is another matter.
		if err := b.start(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) fail(name string, err error) error {
	if waited := b.process.Wait(); waited != nil {
		err = waited
	}
	b.broken = unreadable(name, err)
	return b.broken
}

func (b *Batch) answer(name string) (id string, kind Kind, data []byte, err error) {
	id, kind, size, err := b.head(name)
	if err != nil {
		return "", "", nil, err
	}
	// What a damaged object says of its size is not to be trusted with memory.
	var content bytes.Buffer
	content.Grow(int(min(size, 16<<20)) + 1)
	if _, err := io.CopyN(&content, b.out, size+1); err != nil {
		return "", "", nil, b.fail(name, err)
	}
	return id, kind, content.Bytes()[:size], nil
}

// head reads the line that comes before an object's content.
func (b *Batch) head(name string) (id string, kind Kind, size int64, err error) {
	line, err := b.out.ReadString('\n')
	if err != nil {
		return "", "", 0, b.fail(name, err)
	}
	line = strings.TrimSuffix(line, "\n")
	if strings.HasSuffix(line, " missing") || strings.HasSuffix(line, " ambiguous") {
		return "", "", 0, missing(name)
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return "", "", 0, b.fail(name, fmt.Errorf("git answered '%s'", line))
	}
	size, err = strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return "", "", 0, b.fail(name, fmt.Errorf("git answered '%s'", line))
	}
	return fields[0], Kind(fields[1]), size, nil
}

// Close ends the process.
func (b *Batch) Close() error {
	if b.broken != nil {
		return nil
	}
	b.broken = errors.New("read objects: the batch is closed")
	return b.process.Wait()
}
