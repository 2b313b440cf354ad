package worktree

import (
	"context"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/share"
	"github.com/git-checkpoint/git-checkpoint/lineage"
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
		o.Scan = func(ctx context.Context, known, tips []string) (map[string]bool, error) {
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

// hookTimeout is how long a push of code waits for its checkpoints to be
// shared, for each call of git.
const hookTimeout = 30 * time.Second

// SharesWithPush says whether git push is to share checkpoints too.
func (w *Worktree) SharesWithPush() bool { return w.Automatic() && w.config.PushAuto }

// ShareWithPush shares the runs whose commits are among those that git tells
// its pre-push hook: lines "<ref> <id> <remote ref> <remote id>". The result
// is nil where there is none.
func (w *Worktree) ShareWithPush(ctx context.Context, remote, pushed string) (*share.Result, error) {
	commits, err := w.pushedCommits(ctx, pushed)
	if err != nil || len(commits) == 0 {
		return nil, err
	}
	graph, err := lineage.Load(ctx, w.repo)
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, n := range graph.Nodes() {
		if n.Missing || n.Fault != "" {
			continue
		}
		c, err := w.repo.ReadCheckpoint(ctx, n.Tip)
		if err == nil && commits[c.Head] {
			runs = append(runs, n.Run)
		}
	}
	if len(runs) == 0 {
		return nil, nil
	}
	if w.config.PushRemote != "" {
		remote = ""
	}
	return w.Push(ctx, ShareRequest{Remote: remote, Runs: runs, Timeout: hookTimeout})
}

// pushedCommits lists the commits that a push publishes, and its tips.
func (w *Worktree) pushedCommits(ctx context.Context, pushed string) (map[string]bool, error) {
	commits := map[string]bool{}
	var input strings.Builder
	for line := range strings.Lines(pushed) {
		fields := strings.Fields(line)
		if len(fields) != 4 || strings.Trim(fields[1], "0") == "" || !strings.HasPrefix(fields[0], "refs/") && fields[0] != "HEAD" {
			continue
		}
		commits[fields[1]] = true
		input.WriteString(fields[1] + "\n")
		if strings.Trim(fields[3], "0") != "" {
			input.WriteString("^" + fields[3] + "\n")
		}
	}
	if input.Len() == 0 {
		return nil, nil
	}
	out, err := w.git.Command(ctx, "rev-list", "--stdin", "--ignore-missing", "--not", "--remotes").WithInput([]byte(input.String())).Output()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "list what is pushed: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		commits[strings.TrimSpace(line)] = true
	}
	return commits, nil
}
