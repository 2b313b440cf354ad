package worktree

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
	input, err := w.graphInput(ctx, runs)
	if err != nil {
		return err
	}
	trailer := func(key string) string { return "%x1f%(trailers:key=" + key + ",valueonly,separator=%x20)" }
	format := "%x01%H%x1f%ct%x1f%s" + trailer(refs.TrailerRun) + trailer(refs.TrailerStep) + trailer(refs.TrailerKind) + trailer(refs.TrailerOutcome) + trailer(refs.TrailerLineage)
	args := []string{"log", "--graph", "--first-parent", "--no-show-signature", "--no-notes", "--no-decorate", "--format=" + format, "--stdin"}
	if colour {
		args = append(args, "--color=always")
	} else {
		args = append(args, "--color=never")
	}
	p, err := w.git.Command(ctx, args...).Start()
	if err != nil {
		return err
	}
	go func() {
		io.WriteString(p.Stdin, input)
		p.Stdin.Close()
	}()
	tips := map[string][]RunInfo{}
	for _, r := range runs {
		tips[r.Tip] = append(tips[r.Tip], r)
	}
	lines := bufio.NewReader(p.Stdout)
	for {
		text, err := lines.ReadString('\n')
		if text != "" && !yield(graphLine(strings.TrimSuffix(text, "\n"), graph, tips)) {
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

// graphInput names the tips, and excludes what the runs stand on.
func (w *Worktree) graphInput(ctx context.Context, runs []RunInfo) (string, error) {
	batch, err := object.OpenBatch(ctx, w.git)
	if err != nil {
		return "", err
	}
	defer batch.Close()
	var input strings.Builder
	var starts []string
	damaged := slices.ContainsFunc(runs, func(r RunInfo) bool { return r.Fault != "" })
	for _, r := range runs {
		if r.Fault != "" {
			w.warn("run '%s' cannot be drawn: %s", r.Run, r.Fault)
			continue
		}
		start := r.start
		if (r.SourceGone || damaged) && r.Lineage.Inherits() {
			// Which run its history begins with only the chain tells.
			if start, err = w.firstStart(ctx, r.Tip); err != nil {
				w.warn("run '%s' cannot be drawn: %v", r.Run, err)
				continue
			}
		}
		input.WriteString(r.Tip + "\n")
		if object.IsID(start) {
			starts = append(starts, start)
		}
	}
	err = batch.ReadAll(starts, func(_ int, found bool, id string, _ object.Kind, data []byte) error {
		if !found {
			return nil
		}
		c, ok, err := refs.ParseCheckpoint(id, data)
		if err == nil && ok && !c.Lineage.Inherits() && c.Previous() != "" {
			input.WriteString("^" + c.Previous() + "\n")
		}
		return nil
	})
	return input.String(), err
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
