package object

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// indexLimit is the size of pack indexes, in bytes, up to which go-git reads
// packed objects: it loads the whole index of every pack, git maps them. With
// some thousand objects that takes as long as starting git does: 2,000 where
// processes start in 2 ms, 12,000 on a busy machine.
const indexLimit = 256 << 10

// InProcess is the store that reads by go-git's object layer and writes by
// itself, for SHA-1 repositories without extensions.
type InProcess struct {
	queue
	repo    *git.Repo
	objects string
	storage *filesystem.Storage
	program *Program // for what go-git is not good at; started on first use
}

// NewInProcess returns the in-process store of a repository. Open says where it is exact.
func NewInProcess(repo *git.Repo) *InProcess {
	return &InProcess{
		queue:   queue{format: repo.ObjectFormat},
		repo:    repo,
		objects: filepath.Join(repo.CommonDir, "objects"),
		storage: filesystem.NewStorage(osfs.New(repo.CommonDir), cache.NewObjectLRU(4*cache.MiByte)),
	}
}

// Read implements Store.
func (s *InProcess) Read(ctx context.Context, id string) (Kind, []byte, error) {
	if kind, data, ok := s.queued(id); ok {
		return kind, data, nil
	}
	if len(id) != 40 || !IsID(id) {
		return "", nil, missing(id)
	}
	if _, err := os.Lstat(loosePath(s.objects, id)); err != nil && s.indexSize() > indexLimit {
		return s.byProgram(ctx, id)
	}
	o, err := s.storage.EncodedObject(plumbing.AnyObject, plumbing.NewHash(id))
	if err != nil {
		// A gc beside us may have moved it to a pack that go-git has not seen, or
		// a pack that is not complete may have stopped it: git knows.
		s.storage = filesystem.NewStorage(osfs.New(s.repo.CommonDir), cache.NewObjectLRU(4*cache.MiByte))
		return s.byProgram(ctx, id)
	}
	r, err := o.Reader()
	if err != nil {
		return "", nil, unreadable(id, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return "", nil, unreadable(id, err)
	}
	kind := Kind(o.Type().String())
	if ID(s.format, kind, data) != id {
		return "", nil, unreadable(id, errMismatch)
	}
	return kind, data, nil
}

func (s *InProcess) byProgram(ctx context.Context, id string) (Kind, []byte, error) {
	if s.program == nil {
		s.program = NewProgram(s.repo)
	}
	return s.program.Read(ctx, id)
}

func (s *InProcess) indexSize() int64 {
	entries, err := os.ReadDir(filepath.Join(s.objects, "pack"))
	if err != nil {
		return 0
	}
	var size int64
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".idx") {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
	}
	return size
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
	if s.program != nil {
		return s.program.Close()
	}
	return nil
}
