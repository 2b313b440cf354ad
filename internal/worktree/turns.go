package worktree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// turn finds the checkpoint of a turn in a run's chain.
//
// A hook asks this at every turn, and the answer is no as a rule, for which
// the whole chain has to be known. So it is remembered what the chain held, in
// a file that may be lost: a line a checkpoint of a turn, oldest first, with
// the checkpoint's id and what turnKey gives; the last line, which may be of
// no turn, is how far the chain was read.
func (w *Worktree) turn(ctx context.Context, run, session, turn string) (*refs.Checkpoint, error) {
	tip, err := w.repo.Ref(ctx, refs.RunRef(run))
	if err != nil || tip == "" {
		return nil, err
	}
	is := func(c *refs.Checkpoint) bool {
		return c.Turn == turn && c.Session == session && c.Kind != refs.KindUser
	}
	file := w.memoryFile("run " + run)
	known, _ := os.ReadFile(file)
	through := lastTurn(known)
	if through == tip {
		return w.knownTurn(ctx, known, turnKey(session, turn), is)
	}
	var found *refs.Checkpoint
	var news [][]byte // newest first
	met := false
	err = w.repo.Walk(ctx, tip, func(c *refs.Checkpoint) bool {
		if met = c.ID == through; met {
			return false
		}
		if is(c) {
			found = c
			return false
		}
		key := "-"
		if c.Turn != "" && c.Kind != refs.KindUser {
			key = turnKey(c.Session, c.Turn)
		}
		if key != "-" || c.ID == tip {
			news = append(news, fmt.Appendf(nil, "%s %s\n", c.ID, key))
		}
		return true
	})
	if err != nil || found != nil {
		return found, err
	}
	if !met {
		known = nil // of another chain, or none
	}
	for i := len(news) - 1; i >= 0; i-- {
		known = append(known, news[i]...)
	}
	w.rememberTurns(file, known)
	return w.knownTurn(ctx, known, turnKey(session, turn), is)
}

// turnKey stands for a turn of a session.
func turnKey(session, turn string) string {
	sum := sha256.Sum256([]byte(session + "\x00" + turn))
	return hex.EncodeToString(sum[:16])
}

// lastTurn is the id in the last line, "" if there is none.
func lastTurn(known []byte) string {
	if len(known) == 0 || known[len(known)-1] != '\n' {
		return ""
	}
	line := known[bytes.LastIndexByte(known[:len(known)-1], '\n')+1:]
	id, _, _ := bytes.Cut(line, []byte(" "))
	return string(id)
}

// knownTurn looks for a turn among those that are remembered.
func (w *Worktree) knownTurn(ctx context.Context, known []byte, key string, is func(*refs.Checkpoint) bool) (*refs.Checkpoint, error) {
	at := bytes.Index(known, []byte(" "+key+"\n"))
	if at < 0 {
		return nil, nil
	}
	id := string(known[bytes.LastIndexByte(known[:at], '\n')+1 : at])
	c, err := w.repo.ReadCheckpoint(ctx, id)
	if err != nil || !is(c) {
		return nil, err
	}
	return c, nil
}

// rememberTurns keeps the list. That it cannot be kept costs time only.
func (w *Worktree) rememberTurns(file string, known []byte) {
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	err := os.MkdirAll(filepath.Dir(file), 0o777)
	if err == nil {
		err = os.WriteFile(temporary, known, 0o600)
	}
	if err == nil {
		err = os.Rename(temporary, file)
	}
	if err != nil {
		os.Remove(temporary)
		git.Trace("turns: %v", err)
	}
}
