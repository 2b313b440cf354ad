package lineage

import (
	"context"
	"errors"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Load reads every run of a repository and what its journal says, in bulk,
// and builds the graph of them. A run that cannot be read does not hide the
// others: its node has a Fault.
func Load(ctx context.Context, repo *refs.Repository) (*Graph, error) {
	list, err := repo.List(ctx, "runs", refs.RunPrefix, refs.NotesPrefix)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	noted := map[string]string{} // what each run's notes ref holds
	for _, ref := range list {
		if run, ok := strings.CutPrefix(ref.Name, refs.RunPrefix); ok {
			nodes = append(nodes, Node{Run: run, Tip: ref.ID})
		} else {
			noted[strings.TrimPrefix(ref.Name, refs.NotesPrefix)] = ref.ID
		}
	}
	if len(nodes) > 0 {
		batch, err := object.OpenBatch(ctx, repo.Git())
		if err != nil {
			return nil, err
		}
		defer batch.Close()
		if err := readTips(batch, nodes); err != nil {
			return nil, err
		}
		if err := readJournals(batch, nodes, noted); err != nil {
			return nil, err
		}
	}
	return NewGraph(nodes), nil
}

// readTips reads what the newest commit of each run says.
func readTips(batch *object.Batch, nodes []Node) error {
	tips := make([]string, len(nodes))
	for i := range nodes {
		tips[i] = nodes[i].Tip
	}
	return batch.ReadAll(tips, func(i int, id string, _ object.Kind, data []byte, err error) error {
		n := &nodes[i]
		if err != nil {
			n.Fault = lacks("its tip", err)
			return nil
		}
		c, ok, err := refs.ParseCheckpoint(id, data)
		if err != nil || !ok {
			n.Fault = "its tip is no checkpoint"
			return nil
		}
		n.Checkpoints, n.At, n.Start = c.Number, c.At, c.Start
		if c.Kind == refs.KindStart {
			n.Lineage = c.Lineage
		}
		return nil
	})
}

func lacks(what string, err error) string {
	if errors.Is(err, object.ErrMissing) {
		return what + " is missing"
	}
	return what + " is damaged: " + err.Error()
}

// readJournals reads the note on each run's start commit: at any fan-out, the
// likely ones first. It names the commits of the notes, not their refs, which
// git would look for in many places.
func readJournals(batch *object.Batch, nodes []Node, noted map[string]string) error {
	var left, without []*Node
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Fault != "" || !object.IsID(n.Start):
		case noted[n.Run] == "":
			without = append(without, n)
		default:
			left = append(left, n)
		}
	}
	for levels := 0; levels <= 2 && len(left) > 0; levels++ {
		names := make([]string, len(left))
		for i, n := range left {
			names[i] = noted[n.Run] + ":" + fanOut(n.Start, levels)
		}
		var missed []*Node
		err := batch.ReadAll(names, func(i int, _ string, _ object.Kind, data []byte, err error) error {
			switch {
			case errors.Is(err, object.ErrMissing):
				missed = append(missed, left[i])
			case err != nil:
				left[i].Fault = err.Error()
			default:
				left[i].read(data)
			}
			return nil
		})
		if err != nil {
			return err
		}
		left = missed
	}
	return readStarts(batch, append(left, without...))
}

// read takes in what a journal says.
func (n *Node) read(journal []byte) {
	lines, err := notes.Parse(journal)
	var state notes.State
	if err == nil {
		state, err = notes.Derive(lines)
	}
	if err != nil {
		n.Fault = err.Error()
		return
	}
	n.State, n.Lineage = state, state.Created.Lineage
	if !state.CreatedAt.IsZero() {
		n.At = state.CreatedAt
	}
}

// readStarts takes from the start commits what no journal says.
func readStarts(batch *object.Batch, nodes []*Node) error {
	starts := make([]string, len(nodes))
	for i, n := range nodes {
		starts[i] = n.Start
	}
	return batch.ReadAll(starts, func(i int, id string, _ object.Kind, data []byte, err error) error {
		if err != nil {
			nodes[i].Fault = lacks("its start commit", err)
			return nil
		}
		if c, ok, err := refs.ParseCheckpoint(id, data); err == nil && ok {
			nodes[i].Lineage, nodes[i].At = c.Lineage, c.At
		}
		return nil
	})
}

// fanOut is the path of an object's note behind some levels of directories.
func fanOut(id string, levels int) string {
	var b strings.Builder
	for range levels {
		b.WriteString(id[:2] + "/")
		id = id[2:]
	}
	return b.String() + id
}
