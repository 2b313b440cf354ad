package lineage_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/git-checkpoint/git-checkpoint/internal/sample"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// S0.13: an orchestrator lists the runs, rewinds one to a step, and forks it from
// another. Nothing but refs and notes is touched.
func Example() {
	ctx := context.Background()
	dir, remove := sample.Repository()
	defer remove()

	repo, err := refs.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()

	answer, err := lineage.Rewind(ctx, repo, lineage.Request{
		Source: "task", Step: "implement", Before: true, Run: "again", Instructions: "use the parser", By: sample.Person,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Lineage.Kind, answer.Lineage.Run)
	for _, s := range answer.Skip {
		fmt.Println("skip", s.StepName)
	}
	fmt.Println(answer.Resume.Mode, answer.Resume.Step, "in", answer.Resume.SessionID)
	fmt.Println("pending", answer.Pending)

	// An answer that was lost is asked for again.
	answer, err = lineage.Rewind(ctx, repo, lineage.Request{
		Source: "task", Step: "implement", Before: true, Run: "again", By: sample.Person,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("existed:", answer.Existed)

	// Whatever was archived can be forked.
	if _, err := lineage.Fork(ctx, repo, lineage.Request{Source: "task", Step: "plan", Run: "other", By: sample.Person}); err != nil {
		log.Fatal(err)
	}

	graph, err := lineage.Load(ctx, repo)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range graph.Nodes() {
		from := ""
		if n.Lineage != nil {
			from = fmt.Sprintf(", %s %s@%s", n.Lineage.Kind, n.Lineage.Run, n.Lineage.Step)
		}
		fmt.Printf("%s: %s, archived %v%s\n", n.Run, graph.Status(n.Run), graph.Archived(n.Run), from)
	}

	// Output:
	// rewound_from task
	// skip fetch
	// redo implement in session-1
	// pending [implement test]
	// existed: true
	// again: open, archived false, rewound_from task@fetch
	// other: open, archived false, forked_from task@plan
	// task: stopped, archived true
}

// While a process executes a run, it holds it: others can fork the run, but not
// rewind it.
func ExampleHold() {
	ctx := context.Background()
	dir, remove := sample.Repository()
	defer remove()

	repo, err := refs.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()

	release, err := lineage.Hold(ctx, repo, "task", "run", 0)
	if err != nil {
		log.Fatal(err)
	}
	rewind := lineage.Request{Source: "task", Step: "plan", Run: "again", By: sample.Person}
	_, err = lineage.Rewind(ctx, repo, rewind)
	fmt.Println(errors.Is(err, refs.ErrConflict))

	release()
	answer, err := lineage.Rewind(ctx, repo, rewind)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Run)

	// Output:
	// true
	// again
}
