package refs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/git-checkpoint/git-checkpoint/internal/sample"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// List the runs of a repository and the checkpoints of each, and find one by
// its address.
func Example() {
	ctx := context.Background()
	dir, remove := sample.Repository()
	defer remove()

	repo, err := refs.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()

	runs, err := repo.Runs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range runs {
		fmt.Println(run.Name)
		chain, _, err := repo.Chain(ctx, run.Tip)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range chain {
			fmt.Printf("  %d %s (%s) %s\n", c.Number, c.Step, c.Kind, c.Outcome)
		}
	}

	c, err := repo.Resolve(ctx, "task@implement")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("session:", c.Session)

	_, err = repo.Resolve(ctx, "task@implment")
	var why *refs.Error
	if errors.Is(err, refs.ErrNotFound) && errors.As(err, &why) {
		fmt.Printf("%s: %v; %s\n", why.Code, err, why.Hint)
	}

	// Output:
	// task
	//   1 plan (agent) succeeded
	//   2 fetch (deterministic) succeeded
	//   3 implement (agent) succeeded
	//   4 test (deterministic) succeeded
	// session: session-2
	// no-such-step: run 'task' has no step 'implment'; did you mean 'task@implement'?
}
