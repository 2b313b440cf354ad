package rerun

import (
	"context"

	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Descend returns what a rewind or fork of a planned run adds to the new run:
// the pinned plan, an integration branch of its own at the pin, and the budget
// that is left. What was done at or before the pin stays done; a rewind keeps
// the key of deliveries, a fork gets a new one.
func Descend(ctx context.Context, repo *refs.Repository, source, seed, prefix string, identity func() (refs.Identity, error)) (func(context.Context, *refs.Transaction, *notes.Book, *refs.Checkpoint, *lineage.Answer) error, error) {
	l, err := Load(ctx, repo, source, false)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx *refs.Transaction, book *notes.Book, start *refs.Checkpoint, a *lineage.Answer) error {
		by, err := identity()
		if err != nil {
			return err
		}
		branch, err := freeBranch(ctx, repo, prefix+a.Run)
		if err != nil {
			return err
		}
		planned := l.Progress.Planned
		planned.Branch = branch
		planned.Budget = l.Progress.rest()
		if a.Lineage.Kind != refs.RewoundFrom {
			planned.Key = deliveryKey(a.Run, start.ID)
		}
		if err := book.Add(ctx, start.ID, by.When, EventPlanned, planned); err != nil {
			return err
		}
		if l.Seed != nil {
			if err := book.Add(ctx, start.ID, by.When, EventSeeded, l.seeded); err != nil {
				return err
			}
		}
		if l.Progress.Approved {
			if err := book.Add(ctx, start.ID, by.When, EventApproved, map[string]string{"by": by.String(), "with": source}); err != nil {
				return err
			}
		}
		status := notes.Running
		if l.held() {
			status = notes.Held
		}
		if err := book.Add(ctx, start.ID, by.When, notes.EventStatus, map[string]string{"status": status}); err != nil {
			return err
		}
		tx.Set(refs.SeedRef(a.Run), seed, "")
		tx.Set(branch, a.Target.Head, "")
		return nil
	}, nil
}

// rest is what is left of a budget.
func (p *Progress) rest() Budget {
	b := p.Planned.Budget
	if n := b.Calls(); n > 0 {
		b.MaxSteps, b.MaxInvocations = 0, max(n-p.Calls, 1)
	}
	if b.MaxMinutes > 0 {
		b.MaxMinutes = max(b.MaxMinutes-int(p.Minutes), 1)
	}
	return b
}
