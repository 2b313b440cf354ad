package notes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/git-checkpoint/git-checkpoint/internal/sample"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Read what the notes of a run say: its journal, which stands on the run's
// start commit, and the record of a checkpoint; then add an event of one's own
// to the journal.
func Example() {
	ctx := context.Background()
	dir, remove := sample.Repository()
	defer remove()

	repo, err := refs.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()
	plan, err := repo.Resolve(ctx, "task@plan")
	if err != nil {
		log.Fatal(err)
	}

	book, err := notes.OpenBook(ctx, repo, "task")
	if err != nil {
		log.Fatal(err)
	}
	state, err := book.State(ctx, plan.Start)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, created %s by %s\n", state.Said, state.CreatedAt.Format("2006-01-02"), state.Created.By)
	record, err := book.Record(ctx, plan.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s, %s\n", record.StepName, record.Outcome, record.SessionID)

	// Who reads the journal passes over events that it does not know.
	if err := book.Add(ctx, plan.Start, sample.Person.When, "ticket", map[string]string{"number": "42"}); err != nil {
		log.Fatal(err)
	}
	tx := repo.Begin("an example")
	if err := book.Commit(ctx, tx, "note the ticket", sample.Person); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}

	if book, err = notes.OpenBook(ctx, repo, "task"); err != nil {
		log.Fatal(err)
	}
	lines, err := book.Lines(ctx, plan.Start)
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range lines {
		fmt.Println(line.Event)
	}
	fmt.Println(string(lines[1].Fields()["number"]))

	// Output:
	// open, created 2026-11-30 by A Person <person@example.org>
	// plan: succeeded, session-1
	// created
	// ticket
	// "42"
}
