package worktree

import (
	"context"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/share"
)

// ShareRequest asks for a push or a pull.
type ShareRequest struct {
	Remote   string
	Runs     []string // push: only these; empty: all
	Progress bool     // somebody watches, and can be asked
	Timeout  time.Duration
	Secrets  string // block, warn or off; empty: as configured
}

func (w *Worktree) shareOptions(req ShareRequest) share.Options {
	if req.Remote == "" {
		req.Remote = w.config.PushRemote
	}
	return share.Options{
		Remote: req.Remote, Runs: req.Runs, Identity: w.config.Identity, Progress: req.Progress, Timeout: req.Timeout,
	}
}

// Push sends runs to a remote, after it took what the remote has.
func (w *Worktree) Push(ctx context.Context, req ShareRequest) (*share.Result, error) {
	o := w.shareOptions(req)
	mode := req.Secrets
	if mode == "" {
		mode = w.config.PushSecrets
	}
	if mode != secretsOff {
		o.Scan = func(ctx context.Context, known, tips []string) error {
			return w.scan(ctx, mode, known, tips)
		}
	}
	w.warnMirror(o.Remote)
	return share.Push(ctx, w.repo, o)
}

// Pull takes what a remote has.
func (w *Worktree) Pull(ctx context.Context, req ShareRequest) (*share.Result, error) {
	return share.Pull(ctx, w.repo, w.shareOptions(req))
}

// warnMirror warns of a remote whose own refspec pushes local refs too.
func (w *Worktree) warnMirror(remote string) {
	if v, ok := w.git.Config.Get("remote." + remote + ".mirror"); ok && v != "false" {
		w.warn("remote '%s' is a mirror: a plain git push sends the refs below refs/checkpoints/local too", remote)
	}
	for _, spec := range w.git.Config["remote."+remote+".push"] {
		if spec == "refs/*:refs/*" || spec == "+refs/*:refs/*" {
			w.warn("remote '%s' has the refspec '%s': a plain git push sends the refs below refs/checkpoints/local too", remote, spec)
		}
	}
}
