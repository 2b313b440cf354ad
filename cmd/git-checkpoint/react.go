package main

import "github.com/git-checkpoint/git-checkpoint/internal/react"

func reactCommand() *command {
	return &command{
		name:     "react",
		summary:  "let an orchestrator drive checkpoints by events",
		synopsis: []string{""},
		description: `Reads events as JSON lines from standard input until it ends, and answers each by JSON lines on standard output; docs/events.md has every field. Several projects may be driven at once.

TurnCompleted (thread_id, turn_id, project_path) saves a checkpoint of kind turn and answers CreateCheckpoint (thread_id, turn_id, git_ref), or CheckpointSkipped with the reason. The same turn told again is answered with the same checkpoint.

RestoreCheckpoint (thread_id, git_ref, project_path) restores as git checkpoint restore --reset does and answers CheckpointRestored, then ThreadStatusChanged with the status Idle.

What goes wrong is answered by Error (line, code, message). Other events are ignored.`,
		examples: []example{
			{"git checkpoint react", "read events, answer them"},
		},
		run: func(c *call) error {
			return react.React(c.ctx, c.stdin, c.Raw())
		},
	}
}
