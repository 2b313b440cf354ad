package worktree

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
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

// scan looks for secrets in all that a push would publish, tells them, and
// returns the blobs that are to be held back.
func (w *Worktree) scan(ctx context.Context, mode string, known, tips []string) (dirty map[string]bool, err error) {
	blobs, err := w.newBlobs(ctx, known, tips)
	if err != nil || len(blobs) == 0 {
		return nil, err
	}
	findings, err := w.scanBlobs(ctx, blobs)
	if err != nil {
		return nil, err
	}
	accepted := w.acceptedSecrets()
	findings = slices.DeleteFunc(findings, func(f secrets.Finding) bool { return accepted[f.Fingerprint()] })
	const most = 20
	dirty = map[string]bool{}
	for i, f := range findings {
		dirty[f.Blob] = true
		switch {
		case i < most:
			w.warn("%s", w.place(ctx, f, tips))
		case i == most:
			w.warn("and %d more", len(findings)-most)
		}
	}
	if mode == secretsWarn {
		return nil, nil
	}
	return dirty, nil
}

// place says where a finding is: in which checkpoint it came in first.
func (w *Worktree) place(ctx context.Context, f secrets.Finding, tips []string) string {
	if id := strings.ReplaceAll(f.Path, "/", ""); object.IsID(id) {
		f.Path = "the note"
		return fmt.Sprintf("checkpoint %.12s: %s", id, f.String())
	}
	f.Path = output.Path(f.Path)
	args := append([]string{"log", "--reverse", "-m", "--format=%H %(trailers:key=" + refs.TrailerRun + ",valueonly,separator=)", "--find-object=" + f.Blob}, tips...)
	out, err := w.git.Command(ctx, append(args, "--not", "--remotes", "--")...).Text()
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	id, run, _ := strings.Cut(first, " ")
	if err != nil || id == "" {
		return f.String()
	}
	if run == "" {
		// What was staged is in a commit of its own.
		f.Path = strings.TrimPrefix(f.Path, "entries/")
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
	os.MkdirAll(filepath.Dir(w.scannedFile()), 0o777)
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

// What of a blob is looked at.
const (
	partSize    = 1 << 20  // at a time
	partOverlap = 4 << 10  // so that nothing is cut in two
	partsEnd    = 16 << 20 // and no further
	binaryProbe = 8000     // of its start tell text from the rest, as git does it
)

// unread is what was not looked at.
type unread struct {
	binary, large int
	first         string
}

func (u *unread) add(count *int, path string) {
	if *count++; u.first == "" {
		u.first = path
	}
}

// scanBlobs hands the blobs to the scanner, a program of its own: its rules
// would cost every other command their start.
func (w *Worktree) scanBlobs(ctx context.Context, blobs []blob) ([]secrets.Finding, error) {
	small, large, err := w.bySize(ctx, blobs)
	if err != nil {
		return nil, err
	}
	scanner := w.git.Command(ctx, "checkpoint-secrets").WithEnv("LC_ALL", "C")
	if self, err := os.Executable(); err == nil {
		// It was installed with us, and a hook may have another PATH.
		scanner = scanner.WithEnv("PATH", os.Getenv("PATH")+string(filepath.ListSeparator)+filepath.Dir(self))
	}
	p, err := scanner.Start()
	if err != nil {
		return nil, noScanner(err)
	}
	answers := make(chan result, 1)
	go func() { answers <- readFindings(p) }()
	in := bufio.NewWriter(p.Stdin)
	var not unread
	err = w.sendSmall(ctx, in, small, &not)
	for _, b := range large {
		if err == nil {
			err = w.sendLarge(ctx, in, b, &not)
		}
	}
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
	if not.binary+not.large > 0 {
		w.warn("not searched for secrets: %d binary files, and %d beyond their first 16 MiB; the first is %s", not.binary, not.large, output.Path(not.first))
	}
	dirty := map[string]bool{}
	for _, f := range got.findings {
		dirty[f.Blob] = true
	}
	var clean []string
	for _, b := range blobs {
		if !dirty[b.id] {
			clean = append(clean, b.id)
		}
	}
	w.remember(clean)
	return got.findings, nil
}

// bySize tells the blobs that are read whole from those that are too large.
func (w *Worktree) bySize(ctx context.Context, blobs []blob) (small, large []blob, err error) {
	var input strings.Builder
	for _, b := range blobs {
		input.WriteString(b.id + "\n")
	}
	out, err := w.git.Command(ctx, "cat-file", "--batch-check=%(objectsize)").WithInput([]byte(input.String())).Output()
	if err != nil {
		return nil, nil, fault.New(fault.Integrity, "objects", "measure what would be published: %w", err)
	}
	i := 0
	for line := range strings.Lines(string(out)) {
		if size, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil && size > partSize {
			large = append(large, blobs[i])
		} else {
			small = append(small, blobs[i])
		}
		i++
	}
	return small, large, nil
}

func isBinary(data []byte) bool { return bytes.IndexByte(data[:min(len(data), binaryProbe)], 0) >= 0 }

func (w *Worktree) sendSmall(ctx context.Context, in *bufio.Writer, blobs []blob, not *unread) error {
	batch, err := object.OpenBatch(ctx, w.git)
	if err != nil {
		return err
	}
	defer batch.Close()
	ids := make([]string, len(blobs))
	for i, b := range blobs {
		ids[i] = b.id
	}
	return batch.ReadAll(ids, func(i int, _ string, _ object.Kind, data []byte, err error) error {
		switch {
		case errors.Is(err, object.ErrMissing):
			return nil
		case err != nil:
			return err
		case isBinary(data):
			not.add(&not.binary, blobs[i].path)
			return nil
		}
		return secrets.Send(in, secrets.Part{Blob: blobs[i].id, Path: blobs[i].path, Data: data})
	})
}

// sendLarge sends a blob part by part, so that it never is in memory whole.
func (w *Worktree) sendLarge(ctx context.Context, in *bufio.Writer, b blob, not *unread) error {
	p, err := w.git.Command(ctx, "cat-file", "blob", b.id).Start()
	if err != nil {
		return err
	}
	defer p.Stop()
	buffer := make([]byte, partSize)
	kept, lines, total := 0, 0, 0
	for {
		n, err := io.ReadFull(p.Stdout, buffer[kept:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		part := buffer[:kept+n]
		if total == 0 && isBinary(part) {
			not.add(&not.binary, b.path)
			return nil
		}
		total += n
		if n > 0 {
			if err := secrets.Send(in, secrets.Part{Blob: b.id, Path: b.path, Line: lines, Data: part}); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if total >= partsEnd {
			not.add(&not.large, b.path)
			return nil
		}
		// Go on from the beginning of a line, where there is one.
		from := len(part) - partOverlap
		if at := bytes.IndexByte(part[from:], '\n'); at >= 0 {
			from += at + 1
		}
		lines += bytes.Count(part[:from], []byte("\n"))
		kept = copy(buffer, part[from:])
	}
}

type result struct {
	findings []secrets.Finding
	err      error
}

func readFindings(p *git.Process) (r result) {
	seen := map[secrets.Finding]bool{} // parts overlap
	d := json.NewDecoder(p.Stdout)
	for d.More() {
		var f secrets.Finding
		if r.err = d.Decode(&f); r.err != nil {
			return r
		}
		if !seen[f] {
			seen[f] = true
			r.findings = append(r.findings, f)
		}
	}
	return r
}

func noScanner(err error) error {
	var failed *git.Error
	if errors.As(err, &failed) && strings.Contains(failed.Stderr, "is not a git command") {
		return fault.New(fault.Fatal, "no-scanner", "look for secrets: the program git-checkpoint-secrets is not installed").
			WithHint("go install github.com/git-checkpoint/git-checkpoint/cmd/git-checkpoint-secrets@latest installs it; --secrets off pushes without looking")
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
