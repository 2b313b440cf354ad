// Package secrets knows how the scanner for secrets is spoken to: blobs go
// in, findings come out, and never a secret itself. The scanner is a program
// of its own, git-checkpoint-secrets, since its rules would cost every other
// command their start.
package secrets

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// Version names the protocol and the rules. What was found clean by another
// version is looked at again.
const Version = "gitleaks-8.30 2"

// Finding is a secret that was found in a blob.
type Finding struct {
	Blob string `json:"blob"`
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Rule string `json:"rule"`
	Hash string `json:"hash"` // SHA-256 of the secret, cut to 16 digits
}

// Fingerprint tells a finding from others wherever it is found, and does not
// tell the secret.
func (f Finding) Fingerprint() string { return f.Rule + ":" + f.Hash }

func (f Finding) String() string {
	return fmt.Sprintf("a secret (%s) in %s, line %d; fingerprint %s", f.Rule, f.Path, f.Line, f.Fingerprint())
}

// HashOf is the Hash of a secret.
func HashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// Part is a blob, or a part of one, to look at.
type Part struct {
	Blob string
	Path string
	Line int // how many lines come before it
	Data []byte
}

// header goes before each part's content.
type header struct {
	Blob string `json:"blob"`
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
	Size int    `json:"size"`
}

// Send writes a part for the scanner: a line of JSON, then its content.
func Send(w *bufio.Writer, p Part) error {
	line, err := json.Marshal(header{p.Blob, p.Path, p.Line, len(p.Data)})
	if err != nil {
		return err
	}
	w.Write(line)
	w.WriteByte('\n')
	_, err = w.Write(p.Data)
	return err
}

// maxPart bounds what Receive believes a part to have, in bytes.
const maxPart = 64 << 20

// Receive reads what Send wrote, part by part.
func Receive(r io.Reader, visit func(Part) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var h header
		if err := json.Unmarshal(line, &h); err != nil || h.Size < 0 || h.Size > maxPart {
			return fmt.Errorf("read a blob's header: %.80q", line)
		}
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		if err := visit(Part{h.Blob, h.Path, h.Line, data}); err != nil {
			return err
		}
	}
}
