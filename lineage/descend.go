package lineage

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Request asks for a run that goes on from a checkpoint of another.
type Request struct {
	Kind   string // refs.RewoundFrom or refs.ForkedFrom
	Source string // a run
	// Step is where to go on: <step>, <step>#<visit> or {n}, as in an address.
	Step string
	// Before goes on before that step instead of after it.
	Before bool

	Run          string        // the new run's id; empty: made up
	Instructions string        // for the step that is entered again
	FreshSession bool          // do without the agent's session
	Worktree     string        // the id of the worktree that will write the run; empty: any may
	Path         string        // where that is
	By           refs.Identity // who asks; without a time: now

	// Also adds to the new run's journal, and to the transaction, what the
	// kind of run needs; a planned one its plan and its branch. nil: nothing.
	Also func(ctx context.Context, tx *refs.Transaction, book *notes.Book, start *refs.Checkpoint, a *Answer) error
}

// Step is one inherited step in an answer.
type Step struct {
	StepName   string `json:"step_name,omitempty"`
	StepKind   string `json:"step_kind,omitempty"`
	Visit      int    `json:"visit,omitempty"` // 1-based among the visits of the step; 0: it has no name
	Run        string `json:"run"`             // the run that did it
	Checkpoint string `json:"checkpoint"`
}

// The modes of Resume.
const (
	Continue = "continue" // the step is done: go on from its session
	Redo     = "redo"     // run the step
)

// Resume says where an orchestrator goes on.
type Resume struct {
	Step         string `json:"step"`
	Mode         string `json:"mode"`
	SessionID    string `json:"session_id,omitempty"` // empty: a fresh session
	Instructions string `json:"instructions,omitempty"`
}

// Answer is what a rewind or fork made: the fields are those of the
// command's JSON.
type Answer struct {
	Run       string        `json:"run"`
	Lineage   *refs.Lineage `json:"lineage"`
	Pin       notes.Pin     `json:"pin"`
	Completed []Step        `json:"completed"` // inherited, in the order in which they ran
	Skip      []Step        `json:"skip"`      // deterministic and succeeded, the last visit too: do not run again
	Replay    []Step        `json:"replay"`    // marked replay=always: run again
	Resume    Resume        `json:"resume"`
	Pending   []string      `json:"pending"`           // what followed, in the order in which it ran
	Existed   bool          `json:"existed,omitempty"` // the run was there: an earlier answer was lost

	Target *refs.Checkpoint `json:"-"` // the checkpoint it goes on from
	Visits int              `json:"-"` // how often the step ran
	Path   string           `json:"-"` // where the worktree of a run that existed was
}

// Plan is a descent that is worked out but not written.
type Plan struct {
	Answer Answer

	repo    *refs.Repository
	request Request
	source  string // tip
}

// Rewind makes a run that goes on from a checkpoint of another, which is
// archived with it, and stopped if it was open. Only refs and notes change.
// Kind is set to rewound_from. Asked again with the same Run and the same
// checkpoint it answers with the run that there is, Existed set.
//
// The errors match refs.ErrNotFound for an unknown run or step,
// refs.ErrConflict for a run that a live process holds, a name that is taken
// or a session that is gone, refs.ErrInvalid for a name or step that cannot
// be, and refs.ErrIntegrity for a chain or note that is damaged; errors.As with
// *refs.Error finds the code and a hint.
func Rewind(ctx context.Context, repo *refs.Repository, r Request) (*Answer, error) {
	r.Kind = refs.RewoundFrom
	return descend(ctx, repo, r)
}

// Fork makes a run that goes on from a checkpoint of another, whose refs stay
// as they are. Kind is set to forked_from. For errors see Rewind; a run that
// somebody holds can be forked.
func Fork(ctx context.Context, repo *refs.Repository, r Request) (*Answer, error) {
	r.Kind = refs.ForkedFrom
	return descend(ctx, repo, r)
}

func descend(ctx context.Context, repo *refs.Repository, r Request) (*Answer, error) {
	if err := checkIdentity(&r.By); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		plan, err := Prepare(ctx, repo, r)
		if err != nil {
			return nil, err
		}
		if plan.Answer.Existed {
			return &plan.Answer, nil
		}
		tx := repo.Begin("checkpoint: " + r.Kind)
		if err := plan.AddTo(ctx, tx); err != nil {
			return nil, err
		}
		err = tx.Commit(ctx)
		if errors.Is(err, refs.ErrStale) && attempt < 8 {
			continue
		}
		return &plan.Answer, err
	}
}

// Prepare works out a descent. Where the new run's name exists with the same
// lineage, the answer is that run's and nothing is left to write.
func Prepare(ctx context.Context, repo *refs.Repository, r Request) (*Plan, error) {
	tip, err := repo.Tip(ctx, r.Source)
	if err != nil {
		return nil, err
	}
	chain, base, err := repo.Chain(ctx, tip)
	if err != nil {
		return nil, err
	}
	p := &Plan{repo: repo, request: r, source: tip}
	p.Answer.Completed, p.Answer.Skip, p.Answer.Replay, p.Answer.Pending = []Step{}, []Step{}, []Step{}, []string{}
	if err := p.locate(chain, base); err != nil {
		return nil, err
	}
	p.work(chain)
	if err := p.name(ctx); err != nil {
		return nil, err
	}
	if p.Answer.Existed {
		return p, nil
	}
	if r.Kind == refs.RewoundFrom {
		if err := refuseHeld(repo, r.Source); err != nil {
			return nil, err
		}
	}
	return p, p.session(ctx, chain, base)
}

func (p *Plan) locate(chain []*refs.Checkpoint, base *refs.Checkpoint) error {
	address := p.request.Source + "@" + p.request.Step
	a, err := refs.ParseAddress(address)
	if err != nil {
		return err
	}
	i, visits, err := refs.Find(chain, a)
	if err != nil {
		return err
	}
	named := chain[i]
	p.Answer.Visits = visits
	p.Answer.Resume = Resume{Step: named.Step, Mode: Continue, Instructions: p.request.Instructions}
	done := i + 1
	if p.request.Before {
		done, p.Answer.Resume.Mode = i, Redo
	}
	p.Answer.Target = base
	if done > 0 {
		p.Answer.Target = chain[done-1]
	}
	if p.Answer.Target == nil {
		return fault.New(fault.NotFound, "no-such-checkpoint", "run '%s' has nothing before step '%s'", p.request.Source, p.request.Step)
	}
	for _, c := range chain[done:] {
		if c.Step != "" {
			p.Answer.Pending = append(p.Answer.Pending, c.Step)
		}
	}
	for _, c := range chain[:done] {
		p.Answer.Completed = append(p.Answer.Completed, stepOf(c))
	}
	t := p.Answer.Target
	p.Answer.Pin = notes.Pin{Checkpoint: t.ID, Head: t.Head, Tree: t.Tree}
	p.Answer.Lineage = &refs.Lineage{Kind: p.request.Kind, Run: p.request.Source, Step: t.Step, Checkpoint: t.ID}
	return nil
}

func stepOf(c *refs.Checkpoint) Step { return Step{c.Step, c.Kind, c.Visit, c.Run, c.ID} }

// work works out which of the completed steps are skipped and which run
// again. A step whose last visit failed is not skipped for an earlier one that
// succeeded.
func (p *Plan) work(chain []*refs.Checkpoint) {
	a := &p.Answer
	completed := chain[:len(a.Completed)]
	outcome := map[string]string{}
	for _, c := range completed {
		outcome[c.Step] = c.Outcome
	}
	for _, c := range completed {
		switch {
		case c.Replay == "always":
			a.Replay = append(a.Replay, stepOf(c))
		case c.Kind != refs.KindDeterministic || c.Outcome != refs.Succeeded:
		case c.Step == "" || outcome[c.Step] == refs.Succeeded:
			a.Skip = append(a.Skip, stepOf(c))
		}
	}
}

// session finds the agent's session to resume: the last one at or before the
// target, or the one that the first run was started with.
func (p *Plan) session(ctx context.Context, chain []*refs.Checkpoint, base *refs.Checkpoint) error {
	a := &p.Answer
	if p.request.FreshSession {
		return nil
	}
	for i := len(a.Completed) - 1; i >= 0; i-- {
		c := chain[i]
		if c.Session == "" {
			continue
		}
		book, err := notes.OpenBook(ctx, p.repo, c.Run)
		if err != nil {
			return err
		}
		r, err := book.Record(ctx, c.ID)
		if err != nil {
			return err
		}
		a.Resume.SessionID = c.Session
		return transcriptThere(c.Session, r.Transcript)
	}
	if base != nil {
		a.Resume.SessionID = base.Session
	}
	return nil
}

// transcriptThere refuses a session whose record is gone.
func transcriptThere(session, transcript string) error {
	if transcript == "" {
		return nil
	}
	if _, err := os.Stat(transcript); err != nil {
		return fault.New(fault.Conflict, "session-gone", "session '%s' cannot be resumed: its transcript '%s' is gone", session, transcript).
			WithHint("--fresh-session goes on without it")
	}
	return nil
}

// name finds the new run's name, or the run that has it with the same lineage.
func (p *Plan) name(ctx context.Context) error {
	a, r := &p.Answer, &p.request
	if r.Run == "" {
		for {
			a.Run = refs.GenerateChild(r.Source)
			if id, err := p.repo.Ref(ctx, refs.RunRef(a.Run)); err != nil || id == "" {
				return err
			}
		}
	}
	a.Run = r.Run
	if err := refs.CheckRun(r.Run); err != nil {
		return err
	}
	tip, err := p.repo.Ref(ctx, refs.RunRef(r.Run))
	if err != nil {
		return err
	}
	if tip == "" {
		err := p.repo.CheckNewRun(ctx, r.Run)
		if err == nil {
			return nil
		}
		// Or it was made just now.
		if now, again := p.repo.Ref(ctx, refs.RunRef(r.Run)); again != nil || now == "" {
			return err
		} else {
			tip = now
		}
	}
	old, err := p.repo.StartOf(ctx, tip)
	if err != nil {
		return err
	}
	if l := old.Lineage; l != nil && l.Kind == a.Lineage.Kind && l.Run == a.Lineage.Run && l.Checkpoint == a.Lineage.Checkpoint {
		return p.again(ctx, old.ID)
	}
	return fault.New(fault.Conflict, "run-exists", "a run named '%s' exists and is not this %s of '%s'", r.Run, verb(r.Kind), r.Source).
		WithHint("choose another name, or leave --run out")
}

// again answers with the run that was made before, as it was asked for then.
func (p *Plan) again(ctx context.Context, start string) error {
	a := &p.Answer
	book, err := notes.OpenBook(ctx, p.repo, a.Run)
	if err != nil {
		return err
	}
	state, err := book.State(ctx, start)
	if err != nil {
		return err
	}
	if state.Hidden {
		return fault.New(fault.Conflict, "run-undone", "run '%s' was made by a rewind of '%s' that was undone", a.Run, p.request.Source).
			WithHint("choose another name; git checkpoint redo does again what was undone last")
	}
	a.Existed, a.Path = true, state.Created.Path
	a.Resume.SessionID, a.Resume.Instructions = state.Created.Session, state.Created.Instructions
	return nil
}

func verb(kind string) string {
	if kind == refs.RewoundFrom {
		return "rewind"
	}
	return "fork"
}

// Worktree sets the worktree that will write the run, where it was not known
// when the descent was prepared.
func (p *Plan) Worktree(id, path string) { p.request.Worktree, p.request.Path = id, path }

// AddTo adds the descent to a transaction: the notes first, the run last.
func (p *Plan) AddTo(ctx context.Context, tx *refs.Transaction) error {
	if p.Answer.Existed {
		return nil
	}
	a, r := &p.Answer, &p.request
	book, err := notes.OpenBook(ctx, p.repo, a.Run)
	if err != nil {
		return err
	}
	start, err := Create(ctx, p.repo, book, NewRun{
		Name: a.Run, Source: a.Target, Lineage: a.Lineage, Worktree: r.Worktree, Path: r.Path, By: r.By,
		Instructions: r.Instructions, ResumeStep: a.Resume.Step, Pin: &a.Pin, Session: a.Resume.SessionID,
	})
	if err != nil {
		return err
	}
	if r.Also != nil {
		if err := r.Also(ctx, tx, book, start, a); err != nil {
			return err
		}
	}
	if err := book.Commit(ctx, tx, fmt.Sprintf("run %s: %s %s", a.Run, r.Kind, r.Source), r.By); err != nil {
		return err
	}
	if r.Kind == refs.RewoundFrom {
		if err := archive(ctx, p.repo, tx, r.Source, p.source, a.Run, r.By); err != nil {
			return err
		}
		// Who takes hold of it from here on writes to its journal, and then
		// this transaction is stale.
		if err := refuseHeld(p.repo, r.Source); err != nil {
			return err
		}
		tx.Verify(refs.RunRef(r.Source), p.source)
	}
	tx.Set(refs.RunRef(a.Run), start.ID, "")
	return nil
}

// archive adds to the source's journal that it was rewound.
func archive(ctx context.Context, repo *refs.Repository, tx *refs.Transaction, source, tip, by string, who refs.Identity) error {
	return journal(ctx, repo, tx, source, tip, notes.EventArchived, who, func(s notes.State) map[string]string {
		fields := map[string]string{"by": by, "who": who.String()}
		if s.Said == notes.Open || s.Said == "" {
			fields["status"] = notes.Stopped
		}
		return fields
	})
}

// journal adds one event to a run's journal in a transaction.
func journal(ctx context.Context, repo *refs.Repository, tx *refs.Transaction, run, tip, event string, who refs.Identity, fields func(notes.State) map[string]string) error {
	book, err := notes.OpenBook(ctx, repo, run)
	if err != nil {
		return err
	}
	start, err := repo.StartOf(ctx, tip)
	if err != nil {
		return err
	}
	state, err := book.State(ctx, start.ID)
	if err != nil {
		return err
	}
	if err := book.Add(ctx, start.ID, who.When, event, fields(state)); err != nil {
		return err
	}
	return book.Commit(ctx, tx, fmt.Sprintf("run %s: %s", run, event), who)
}

// Unwind adds to a transaction what takes a rewind back: the source is no
// longer archived by the child, and the child is hidden. With again it is the
// other way round. A run of the two that was deleted meanwhile is left out.
func Unwind(ctx context.Context, repo *refs.Repository, tx *refs.Transaction, source, child string, again bool, who refs.Identity) error {
	back, hide := notes.EventUnarchived, notes.EventArchived
	if again {
		back, hide = notes.EventArchived, notes.EventUnarchived
	}
	tip, err := repo.Ref(ctx, refs.RunRef(source))
	if err != nil {
		return err
	}
	if tip != "" {
		if err := journal(ctx, repo, tx, source, tip, back, who, func(s notes.State) map[string]string {
			fields := map[string]string{"by": child, "who": who.String()}
			if again && (s.Said == notes.Open || s.Said == "") {
				fields["status"] = notes.Stopped
			}
			return fields
		}); err != nil {
			return err
		}
	}
	tip, err = repo.Ref(ctx, refs.RunRef(child))
	if err != nil || tip == "" {
		return err
	}
	return journal(ctx, repo, tx, child, tip, hide, who, func(notes.State) map[string]string {
		return map[string]string{"who": who.String()}
	})
}
