package refs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// Below lists the refs below a prefix that ends in a slash, by name. For a
// few of them it costs less than List, since it starts no git where refs are
// files. A damaged ref is ErrIntegrity.
func (r *Repository) Below(ctx context.Context, prefix string) ([]NamedRef, error) {
	if !r.files {
		return r.List(ctx, "the refs below "+prefix, prefix)
	}
	// Loose refs first: one that is packed meanwhile is then seen twice, not
	// missed.
	found := map[string]string{}
	if err := r.looseBelow(ctx, prefix, found); err != nil {
		return nil, err
	}
	packed, err := r.readPacked()
	if err != nil {
		return nil, damagedRef("packed-refs", err)
	}
	length, mark := 2*r.git.HashLen(), []byte(" "+prefix)
	for from := 0; ; {
		i := bytes.Index(packed[from:], mark)
		if i < 0 {
			break
		}
		i += from
		from = i + 1
		line, _, _ := bytes.Cut(packed[i+1:], []byte("\n"))
		name, begin := string(line), i-length
		if begin < 0 || begin > 0 && packed[begin-1] != '\n' || !object.IsID(string(packed[begin:i])) {
			continue
		}
		if found[name] == "" {
			found[name] = string(packed[begin:i])
		}
	}
	list := make([]NamedRef, 0, len(found))
	for name, id := range found {
		list = append(list, NamedRef{Name: name, ID: id})
	}
	slices.SortFunc(list, func(a, b NamedRef) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (r *Repository) looseBelow(ctx context.Context, prefix string, found map[string]string) error {
	entries, err := os.ReadDir(filepath.Join(r.git.CommonDir, filepath.FromSlash(prefix)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return damagedRef(prefix, err)
	}
	for _, e := range entries {
		name := prefix + e.Name()
		if e.IsDir() {
			if err := r.looseBelow(ctx, name+"/", found); err != nil {
				return err
			}
			continue
		}
		if strings.HasSuffix(name, ".lock") {
			continue
		}
		id, err := r.Ref(ctx, name)
		if err != nil {
			return err
		}
		if id != "" {
			found[name] = id
		}
	}
	return nil
}
