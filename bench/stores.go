package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// stores measures what one command asks of its object store: the work and
// the start of the store, not the start of the command.
func (b *bench) stores() error {
	dir, err := b.repository(repository{fill: func(dir string) error { return generate(dir, 2000) }, keep: true}, "stores")
	if err != nil {
		return err
	}
	ctx := context.Background()
	repo, err := git.Open(ctx, dir)
	if err != nil {
		return err
	}
	packed, err := ids(dir, 1000)
	if err != nil {
		return err
	}
	loose, err := command(dir, "git", "hash-object", "-w", "--stdin").input("a loose object\n").output()
	if err != nil {
		return err
	}
	loose = strings.TrimSpace(loose)
	serial := 0
	works := []struct {
		name string
		work func(s object.Store) error
	}{
		{"read one loose object", func(s object.Store) error { _, _, err := s.Read(ctx, loose); return err }},
		{"read one packed object", func(s object.Store) error { _, _, err := s.Read(ctx, packed[0]); return err }},
		{"read 1,000 packed objects", func(s object.Store) error {
			for _, id := range packed {
				if _, _, err := s.Read(ctx, id); err != nil {
					return err
				}
			}
			return nil
		}},
		{"write five objects", func(s object.Store) error {
			for range 5 {
				serial++
				s.Put(object.Blob, fmt.Appendf(nil, "%d at %d\n", serial, time.Now().UnixNano()))
			}
			return s.Flush(ctx)
		}},
	}
	fmt.Printf("%s, %d cores, %s, %s\n\n| work | in process | git program |\n|---|---|---|\n", runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), b.gitVersion(), time.Now().Format(time.DateOnly))
	for _, w := range works {
		var medians [2]time.Duration
		for i, open := range []func(*git.Repo) object.Store{
			func(r *git.Repo) object.Store { return object.NewInProcess(r) },
			func(r *git.Repo) object.Store { return object.NewProgram(r) },
		} {
			var times []time.Duration
			for range 21 {
				begun := time.Now()
				s := open(repo)
				err := w.work(s)
				s.Close()
				if err != nil {
					return err
				}
				times = append(times, time.Since(begun))
			}
			medians[i] = median(times)
		}
		fmt.Printf("| %s | %.2f ms | %.2f ms |\n", w.name, float64(medians[0].Microseconds())/1000, float64(medians[1].Microseconds())/1000)
	}
	return nil
}

// ids lists objects of a repository's pack.
func ids(dir string, count int) ([]string, error) {
	out, err := command(dir, "git", "rev-list", "--objects", "--no-object-names", "HEAD").output()
	all := strings.Fields(out)
	if err != nil || len(all) < count {
		return nil, fmt.Errorf("list objects: %d, %w", len(all), err)
	}
	picked := make([]string, count)
	for i := range picked {
		picked[i] = all[i*len(all)/count]
	}
	return picked, nil
}
