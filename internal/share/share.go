// Package share knows how checkpoints travel between clones, by git's own
// remotes: what is fetched is merged so that clones which meet at one remote
// end equal, whatever the order, and what is pushed never forces anything.
package share

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Options say with whom and how to share.
type Options struct {
	Remote   string   // a configured remote or a URL; empty: the one that git would push to
	Runs     []string // push: only these; empty: all
	Identity func() (refs.Identity, error)
	Progress bool          // git may show its progress and ask, on the terminal
	Timeout  time.Duration // of each call of git that goes over the network; 0: none
	// Scan looks for secrets in what would be pushed; nil: nobody does. It
	// returns the blobs that hold some: the runs that reach them are held back.
	Scan func(ctx context.Context, known []string, tips []string) (dirty map[string]bool, err error)
}

// Diverged is a run that two clones went on with under one name: the remote's
// keeps the name, ours is this run now.
type Diverged struct {
	Run string `json:"run"`
	New string `json:"new"`
}

// Refusal is a ref that the remote did not take.
type Refusal struct {
	Ref    string `json:"ref"`
	Reason string `json:"reason"` // in the remote's, or git's, words
}

// Result is what an exchange did.
type Result struct {
	Remote   string     `json:"remote"`
	Pushed   []string   `json:"pushed"` // runs
	Pulled   []string   `json:"pulled"` // runs that are new here or went on
	Diverged []Diverged `json:"diverged"`
	Refused  []Refusal  `json:"refused"`
	Held     []string   `json:"held,omitempty"`   // runs that were held back, since they would publish a secret
	Left     []Refusal  `json:"left,omitempty"`   // what of the remote's could not be merged, and so is not sent either
	Pruned   []string   `json:"pruned,omitempty"` // runs that stay pruned here
}

// exchange is one push or pull under way.
type exchange struct {
	repo   *refs.Repository
	o      Options
	name   string // of the remote's refs here
	gone   map[string][]Pruned
	moved  []Refusal // refs that the remote did not take because it has moved
	result *Result
}

func open(ctx context.Context, repo *refs.Repository, o Options) (*exchange, error) {
	if o.Remote == "" {
		remote, err := defaultRemote(ctx, repo)
		if err != nil {
			return nil, err
		}
		o.Remote = remote
	}
	x := &exchange{repo: repo, o: o, name: o.Remote}
	if _, ok := repo.Git().Config.Get("remote." + o.Remote + ".url"); !ok {
		// A URL has no name to keep its refs under.
		sum := sha256.Sum256([]byte(o.Remote))
		x.name = "url-" + hex.EncodeToString(sum[:6])
	}
	x.result = &Result{Remote: o.Remote, Pushed: []string{}, Pulled: []string{}, Diverged: []Diverged{}, Refused: []Refusal{}}
	return x, nil
}

// defaultRemote is where git would push the current branch to: not
// necessarily one that is called origin.
func defaultRemote(ctx context.Context, repo *refs.Repository) (string, error) {
	config := repo.Git().Config
	if head, err := repo.Head(ctx); err == nil && head.Branch != "" {
		branch := strings.TrimPrefix(head.Branch, "refs/heads/")
		for _, key := range []string{"branch." + branch + ".pushremote", "remote.pushdefault", "branch." + branch + ".remote"} {
			if v, ok := config.Get(key); ok && v != "" && v != "." {
				return v, nil
			}
		}
	}
	remotes := slices.DeleteFunc(config.Subsections("remote"), func(name string) bool {
		_, ok := config.Get("remote." + name + ".url")
		return !ok
	})
	switch {
	case slices.Contains(remotes, "origin"):
		return "origin", nil
	case len(remotes) == 1:
		return remotes[0], nil
	case len(remotes) == 0:
		return "", fault.New(fault.Invalid, "no-remote", "this repository has no remote").WithHint("git remote add <name> <url> makes one")
	}
	return "", fault.New(fault.Invalid, "which-remote", "which remote is meant is not clear: there are %s", strings.Join(remotes, ", ")).
		WithHint("name one")
}

// remoteRef is where a ref of the remote is kept here: kind is runs, notes,
// seeds, or pruned.
func (x *exchange) remoteRef(kind, run string) string {
	ref := refs.RemotePrefix + x.name + "/" + kind
	if run != "" {
		ref += "/" + run
	}
	return ref
}

// network starts a call of git that goes to the remote, with the user's ssh,
// credentials and proxies.
func (x *exchange) network(ctx context.Context, args ...string) (*git.Cmd, context.CancelFunc) {
	cancel := context.CancelFunc(func() {})
	if x.o.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, x.o.Timeout, fmt.Errorf("the remote '%s' did not answer within %v", x.o.Remote, x.o.Timeout))
	}
	c := x.repo.Git().Command(ctx, args...).WithEnv("LC_ALL", "C")
	c.Group = !x.o.Progress
	if x.o.Progress {
		c.Env = append(c.Env, "GIT_TERMINAL_PROMPT=1")
		c.Echo = os.Stderr
	} else if _, configured := x.repo.Git().Config.Get("core.sshcommand"); !configured && os.Getenv("GIT_SSH_COMMAND") == "" && os.Getenv("GIT_SSH") == "" {
		// Nobody is there to be asked.
		c.Env = append(c.Env, "GIT_SSH_COMMAND=ssh -oBatchMode=yes")
	}
	return c, cancel
}

// state is one side's view of all shared refs.
type state struct {
	runs, notes, seeds map[string]string
	pruned             string
}

// here reads our own refs, there those of the remote as they were fetched.
func (x *exchange) here(ctx context.Context) (*state, error) {
	return x.read(ctx, refs.RunPrefix, refs.NotesPrefix, refs.SeedPrefix, refs.PrunedRef)
}

func (x *exchange) there(ctx context.Context) (*state, error) {
	base := refs.RemotePrefix + x.name + "/"
	return x.read(ctx, base+"runs/", base+"notes/", base+"seeds/", base+"pruned")
}

func (x *exchange) read(ctx context.Context, runs, notes, seeds, pruned string) (*state, error) {
	s := &state{runs: map[string]string{}, notes: map[string]string{}, seeds: map[string]string{}}
	list, err := x.repo.List(ctx, "refs", runs, notes, seeds, pruned)
	if err != nil {
		return nil, err
	}
	kinds := map[string]map[string]string{runs: s.runs, notes: s.notes, seeds: s.seeds}
	for _, ref := range list {
		for prefix, to := range kinds {
			if run, ok := strings.CutPrefix(ref.Name, prefix); ok && refs.CheckRun(run) == nil {
				to[run] = ref.ID
			}
		}
		if ref.Name == pruned {
			s.pruned = ref.ID
		}
	}
	return s, nil
}

// fetch brings the remote's refs to where they are kept here.
func (x *exchange) fetch(ctx context.Context) error {
	base := refs.RemotePrefix + x.name + "/"
	c, cancel := x.network(ctx, "fetch", "--no-tags", "--prune", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules",
		"--refmap=", quiet(x.o.Progress), x.o.Remote,
		"+"+refs.RunPrefix+"*:"+base+"runs/*", "+"+refs.NotesPrefix+"*:"+base+"notes/*", "+"+refs.SeedPrefix+"*:"+base+"seeds/*",
		"+"+refs.PrunedRef+"*:"+base+"pruned*")
	defer cancel()
	if err := c.Run(); err != nil {
		return x.unreachable("fetch from", err)
	}
	return nil
}

func quiet(progress bool) string {
	if progress {
		return "--progress"
	}
	return "--quiet"
}

func (x *exchange) unreachable(what string, err error) error {
	e := fault.New(fault.Fatal, "remote", "%s '%s': %w", what, x.o.Remote, err)
	var failed *git.Error
	if errors.As(err, &failed) {
		e = fault.New(fault.Fatal, "remote", "%s '%s': %s", what, x.o.Remote, lastWords(failed))
	}
	return e.WithHint("git ls-remote '%s' tells whether git reaches it; git checkpoint verify looks for damage here", x.o.Remote)
}

// lastWords is what git said that tells most: its first fatal or error line,
// or, where that is only that the connection ended, what ssh said before.
func lastWords(e *git.Error) string {
	if first, _, _ := strings.Cut(e.Stderr, "\n"); strings.Contains(e.Stderr, "fatal: Could not read from remote repository") && !strings.HasPrefix(first, "fatal: ") {
		return strings.TrimSpace(strings.TrimPrefix(first, "error: "))
	}
	for line := range strings.Lines(e.Stderr) {
		for _, p := range []string{"fatal: ", "error: ", "remote: "} {
			if rest, ok := strings.CutPrefix(line, p); ok {
				return strings.TrimSpace(rest)
			}
		}
	}
	return e.Reason()
}

// Pull fetches the remote's runs and merges them. Nothing here is deleted.
func Pull(ctx context.Context, repo *refs.Repository, o Options) (*Result, error) {
	x, err := open(ctx, repo, o)
	if err != nil {
		return nil, err
	}
	if err := x.fetch(ctx); err != nil {
		return nil, err
	}
	return x.result, x.merge(ctx)
}

// pushRounds is how often a push is tried again because somebody else pushed
// at the same time.
const pushRounds = 6

// Push merges what the remote has, then sends what it lacks. What it refuses
// is in the result.
func Push(ctx context.Context, repo *refs.Repository, o Options) (*Result, error) {
	x, err := open(ctx, repo, o)
	if err != nil {
		return nil, err
	}
	for _, run := range o.Runs {
		if _, err := repo.Tip(ctx, run); err != nil {
			return nil, err
		}
	}
	for round := 1; ; round++ {
		if err := x.fetch(ctx); err != nil {
			return nil, err
		}
		if err := x.merge(ctx); err != nil {
			return nil, err
		}
		again, err := x.send(ctx)
		if err != nil {
			return nil, err
		}
		if !again {
			return x.result, nil
		}
		if round == pushRounds {
			// Nor does what was fetched lead to what is pushed to, as where
			// remote.<name>.pushurl is another repository.
			x.result.Refused = append(x.result.Refused, x.moved...)
			return x.result, nil
		}
	}
}

// send pushes what the remote lacks. again means that it moved meanwhile.
func (x *exchange) send(ctx context.Context) (again bool, err error) {
	ours, err := x.here(ctx)
	if err != nil {
		return false, err
	}
	theirs, err := x.there(ctx)
	if err != nil {
		return false, err
	}
	specs, tips, runs := x.specs(ctx, ours, theirs)
	if len(specs) == 0 {
		return false, nil
	}
	if x.o.Scan != nil {
		var known []string
		for _, m := range []map[string]string{theirs.runs, theirs.notes, theirs.seeds} {
			for _, id := range m {
				known = append(known, id)
			}
		}
		sort.Strings(known)
		dirty, err := x.o.Scan(ctx, known, tips)
		if err != nil {
			return false, err
		}
		if len(dirty) > 0 {
			for _, run := range runs {
				holds, err := x.reaches(ctx, known, []string{ours.runs[run], ours.notes[run], ours.seeds[run]}, dirty)
				if err != nil {
					return false, err
				}
				if holds {
					x.result.Held = append(x.result.Held, run)
				}
			}
			if specs, _, runs = x.specs(ctx, ours, theirs); len(specs) == 0 {
				return false, nil
			}
		}
	}
	return x.push(ctx, specs, runs)
}

// reaches says whether what is not known of some tips has one of the blobs.
func (x *exchange) reaches(ctx context.Context, known, tips []string, blobs map[string]bool) (bool, error) {
	var input strings.Builder
	for _, id := range tips {
		if id != "" {
			input.WriteString(id + "\n")
		}
	}
	for _, id := range known {
		input.WriteString("^" + id + "\n")
	}
	out, err := x.repo.Git().Command(ctx, "rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin", "--not", "--remotes").
		WithInput([]byte(input.String())).Output()
	if err != nil {
		return false, fault.New(fault.Integrity, "objects", "list what would be published: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if blobs[strings.TrimSpace(line)] {
			return true, nil
		}
	}
	return false, nil
}

// specs are the refspecs to push, notes before runs, and the runs in them.
func (x *exchange) specs(ctx context.Context, ours, theirs *state) (specs, tips, runs []string) {
	asked := map[string]bool{}
	for _, run := range x.o.Runs {
		asked[run] = true
	}
	for _, d := range x.result.Diverged {
		asked[d.New] = asked[d.New] || asked[d.Run]
	}
	left := map[string]bool{}
	for _, l := range x.result.Left {
		left[l.Ref] = true
	}
	byCase := x.otherCase(ours, theirs)
	var names []string
	for run := range ours.runs {
		switch {
		case len(x.o.Runs) > 0 && !asked[run], left[refs.RunRef(run)], slices.Contains(x.result.Held, run):
		case theirs.runs[run] == "" && byCase[run] != "":
			x.refuse(refs.RunRef(run), "the remote has the run '%s', which differs by case only", byCase[run])
		case theirs.runs[run] == "" && len(x.o.Runs) == 0 && x.staysPruned(ctx, run, ours.runs[run]):
		default:
			names = append(names, run)
		}
	}
	sort.Strings(names)
	var last []string
	for _, run := range names {
		changed := false
		add := func(to *[]string, ref, mine, theirs string) {
			if mine != "" && mine != theirs {
				*to = append(*to, mine+":"+ref)
				tips = append(tips, mine)
				changed = true
			}
		}
		add(&specs, refs.NotesRef(run), ours.notes[run], theirs.notes[run])
		if theirs.seeds[run] == "" {
			add(&specs, refs.SeedRef(run), ours.seeds[run], "")
		}
		add(&last, refs.RunRef(run), ours.runs[run], theirs.runs[run])
		if changed {
			runs = append(runs, run)
		}
	}
	if ours.pruned != "" && ours.pruned != theirs.pruned && len(x.o.Runs) == 0 {
		specs = append(specs, ours.pruned+":"+refs.PrunedRef)
		tips = append(tips, ours.pruned)
	}
	return append(specs, last...), tips, runs
}

func (x *exchange) refuse(ref, format string, args ...any) {
	x.result.Refused = append(x.result.Refused, Refusal{Ref: ref, Reason: fmt.Sprintf(format, args...)})
}

// otherCase tells, of runs that the remote does not have, those that it has
// under a name of another case.
func (x *exchange) otherCase(ours, theirs *state) map[string]string {
	folded := map[string]string{}
	for run := range theirs.runs {
		folded[strings.ToLower(run)] = run
	}
	other := map[string]string{}
	for run := range ours.runs {
		if name, ok := folded[strings.ToLower(run)]; ok && name != run {
			other[run] = name
		}
	}
	return other
}

// maxCommandLine bounds the refspecs of one push, in bytes: a command line has
// an end.
func maxCommandLine() int {
	if runtime.GOOS == "windows" {
		return 16 << 10
	}
	return 256 << 10
}

func (x *exchange) push(ctx context.Context, specs, runs []string) (again bool, err error) {
	x.moved = nil
	if len(specs) > fewSpecs {
		done, patterns, err := x.stageSpecs(ctx, specs)
		if err != nil {
			return false, err
		}
		defer done()
		specs = patterns
	}
	for begin := 0; begin < len(specs); {
		end, size := begin, 0
		for end < len(specs) && (end == begin || size+len(specs[end]) < maxCommandLine()) {
			size += len(specs[end]) + 1
			end++
		}
		if err := x.pushPart(ctx, specs[begin:end]); err != nil {
			return false, err
		}
		begin = end
	}
	again = len(x.moved) > 0
	refused := map[string]bool{}
	for _, r := range x.result.Refused {
		for _, prefix := range []string{refs.RunPrefix, refs.NotesPrefix, refs.SeedPrefix} {
			if run, ok := strings.CutPrefix(r.Ref, prefix); ok {
				refused[run] = true
			}
		}
	}
	if !again {
		for _, run := range runs {
			if !refused[run] && !slices.Contains(x.result.Pushed, run) {
				x.result.Pushed = append(x.result.Pushed, run)
			}
		}
	}
	return again, nil
}

// fewSpecs is how many refspecs git is given one by one. It looks for the
// source of each among all refs, so that many take the square of their number.
const fewSpecs = 200

// outgoing is where what is to be pushed stands while it is, below
// refs.LocalPrefix. It is a copy, so that nothing is sent but what was scanned.
const outgoing = "outgoing"

// stageSpecs gives many refspecs names of their own, which a few patterns
// cover. done takes the names away again.
func (x *exchange) stageSpecs(ctx context.Context, specs []string) (done func(), patterns []string, err error) {
	l, err := lock.Acquire(ctx, filepath.Join(x.repo.Git().CommonDir, "checkpoint", outgoing), "push", time.Minute)
	if errors.Is(err, lock.ErrHeld) {
		return nil, nil, fault.New(fault.Conflict, "push-busy", "push to '%s': %w", x.o.Remote, err).WithHint("wait for it to end and try again")
	}
	if err != nil {
		return nil, nil, fault.New(fault.Fatal, "io", "%w", err)
	}
	release := func() {
		// Also what a push that was killed has left.
		if err := x.unstage(context.WithoutCancel(ctx)); err != nil {
			git.Trace("take away what was staged for a push: %v", err)
		}
		l.Release()
	}
	if err := x.unstage(ctx); err != nil {
		l.Release()
		return nil, nil, err
	}
	base := refs.LocalPrefix + outgoing + "/"
	tx := x.repo.Begin("checkpoint: push")
	for _, spec := range specs {
		id, ref, _ := strings.Cut(spec, ":")
		tx.Set(base+strings.TrimPrefix(ref, "refs/"), id, "")
	}
	if err := tx.Commit(ctx); err != nil {
		release()
		return nil, nil, err
	}
	for _, prefix := range []string{refs.NotesPrefix, refs.SeedPrefix, refs.RunPrefix} {
		patterns = append(patterns, base+strings.TrimPrefix(prefix, "refs/")+"*:"+prefix+"*")
	}
	pruned := base + strings.TrimPrefix(refs.PrunedRef, "refs/")
	return release, append(patterns, pruned+"*:"+refs.PrunedRef+"*"), nil
}

// unstage removes what is staged for a push.
func (x *exchange) unstage(ctx context.Context) error {
	staged, err := x.repo.List(ctx, "what is staged for a push", refs.LocalPrefix+outgoing+"/")
	if err != nil {
		return err
	}
	tx := x.repo.Begin("checkpoint: push is done")
	for _, ref := range staged {
		tx.Delete(ref.Name, ref.ID)
	}
	return tx.Commit(ctx)
}

func (x *exchange) pushPart(ctx context.Context, specs []string) error {
	progress := "--no-progress" // --quiet would keep to itself what was taken
	if x.o.Progress {
		progress = "--progress"
	}
	args := append([]string{"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no", progress, x.o.Remote}, specs...)
	if _, ok := x.repo.Git().Config.Get("remote." + x.o.Remote + ".mirror"); ok {
		// It would push every ref, and force them.
		args = append([]string{"-c", "remote." + x.o.Remote + ".mirror=false"}, args...)
	}
	c, cancel := x.network(ctx, args...)
	defer cancel()
	out, err := c.Output()
	known := false
	taken := map[string]string{}
	for line := range strings.Lines(string(out)) {
		// "<flag>\t<from>:<to>\t<summary> (<reason>)"
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) < 3 {
			continue
		}
		known = true
		id, ref, _ := strings.Cut(fields[1], ":")
		if !object.IsID(id) {
			// A staged name: what it stands for was read when it was made.
			staged, failed := x.repo.Ref(ctx, id)
			if failed != nil {
				return failed
			}
			id = staged
		}
		switch fields[0] {
		case "!":
			r := Refusal{Ref: ref, Reason: reason(fields[2])}
			if stale(fields[2]) {
				x.moved = append(x.moved, r)
				continue
			}
			if words := remoteWords(err); words != "" {
				r.Reason += ": " + words
			}
			x.result.Refused = append(x.result.Refused, r)
		default:
			taken[ref] = id
		}
	}
	if len(taken) > 0 {
		x.note(ctx, taken)
	}
	if err != nil && !known {
		return x.unreachable("push to", err)
	}
	return nil
}

// remoteWords are what the remote said, as far as it fits a line: a hook that
// refuses says why.
func remoteWords(err error) string {
	var failed *git.Error
	if !errors.As(err, &failed) {
		return ""
	}
	var said []string
	for line := range strings.Lines(failed.Stderr) {
		line, ok := strings.CutPrefix(line, "remote: ")
		line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "error: "), "fatal: ")
		again := strings.HasPrefix(line, "hook declined to update ") // git's own, and the reason already
		if ok && line != "" && !again && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	text := []rune(strings.ToValidUTF8(strings.Join(said, "; "), "?"))
	if len(text) > 300 {
		text = append(text[:299], '…')
	}
	return string(text)
}

// stale says whether a ref was refused because somebody else moved it.
func stale(summary string) bool {
	for _, s := range []string{"non-fast-forward", "fetch first", "stale info", "already exists", "failed to update ref", "incorrect old value", "cannot lock ref"} {
		if strings.Contains(summary, s) {
			return true
		}
	}
	return false
}

func reason(summary string) string {
	if i := strings.LastIndexByte(summary, '('); i >= 0 && strings.HasSuffix(summary, ")") {
		return summary[i+1 : len(summary)-1]
	}
	return strings.Trim(summary, "[]")
}

// note remembers what the remote has now. That it cannot is no harm: the next
// fetch tells.
func (x *exchange) note(ctx context.Context, taken map[string]string) {
	tx := x.repo.Begin("checkpoint: push")
	for ref, id := range taken {
		kept := ""
		switch {
		case strings.HasPrefix(ref, refs.RunPrefix):
			kept = x.remoteRef("runs", strings.TrimPrefix(ref, refs.RunPrefix))
		case strings.HasPrefix(ref, refs.NotesPrefix):
			kept = x.remoteRef("notes", strings.TrimPrefix(ref, refs.NotesPrefix))
		case strings.HasPrefix(ref, refs.SeedPrefix):
			kept = x.remoteRef("seeds", strings.TrimPrefix(ref, refs.SeedPrefix))
		case ref == refs.PrunedRef:
			kept = x.remoteRef("pruned", "")
		default:
			continue
		}
		old, err := x.repo.Ref(ctx, kept)
		if err != nil {
			continue
		}
		tx.Set(kept, id, old)
	}
	if err := tx.Commit(ctx); err != nil {
		git.Trace("note what was pushed: %v", err)
	}
}
