package object

import (
	"bytes"
	"context"
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
}

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
	if kind, data, ok := s.queued(id); ok {
		return kind, data, nil
	}
	h, ok := ParseHash(id)
	if !ok {
		return "", nil, missing(id)
	}
	kind, data, err := s.packs.read(h)
	if err != nil {
		kind, data, err = readLoose(loosePath(s.objects, id))
	}
	if err != nil {
		s.packs.packs.list() // a gc may have moved it to a pack just now
		kind, data, err = s.packs.read(h)
	}
	if err == nil && ID(s.format, kind, data) == id {
		return kind, data, nil
	}
	return s.byProgram(ctx, id)
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
