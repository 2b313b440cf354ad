package object

import (
	"bytes"
	"context"
	"crypto/sha1"
	"hash"
	"os"
	"path/filepath"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// InProcess is the store that reads and writes by itself, for SHA-1
// repositories without extensions. What it cannot read it leaves to the git
// program, which tells what is missing from what is damaged.
type InProcess struct {
	queue
	repo    *git.Repo
	objects string
	packs   *packReader
	program *Program // started on first use
	sum     hash.Hash
	scratch []byte
	reads   int // how many objects were asked for
}

// looseFirst is for how many objects a loose file is looked for first: what a
// save reads was written just now, and the packs, of which there may be fifty,
// need not be opened for it. Who reads more of them finds most in packs.
const looseFirst = 16

// NewInProcess returns the in-process store of a repository. Native says where it is exact.
func NewInProcess(repo *git.Repo) *InProcess {
	objects := filepath.Join(repo.CommonDir, "objects")
	return &InProcess{
		queue:   queue{format: repo.ObjectFormat},
		repo:    repo,
		objects: objects,
		packs:   newPackReader(objects),
	}
}

// Read implements Store.
func (s *InProcess) Read(ctx context.Context, id string) (Kind, []byte, error) {
	kind, data, shared, err := s.peek(ctx, id)
	if shared {
		data = bytes.Clone(data)
	}
	return kind, data, err
}

// peek is Read; shared data is not to be changed.
func (s *InProcess) peek(ctx context.Context, id string) (kind Kind, data []byte, shared bool, err error) {
	if kind, data, ok := s.queued(id); ok {
		return kind, data, false, nil
	}
	h, ok := ParseHash(id)
	if !ok {
		return "", nil, false, missing(id)
	}
	if s.reads++; s.reads <= looseFirst {
		if kind, data, err = readLoose(loosePath(s.objects, id)); err == nil && s.is(h, kind, data) {
			return kind, data, false, nil
		}
	}
	kind, data, err = s.packs.read(h)
	shared = err == nil
	if err != nil {
		kind, data, err = readLoose(loosePath(s.objects, id))
	}
	if err != nil {
		s.packs.packs.list() // a gc may have moved it to a pack just now
		kind, data, err = s.packs.read(h)
		shared = err == nil
	}
	if err == nil && s.is(h, kind, data) {
		return kind, data, shared, nil
	}
	kind, data, err = s.byProgram(ctx, id)
	return kind, data, false, err
}

// is says whether an object is the one that an id says.
func (s *InProcess) is(id Hash, kind Kind, data []byte) bool {
	if s.sum == nil {
		s.sum = sha1.New()
	}
	s.sum.Reset()
	s.scratch = appendHeader(s.scratch[:0], kind, int64(len(data)))
	s.sum.Write(s.scratch)
	s.sum.Write(data)
	s.scratch = s.sum.Sum(s.scratch[:0])
	return string(s.scratch) == string(id[:])
}

// Has says whether an object exists, or was put.
func (s *InProcess) Has(id string) bool {
	if _, _, ok := s.queued(id); ok {
		return true
	}
	h, ok := ParseHash(id)
	if !ok || s.packs.packs.has(h) {
		return ok
	}
	s.packs.packs.list() // somebody may have made one
	return s.packs.packs.has(h)
}

func (s *InProcess) byProgram(ctx context.Context, id string) (Kind, []byte, error) {
	if s.program == nil {
		s.program = NewProgram(s.repo)
	}
	return s.program.Read(ctx, id)
}

// Flush implements Store. Objects are written loose, by a temporary file and
// a rename each; git gc packs them.
func (s *InProcess) Flush(context.Context) error {
	var out bytes.Buffer
	now := time.Now()
	for _, id := range s.order {
		h := s.held[id]
		file := loosePath(s.objects, id)
		if os.Chtimes(file, now, now) == nil {
			continue
		}
		if err := writeLoose(file, deflate(&out, h.kind, h.data).loose()); err != nil {
			return fault.New(fault.Fatal, "object-write", "write %s object %s: %w", h.kind, id, err)
		}
		git.Step("object")
	}
	s.clear()
	return nil
}

// Close implements Store.
func (s *InProcess) Close() error {
	s.packs.close()
	if s.program == nil {
		return nil
	}
	return s.program.Close()
}
