package worktree

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/secrets"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// The modes of push.secrets.
const (
	secretsBlock = "block"
	secretsWarn  = "warn"
	secretsOff   = "off"
)

// scanned is the file, in the git directory that all worktrees share, that
// remembers the blobs in which no secret was found, one id a line, under the
// version of the rules that looked.
const scanned = "scanned"

// BaselineName is the file of accepted findings, at the top of the working
// tree: one fingerprint a line, "#" starts a comment.
const BaselineName = ".checkpoint-secrets"

// scan looks for secrets in all that a push would publish.
func (w *Worktree) scan(ctx context.Context, mode string, known, tips []string) error {
	blobs, err := w.newBlobs(ctx, known, tips)
	if err != nil || len(blobs) == 0 {
		return err
	}
	findings, err := w.scanBlobs(ctx, blobs)
	if err != nil {
		return err
	}
	accepted := w.acceptedSecrets()
	findings = slices.DeleteFunc(findings, func(f secrets.Finding) bool { return accepted[f.Fingerprint()] })
	if len(findings) == 0 {
		return nil
	}
	const most = 20
	for i, f := range findings {
		if i == most {
			w.warn("and %d more", len(findings)-most)
			break
		}
		w.warn("%s", w.place(ctx, f, tips))
	}
	if mode == secretsWarn {
		return nil
	}
	return fault.New(fault.Negative, "secrets-found", "%d secrets would be published; nothing was pushed", len(findings)).
		WithHint("prune the runs that hold them, or accept a finding by a line with its fingerprint in %s; --secrets=warn pushes anyway", BaselineName)
}

// place says where a finding is: in which checkpoint it came in first.
func (w *Worktree) place(ctx context.Context, f secrets.Finding, tips []string) string {
	args := append([]string{"log", "--first-parent", "--reverse", "--format=%H %(trailers:key=" + refs.TrailerRun + ",valueonly,separator=)", "--find-object=" + f.Blob}, tips...)
	out, err := w.git.Command(ctx, append(args, "--")...).Text()
	first, _, _ := strings.Cut(out, "\n")
	id, run, _ := strings.Cut(first, " ")
	if err != nil || id == "" {
		return f.String()
	}
	if run == "" {
		return fmt.Sprintf("commit %.12s: %s", id, f.String())
	}
	return fmt.Sprintf("checkpoint %.12s of run '%s': %s", id, run, f.String())
}

// blob is a file, or a note, that would be published.
type blob struct {
	id, path string
}

// newBlobs lists the blobs that the tips reach and the remote does not have,
// as far as its refs tell, without those that were looked at before.
func (w *Worktree) newBlobs(ctx context.Context, known, tips []string) ([]blob, error) {
	var input strings.Builder
	for _, id := range tips {
		input.WriteString(id + "\n")
	}
	// What plain refs of any remote have is public already.
	out, err := w.git.Command(ctx, "for-each-ref", "--format=^%(objectname)", "refs/remotes/").Output()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "list what is published: %w", err)
	}
	input.Write(out)
	for _, id := range known {
		input.WriteString("^" + id + "\n")
	}
	p := w.git.Command(ctx, "rev-list", "--objects", "--stdin", "--ignore-missing", "--filter=object:type=blob", "--filter-provided-objects")
	list, err := p.WithInput([]byte(input.String())).Output()
	if err != nil {
		return nil, fault.New(fault.Integrity, "objects", "list what would be published: %w", err)
	}
	seen := w.scannedBefore()
	var blobs []blob
	for line := range strings.Lines(string(list)) {
		id, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if object.IsID(id) && !seen[id] {
			blobs = append(blobs, blob{id, path})
		}
	}
	return blobs, nil
}

func (w *Worktree) scannedFile() string { return filepath.Join(w.git.CommonDir, "checkpoint", scanned) }

func (w *Worktree) scannedBefore() map[string]bool {
	seen := map[string]bool{}
	data, err := os.ReadFile(w.scannedFile())
	if err != nil {
		return seen
	}
	version, rest, _ := strings.Cut(string(data), "\n")
	if version != secrets.Version {
		return seen
	}
	for line := range strings.Lines(rest) {
		seen[strings.TrimSpace(line)] = true
	}
	return seen
}

// remember adds blobs in which nothing was found.
func (w *Worktree) remember(clean []string) {
	seen := w.scannedBefore()
	var b strings.Builder
	if len(seen) == 0 {
		b.WriteString(secrets.Version + "\n")
	}
	for _, id := range clean {
		b.WriteString(id + "\n")
	}
	flag := os.O_APPEND
	if len(seen) == 0 {
		flag = os.O_TRUNC
	}
	f, err := os.OpenFile(w.scannedFile(), os.O_WRONLY|os.O_CREATE|flag, 0o666)
	if err == nil {
		_, err = f.WriteString(b.String())
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		git.Trace("remember what was scanned: %v", err)
	}
}

// scanBlobs hands the blobs to the scanner, a program of its own: its rules
// would cost every other command their start.
func (w *Worktree) scanBlobs(ctx context.Context, blobs []blob) ([]secrets.Finding, error) {
	batch, err := object.OpenBatch(ctx, w.git)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	p, err := w.git.Command(ctx, "checkpoint-secrets").Start()
	if err != nil {
		return nil, noScanner(err)
	}
	answers := make(chan result, 1)
	go func() { answers <- readFindings(p) }()
	ids := make([]string, len(blobs))
	for i, b := range blobs {
		ids[i] = b.id
	}
	in := bufio.NewWriter(p.Stdin)
	err = batch.ReadAll(ids, func(i int, found bool, id string, _ object.Kind, data []byte) error {
		if !found {
			return nil
		}
		return secrets.Send(in, blobs[i].id, blobs[i].path, data)
	})
	if flushed := in.Flush(); err == nil {
		err = flushed
	}
	p.Stdin.Close()
	got := <-answers
	if waited := p.Wait(); waited != nil {
		return nil, noScanner(waited)
	}
	if err == nil {
		err = got.err
	}
	if err != nil {
		return nil, fault.New(fault.Fatal, "secrets", "look for secrets: %w", err)
	}
	dirty := map[string]bool{}
	for _, f := range got.findings {
		dirty[f.Blob] = true
	}
	w.remember(slices.DeleteFunc(ids, func(id string) bool { return dirty[id] }))
	return got.findings, nil
}

type result struct {
	findings []secrets.Finding
	err      error
}

func readFindings(p *git.Process) (r result) {
	d := json.NewDecoder(p.Stdout)
	for d.More() {
		var f secrets.Finding
		if r.err = d.Decode(&f); r.err != nil {
			return r
		}
		r.findings = append(r.findings, f)
	}
	return r
}

func noScanner(err error) error {
	var failed *git.Error
	if errors.As(err, &failed) && strings.Contains(failed.Stderr, "is not a git command") {
		return fault.New(fault.Fatal, "no-scanner", "look for secrets: the program git-checkpoint-secrets is not installed").
			WithHint("go install ./cmd/git-checkpoint-secrets, or push with --secrets=off")
	}
	return fault.New(fault.Fatal, "secrets", "look for secrets: %w", err)
}

// acceptedSecrets reads the baseline of accepted findings.
func (w *Worktree) acceptedSecrets() map[string]bool {
	accepted := map[string]bool{}
	if w.git.Top == "" {
		return accepted
	}
	data, err := os.ReadFile(filepath.Join(w.git.Top, BaselineName))
	if err != nil {
		return accepted
	}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			accepted[fields[0]] = true
		}
	}
	return accepted
}
