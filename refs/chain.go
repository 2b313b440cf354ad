package refs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/pages"
)

// The kinds of checkpoint.
const (
	KindStart         = "start" // a start commit; not a checkpoint that anybody saved
	KindAgent         = "agent"
	KindDeterministic = "deterministic"
	KindDelivery      = "delivery"
	KindTurn          = "turn"
	KindCommit        = "commit"
	KindUser          = "user"
	KindManual        = "manual"
	KindSafety        = "safety" // what was there before a restore; in no chain
)

// Kinds lists what a saved checkpoint's kind may be.
var Kinds = []string{KindAgent, KindDeterministic, KindDelivery, KindTurn, KindCommit, KindUser, KindManual}

// The outcomes of a step.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Skipped   = "skipped"
)

// Outcomes lists them.
var Outcomes = []string{Succeeded, Failed, Skipped}

// Lineage says which checkpoint of which run a run descends from.
type Lineage struct {
	Kind       string `json:"kind"` // rewound_from, forked_from or rerun_of
	Run        string `json:"run"`
	Step       string `json:"step,omitempty"`
	Checkpoint string `json:"checkpoint"`
}

// The kinds of lineage.
const (
	RewoundFrom = "rewound_from"
	ForkedFrom  = "forked_from"
	RerunOf     = "rerun_of"
)

// Inherits says whether the chain goes on into the run it descends from. A
// rerun starts from a baseline, which is no checkpoint.
func (l *Lineage) Inherits() bool { return l != nil && l.Kind != RerunOf }

// Checkpoint is one commit of a run's chain, with what its trailers say.
type Checkpoint struct {
	ID      string
	Tree    string
	Parents []string
	Run     string // the run that made it
	Step    string
	Kind    string // one of Kinds, or KindStart
	Outcome string
	Session string
	Turn    string
	Head    string // HEAD's commit when it was saved; empty: unborn
	Branch  string // full name of HEAD's branch; empty: detached
	Index   string // the index commit; empty: the index was HEAD's tree
	State   string // the operation under way: merge, rebase, …
	Replay  string // "always": run the step again after a rewind
	Start   string // the start commit of its run
	Number  int    // 1-based among its run's own checkpoints; 0 for a start commit
	Lineage *Lineage
	Subject string
	Body    string // the message between subject and trailers
	Author  string
	At      time.Time

	// Set by walking a chain from a tip.
	Inherited bool // made by a run that this one descends from
	Visit     int  // 1-based among the visits of its step
}

// Previous is the first parent: the commit before it in the chain.
func (c *Checkpoint) Previous() string {
	if len(c.Parents) == 0 {
		return ""
	}
	return c.Parents[0]
}

// Trailer keys of a checkpoint's message.
const (
	TrailerRun     = "Checkpoint-Run"
	TrailerStep    = "Checkpoint-Step"
	TrailerKind    = "Checkpoint-Kind"
	TrailerOutcome = "Checkpoint-Outcome"
	TrailerSession = "Checkpoint-Session"
	TrailerTurn    = "Checkpoint-Turn"
	TrailerHead    = "Checkpoint-Head"
	TrailerBranch  = "Checkpoint-Branch"
	TrailerIndex   = "Checkpoint-Index"
	TrailerState   = "Checkpoint-State"
	TrailerReplay  = "Checkpoint-Replay"
	TrailerStart   = "Checkpoint-Start"
	TrailerNumber  = "Checkpoint-Number"
	TrailerLineage = "Checkpoint-Lineage" // "<kind> <checkpoint> <run>[@<step>]"
)

// Message returns the commit message of a checkpoint.
func (c *Checkpoint) Message() string {
	var b strings.Builder
	b.WriteString(oneLine(c.Subject) + "\n\n")
	if body := strings.TrimSpace(c.Body); body != "" {
		b.WriteString(body + "\n\n")
	}
	add := func(key, value string) {
		if value != "" {
			b.WriteString(key + ": " + oneLine(value) + "\n")
		}
	}
	add(TrailerRun, c.Run)
	add(TrailerStep, c.Step)
	add(TrailerKind, c.Kind)
	add(TrailerOutcome, c.Outcome)
	add(TrailerSession, c.Session)
	add(TrailerTurn, c.Turn)
	add(TrailerHead, c.Head)
	add(TrailerBranch, c.Branch)
	add(TrailerIndex, c.Index)
	add(TrailerState, c.State)
	add(TrailerReplay, c.Replay)
	add(TrailerStart, c.Start)
	if c.Number > 0 {
		add(TrailerNumber, strconv.Itoa(c.Number))
	}
	if c.Lineage != nil {
		from := c.Lineage.Run
		if c.Lineage.Step != "" {
			from += "@" + c.Lineage.Step
		}
		add(TrailerLineage, fmt.Sprintf("%s %s %s", c.Lineage.Kind, c.Lineage.Checkpoint, from))
	}
	return b.String()
}

// oneLine keeps a value that came from outside from ending its line, and so
// from forging a trailer.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == 0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimSpace(s)
}

// ParseCheckpoint reads a commit as a checkpoint. Where the commit has no
// Checkpoint-Run trailer, ok is false and the commit's own fields are set.
func ParseCheckpoint(id string, data []byte) (c *Checkpoint, ok bool, err error) {
	commit, err := object.ParseCommit(data)
	if err != nil {
		return nil, false, fault.New(fault.Integrity, "commit-damaged", "read commit %s: %w", id, err)
	}
	c = &Checkpoint{
		ID: id, Tree: commit.Tree, Parents: commit.Parents, Subject: commit.Subject(),
		Author: commit.Author.Name, At: commit.Author.When,
	}
	c.Body = body(commit.Message)
	for t := range commit.Trailers() {
		switch t.Key {
		case TrailerRun:
			c.Run = t.Value
		case TrailerStep:
			c.Step = t.Value
		case TrailerKind:
			c.Kind = t.Value
		case TrailerOutcome:
			c.Outcome = t.Value
		case TrailerSession:
			c.Session = t.Value
		case TrailerTurn:
			c.Turn = t.Value
		case TrailerHead:
			c.Head = t.Value
		case TrailerBranch:
			c.Branch = t.Value
		case TrailerIndex:
			c.Index = t.Value
		case TrailerState:
			c.State = t.Value
		case TrailerReplay:
			c.Replay = t.Value
		case TrailerStart:
			c.Start = t.Value
		case TrailerNumber:
			c.Number, _ = strconv.Atoi(t.Value)
		case TrailerLineage:
			c.Lineage = ParseLineage(t.Value)
		}
	}
	if c.Kind == KindStart {
		c.Start = id
	}
	return c, c.Run != "", nil
}

// ParseLineage reads the value of a Checkpoint-Lineage trailer, nil if it is
// none.
func ParseLineage(value string) *Lineage {
	kind, rest, _ := strings.Cut(value, " ")
	checkpoint, from, ok := strings.Cut(rest, " ")
	if !ok {
		return nil
	}
	run, step, _ := strings.Cut(from, "@")
	return &Lineage{Kind: kind, Run: run, Step: step, Checkpoint: checkpoint}
}

// body is the message without its first and its last paragraph. It looks for
// the last one forward, as most messages have two.
func body(message string) string {
	message = strings.Trim(message, "\n")
	first := strings.Index(message, "\n\n")
	if first < 0 {
		return ""
	}
	last := first
	for {
		i := strings.Index(message[last+1:], "\n\n")
		if i < 0 {
			return strings.TrimSpace(message[first:last])
		}
		last += 1 + i
	}
}

// ReadCheckpoint reads one checkpoint by its object id. A commit that is no
// checkpoint is ErrNotFound.
func (r *Repository) ReadCheckpoint(ctx context.Context, id string) (*Checkpoint, error) {
	c, ok, err := r.readCommit(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.New(fault.NotFound, "no-checkpoint", "commit %s is no checkpoint", id).
			WithHint("for any git revision write rev:%s", id)
	}
	return c, nil
}

// ReadCommit reads any commit. One that is no checkpoint stands for itself:
// its tree is the files and the index, and it is its own Head.
func (r *Repository) ReadCommit(ctx context.Context, id string) (*Checkpoint, error) {
	c, ok, err := r.readCommit(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok && c.Kind == "" {
		c.Head = id
	}
	return c, nil
}

func (r *Repository) readCommit(ctx context.Context, id string) (*Checkpoint, bool, error) {
	kind, data, err := r.objects.Read(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if kind != object.Commit {
		return nil, false, fault.New(fault.Integrity, "not-a-commit", "read commit %s: it is a %s", id, kind)
	}
	return ParseCheckpoint(id, data)
}

// Walk visits a chain from a tip back, newest first: checkpoints and start
// commits, on through every run that this one inherits from, and ends at the
// start commit that stands on no checkpoint. visit returns false to end it
// early. A commit of the chain that cannot be read is ErrIntegrity.
func (r *Repository) Walk(ctx context.Context, tip string, visit func(*Checkpoint) bool) error {
	w := &walk{tip: tip, visit: visit}
	next := tip
	if !r.git.Shallow {
		var err error
		if next, err = r.walkShort(ctx, w); err != nil || next == "" {
			return err
		}
	}
	return r.walkLong(ctx, w, next)
}

// walk is one visit of a chain.
type walk struct {
	tip   string
	run   string // of the tip
	visit func(*Checkpoint) bool
}

// take visits a commit of the chain and says whether the walk ends with it.
func (w *walk) take(id string, data []byte) (c *Checkpoint, end bool, err error) {
	c, ok, err := ParseCheckpoint(id, data)
	if err != nil {
		return nil, true, err
	}
	if !ok {
		// The chain ended without a start commit: not ours any more.
		return nil, true, brokenChain(w.tip, fmt.Errorf("commit %s has no %s trailer", id, TrailerRun))
	}
	if w.run == "" {
		w.run = c.Run
	}
	c.Inherited = c.Run != w.run
	last := c.Kind == KindStart && !c.Lineage.Inherits()
	return c, !w.visit(c) || last, nil
}

// shortChain is how many commits are read one by one before the rest is read
// ahead, or git started to list it: that costs more at first, but less for each.
const shortChain = 32

// newest is how many of a longer chain are read so, for those who look for
// what is new and end the walk there.
const newest = 16

// walkShort reads the beginning of a chain from the object store. It returns
// where to go on, "" if the walk has ended.
func (r *Repository) walkShort(ctx context.Context, w *walk) (next string, err error) {
	next = w.tip
	for n := range shortChain {
		kind, data, err := r.objects.Read(ctx, next)
		if err == nil && kind != object.Commit {
			err = fmt.Errorf("object %s is a %s", next, kind)
		}
		if err != nil {
			return "", brokenChain(w.tip, err)
		}
		c, end, err := w.take(next, data)
		if err != nil || end {
			return "", err
		}
		if next = c.Previous(); next == "" {
			return "", brokenChain(w.tip, errNoStart)
		}
		if n+1 >= newest && c.Number > shortChain {
			break // it goes on for so long at least
		}
	}
	return next, nil
}

var errNoStart = errors.New("it has no start commit")

// walkLong reads the rest of a chain: by git where the store asks it anyway,
// for one commit after the other.
func (r *Repository) walkLong(ctx context.Context, w *walk, from string) error {
	store, ok := r.objects.(*object.InProcess)
	if !ok || r.git.Shallow {
		return r.walkByGit(ctx, w, from)
	}
	var bad error // of a commit that could be read
	end := false
	err := store.Follow(ctx, from, previous, func(id string, kind object.Kind, data []byte) bool {
		if kind != object.Commit {
			bad = brokenChain(w.tip, fmt.Errorf("object %s is a %s", id, kind))
		} else {
			_, end, bad = w.take(id, data)
		}
		return !end && bad == nil
	})
	switch {
	case bad != nil:
		return bad
	case err != nil:
		return brokenChain(w.tip, err)
	case !end:
		return brokenChain(w.tip, errNoStart)
	}
	return nil
}

// previous is the first parent of a commit, "" if it has none.
func previous(data []byte) string {
	_, data, _ = bytes.Cut(data, []byte("\n"))
	line, _, _ := bytes.Cut(data, []byte("\n"))
	id, _ := bytes.CutPrefix(line, []byte("parent "))
	if !object.IsID(string(id)) {
		return ""
	}
	return string(id)
}

// walkByGit lets git list the rest of a chain, which ends where it has no more
// of it.
func (r *Repository) walkByGit(ctx context.Context, w *walk, from string) error {
	// Else git writes each commit by itself, which takes twice as long.
	p, err := r.git.Command(ctx, "rev-list", "--first-parent", "--header", from).WithEnv("GIT_FLUSH", "0").Start()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(p.Stdout, 64<<10)
	var record []byte
	for {
		record, err = appendRecord(record[:0], in)
		if err == io.EOF && len(record) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			p.Stop()
			return brokenChain(w.tip, err)
		}
		id, data, _ := bytes.Cut(bytes.TrimSuffix(record, []byte{0}), []byte("\n"))
		if _, end, err := w.take(string(id), unindent(data)); err != nil || end {
			p.Stop()
			return err
		}
	}
	if err := p.Wait(); err != nil {
		return brokenChain(w.tip, err)
	}
	if r.git.Shallow {
		return nil
	}
	return brokenChain(w.tip, errNoStart)
}

func brokenChain(tip string, err error) error {
	return fault.New(fault.Integrity, "chain-broken", "read the chain of %s: %w", tip, err).
		WithHint("git checkpoint verify lists what is damaged")
}

// appendRecord appends what is read up to and with the next NUL.
func appendRecord(record []byte, in *bufio.Reader) ([]byte, error) {
	for {
		part, err := in.ReadSlice(0)
		record = append(record, part...)
		if err != bufio.ErrBufferFull {
			return record, err
		}
	}
}

// unindent undoes, in place, the four spaces that rev-list puts before each
// line of a message.
func unindent(data []byte) []byte {
	i := bytes.Index(data, []byte("\n\n"))
	if i < 0 {
		return data
	}
	message := data[i+2:]
	data = data[:i+2]
	for line := range bytes.Lines(message) {
		data = append(data, bytes.TrimPrefix(line, []byte("    "))...)
	}
	return data
}

// perCheckpoint is about how many bytes it takes to read one of a chain.
const perCheckpoint = 2000

// Chain returns the checkpoints of a chain in the order in which they were
// saved, inherited ones first, each with its visit number, and the start
// commit that all of it stands on. Start commits are left out.
func (r *Repository) Chain(ctx context.Context, tip string) (chain []*Checkpoint, base *Checkpoint, err error) {
	err = r.Walk(ctx, tip, func(c *Checkpoint) bool {
		if c.Kind == KindStart {
			base = c
		} else {
			if len(chain) == 0 {
				pages.Expect(min(c.Number, 1<<17) * perCheckpoint) // a damaged one may say anything
			}
			chain = append(chain, c)
		}
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	visits := map[string]int{}
	for i, j := 0, len(chain)-1; i < j; i, j = i+1, j-1 {
		chain[i], chain[j] = chain[j], chain[i]
	}
	for _, c := range chain {
		if c.Step != "" {
			visits[c.Step]++
			c.Visit = visits[c.Step]
		}
	}
	return chain, base, nil
}

// Resolve finds the checkpoint that an address names. With rev: any commit
// will do; its Run is then empty. Errors are ErrInvalid for an address that
// cannot be, ErrNotFound for one that names nothing.
func (r *Repository) Resolve(ctx context.Context, address string) (*Checkpoint, error) {
	if object.IsID(address) {
		if id, err := r.Ref(ctx, RunRef(address)); err == nil && id == "" {
			address = "rev:" + address
		}
	}
	a, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if a.Revision != "" {
		return r.resolveRevision(ctx, a.Revision)
	}
	if a.Run == "" {
		if a.Run, err = r.CurrentRun(ctx); err != nil {
			return nil, err
		}
		if a.Run == "" {
			return nil, NoCurrentRun()
		}
	}
	tip, err := r.Tip(ctx, a.Run)
	if err != nil {
		return nil, err
	}
	if a.Step == "" && a.Back == 0 {
		c, err := r.ReadCheckpoint(ctx, tip)
		if err != nil || c.Kind != KindStart || !c.Lineage.Inherits() {
			return c, err
		}
	}
	if a.Step == "" && a.Back > 0 {
		if c, err := r.back(ctx, tip, a.Back); err != nil || c != nil {
			return c, err
		}
	}
	chain, base, err := r.Chain(ctx, tip)
	if err != nil {
		return nil, err
	}
	if a.Step == "" && a.Back == len(chain) && base != nil {
		return base, nil
	}
	i, _, err := Find(chain, a)
	if err != nil {
		return nil, err
	}
	return chain[i], nil
}

// back returns the checkpoint that is some checkpoints back from the tip, nil
// where the chain does not go back so far. It reads no further than it must,
// so the visit of the checkpoint's step is not known.
func (r *Repository) back(ctx context.Context, tip string, count int) (found *Checkpoint, err error) {
	err = r.Walk(ctx, tip, func(c *Checkpoint) bool {
		if c.Kind == KindStart {
			return true
		}
		if count == 0 {
			found = c
			return false
		}
		count--
		return true
	})
	return found, err
}

// NoCurrentRun is the error of a command that needs a current run.
func NoCurrentRun() error {
	return fault.New(fault.NotFound, "no-current-run", "this worktree has no current run").
		WithHint("git checkpoint save starts one; git checkpoint list --all shows what there is")
}

// Find returns where in a chain, oldest first, an address with a step or a
// number back points, and how often its step ran. The error is ErrNotFound,
// with the nearest step as a hint.
func Find(chain []*Checkpoint, a Address) (i, visits int, err error) {
	if a.Step == "" {
		if i := len(chain) - 1 - a.Back; i >= 0 {
			return i, 0, nil
		}
		return 0, 0, fault.New(fault.NotFound, "no-such-checkpoint", "run '%s' does not go back %d checkpoints: it has %d", a.Run, a.Back, len(chain)).
			WithHint("git checkpoint log %s lists them", a.Run)
	}
	i = -1
	var steps []string
	for at, c := range chain {
		if c.Step == "" {
			continue
		}
		steps = append(steps, c.Step)
		if c.Step == a.Step {
			visits = c.Visit
			if a.Visit == 0 || c.Visit == a.Visit {
				i = at
			}
		}
	}
	if i >= 0 {
		return i, visits, nil
	}
	e := fault.New(fault.NotFound, "no-such-step", "run '%s' has no step '%s'", a.Run, a.Step)
	if a.Visit > 0 && visits > 0 {
		e = fault.New(fault.NotFound, "no-such-step", "run '%s' has no visit %d of step '%s': it ran %d times", a.Run, a.Visit, a.Step, visits)
	}
	if near := Nearest(a.Step, steps); near != "" && near != a.Step {
		return 0, 0, e.WithHint("did you mean '%s@%s'?", a.Run, near)
	}
	return 0, 0, e.WithHint("git checkpoint log %s lists the steps", a.Run)
}

// StartOf returns the start commit of the run that a checkpoint belongs to.
func (r *Repository) StartOf(ctx context.Context, checkpoint string) (*Checkpoint, error) {
	c, err := r.ReadCheckpoint(ctx, checkpoint)
	if err != nil || c.Kind == KindStart {
		return c, err
	}
	if c.Start != "" {
		return r.ReadCheckpoint(ctx, c.Start)
	}
	var start *Checkpoint
	err = r.Walk(ctx, checkpoint, func(at *Checkpoint) bool {
		if at.Kind == KindStart {
			start = at
		}
		return start == nil
	})
	if err == nil && start == nil {
		err = brokenChain(checkpoint, errors.New("it has no start commit"))
	}
	return start, err
}

func (r *Repository) resolveRevision(ctx context.Context, revision string) (*Checkpoint, error) {
	id, err := r.git.Command(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}").Text()
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code != 1 && failed.Stderr != "" {
		return nil, fault.New(fault.Fatal, "git", "look up the revision '%s': %w", printable(revision), err)
	}
	if err != nil || !object.IsID(id) {
		return nil, fault.New(fault.NotFound, "no-such-revision", "git knows no commit '%s'", printable(revision)).
			WithHint("git checkpoint log lists a run's checkpoints, git log the commits")
	}
	return r.ReadCommit(ctx, id)
}
