package agent

import (
	"context"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Act does in a worktree what an event calls for.
func Act(ctx context.Context, w *worktree.Worktree, e Event) error {
	switch e.Type {
	case SessionStart:
		_, err := open(ctx, w, e)
		return err
	case Prompt:
		return prompt(ctx, w, e)
	case TurnEnd:
		return turnEnd(ctx, w, e)
	case SubagentEnd:
		return subagentEnd(ctx, w, e)
	case SessionEnd:
		return sessionEnd(ctx, w, e)
	}
	return nil
}

// open finds or makes the session's run, and saves first what the user
// changed, so that what follows is the agent's alone.
func open(ctx context.Context, w *worktree.Worktree, e Event) (run string, err error) {
	run, err = w.OpenSession(ctx, worktree.Session{ID: e.Session, Transcript: e.Transcript, Parent: e.Parent})
	if err != nil {
		return "", err
	}
	return run, save(ctx, w, e, worktree.SaveRequest{Run: run, Kind: refs.KindUser, Message: "what the user had changed"})
}

func prompt(ctx context.Context, w *worktree.Worktree, e Event) error {
	if _, err := open(ctx, w, e); err != nil {
		return err
	}
	return w.Remember(e.Session, e.Prompt)
}

// save saves a part of a session, if anything changed.
func save(ctx context.Context, w *worktree.Worktree, e Event, req worktree.SaveRequest) error {
	req.Session, req.Transcript, req.IfChanged, req.Automatic = e.Session, e.Transcript, true, true
	_, _, err := w.SaveTurn(ctx, req)
	return err
}

// ensure is the run of a session some of whose earlier events never came.
func ensure(ctx context.Context, w *worktree.Worktree, e Event) (string, error) {
	run, err := w.RunOf(ctx, e.Session)
	if err != nil || run != "" {
		return run, err
	}
	return w.OpenSession(ctx, worktree.Session{ID: e.Session, Transcript: e.Transcript, Parent: e.Parent})
}

func turnEnd(ctx context.Context, w *worktree.Worktree, e Event) error {
	run, err := ensure(ctx, w, e)
	if err != nil {
		return err
	}
	subject := w.Recall(e.Session)
	if subject == "" {
		subject, _, _ = strings.Cut(strings.TrimSpace(e.Prompt), "\n")
	}
	if w.SubjectTemplate() != "" {
		subject = "" // the team's template wins
	}
	return save(ctx, w, e, worktree.SaveRequest{Run: run, Kind: refs.KindTurn, Turn: e.Turn, Message: subject})
}

func subagentEnd(ctx context.Context, w *worktree.Worktree, e Event) error {
	run, err := ensure(ctx, w, e)
	if err != nil {
		return err
	}
	step := e.Subagent
	if refs.CheckStep(step) != nil {
		step = "subagent"
	}
	return save(ctx, w, e, worktree.SaveRequest{Run: run, Kind: refs.KindAgent, Step: step})
}

// sessionEnd saves what a turn that was broken off has left, and ends the run.
func sessionEnd(ctx context.Context, w *worktree.Worktree, e Event) error {
	run, err := w.RunOf(ctx, e.Session)
	if err != nil || run == "" {
		return err
	}
	if err := save(ctx, w, e, worktree.SaveRequest{Run: run, Kind: refs.KindTurn, Message: "what the session left"}); err != nil {
		return err
	}
	w.Forget(e.Session)
	_, err = w.End(ctx, run, notes.Completed)
	return err
}
