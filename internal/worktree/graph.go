package worktree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Colours says whether a command's output is to be coloured, by color.ui.
func (w *Worktree) Colours(ctx context.Context, tty bool) bool {
	out, err := w.git.Command(ctx, "config", "--get-colorbool", "color.checkpoint", fmt.Sprint(tty)).Text()
	return err == nil && out == "true"
}

// GraphLine is one checkpoint or start commit in a drawing of all runs.
type GraphLine struct {
	Art     string // what git draws before it
	Entry   Entry
	Start   bool
	Lineage *refs.Lineage // of a start commit
	Gone    bool          // the run it descends from is not there
	Pruned  bool          // since it was pruned
	Tips    []RunInfo     // the runs whose newest commit it is
}

// Graph visits all runs as one graph, in the order and with the lines that
// `git log --graph` draws: git draws it. An empty Entry is a line of lines only.
func (w *Worktree) Graph(ctx context.Context, colour bool, yield func(GraphLine) bool) error {
	runs, err := w.List(ctx, true, "")
	if err != nil || len(runs) == 0 {
		return err
	}
	graph := w.derive(runs)
	tips, roots := w.graphEnds(ctx, runs)
	if len(tips) == 0 {
		return nil
	}
	shallow, err := w.cutAt(roots)
	if err != nil {
		return err
	}
	defer os.Remove(shallow)
	trailer := func(key string) string { return "%x1f%(trailers:key=" + key + ",valueonly,separator=%x20)" }
	format := "%x01%H%x1f%ct%x1f%s" + trailer(refs.TrailerRun) + trailer(refs.TrailerStep) + trailer(refs.TrailerKind) + trailer(refs.TrailerOutcome) + trailer(refs.TrailerLineage)
	args := []string{"log", "--graph", "--first-parent", "--no-show-signature", "--no-notes", "--no-decorate", "--format=" + format, "--stdin"}
	if colour {
		args = append(args, "--color=always")
	} else {
		args = append(args, "--color=never")
	}
	p, err := w.git.Command(ctx, args...).WithEnv("GIT_SHALLOW_FILE", shallow).Start()
	if err != nil {
		return err
	}
	go func() {
		io.WriteString(p.Stdin, strings.Join(tips, "\n")+"\n")
		p.Stdin.Close()
	}()
	pruned := w.prunedRuns(ctx)
	atTip := map[string][]RunInfo{}
	for _, r := range runs {
		atTip[r.Tip] = append(atTip[r.Tip], r)
	}
	lines := bufio.NewReader(p.Stdout)
	for {
		text, err := lines.ReadString('\n')
		line := graphLine(strings.TrimSuffix(text, "\n"), graph, atTip)
		line.Pruned = line.Gone && pruned[line.Lineage.Run]
		if text != "" && !yield(line) {
			p.Stop()
			return nil
		}
		if err != nil {
			break
		}
	}
	if err := p.Wait(); err != nil {
		return fault.New(fault.Integrity, "chain-broken", "draw the runs: %w", err).WithHint("git checkpoint verify lists what is damaged")
	}
	return nil
}

// graphEnds returns where the drawing begins and where it ends: the tips of
// the runs, and the start commits that stand on no checkpoint.
func (w *Worktree) graphEnds(ctx context.Context, runs []RunInfo) (tips, roots []string) {
	damaged := slices.ContainsFunc(runs, func(r RunInfo) bool { return r.Fault != "" })
	for _, r := range runs {
		if r.Fault != "" {
			w.warn("run '%s' cannot be drawn: %s", r.Run, r.Fault)
			continue
		}
		root := ""
		switch {
		case !r.Lineage.Inherits() && object.IsID(r.start):
			root = r.start
		case !r.Lineage.Inherits(), r.SourceGone, damaged:
			// Which run its history begins with only the chain tells.
			var err error
			if root, err = w.firstStart(ctx, r.Tip); err != nil {
				w.warn("run '%s' cannot be drawn: %v", r.Run, err)
				continue
			}
		}
		tips = append(tips, r.Tip)
		if root != "" {
			roots = append(roots, root)
		}
	}
	return tips, roots
}

// cutAt writes a file that makes git take commits for ones without parents, as
// it does where a shallow clone ends. To exclude what they stand on would
// exclude a run, too, that somebody has merged into it.
func (w *Worktree) cutAt(commits []string) (file string, err error) {
	have, err := os.ReadFile(filepath.Join(w.git.CommonDir, "shallow"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Fatal, "io", "draw the runs: %w", err)
	}
	f, err := os.CreateTemp("", "git-checkpoint-graph-")
	if err == nil {
		_, err = f.WriteString(string(have) + strings.Join(commits, "\n") + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return "", fault.New(fault.Fatal, "io", "draw the runs: %w", err)
	}
	return f.Name(), nil
}

// firstStart is the start commit that all of a chain stands on.
func (w *Worktree) firstStart(ctx context.Context, tip string) (string, error) {
	first := ""
	err := w.repo.Walk(ctx, tip, func(c *refs.Checkpoint) bool {
		if c.Kind == refs.KindStart {
			first = c.ID
		}
		return true
	})
	return first, err
}

func graphLine(text string, graph *lineage.Graph, tips map[string][]RunInfo) GraphLine {
	art, record, ok := strings.Cut(text, "\x01")
	line := GraphLine{Art: art}
	fields := strings.Split(record, "\x1f")
	if !ok || len(fields) != 8 {
		return line
	}
	line.Entry = Entry{
		Checkpoint: fields[0], Subject: fields[2], Run: fields[3], StepName: fields[4], StepKind: fields[5], Outcome: fields[6],
	}
	line.Start = fields[5] == refs.KindStart
	if line.Start {
		line.Lineage = refs.ParseLineage(fields[7])
	}
	if line.Lineage != nil {
		n := graph.Node(line.Lineage.Run)
		line.Gone = n == nil || n.Missing
	}
	line.Tips = tips[fields[0]]
	return line
}
