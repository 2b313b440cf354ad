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
const Version = "gitleaks-8.30 1"

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
	path := f.Path
	if path == "" {
		path = "a note"
	}
	return fmt.Sprintf("a secret (%s) in %s, line %d, of blob %.12s; fingerprint %s", f.Rule, path, f.Line, f.Blob, f.Fingerprint())
}

// HashOf is the Hash of a secret.
func HashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// header goes before each blob's content.
type header struct {
	Blob string `json:"blob"`
	Path string `json:"path"`
	Size int    `json:"size"`
}

// Send writes a blob for the scanner: a line of JSON, then its content.
func Send(w *bufio.Writer, id, path string, data []byte) error {
	line, err := json.Marshal(header{id, path, len(data)})
	if err != nil {
		return err
	}
	w.Write(line)
	w.WriteByte('\n')
	_, err = w.Write(data)
	return err
}

// Receive reads what Send wrote, blob by blob.
func Receive(r io.Reader, visit func(id, path string, data []byte) error) error {
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
		if err := json.Unmarshal(line, &h); err != nil || h.Size < 0 {
			return fmt.Errorf("read a blob's header: %.80q", line)
		}
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		if err := visit(h.Blob, h.Path, data); err != nil {
			return err
		}
	}
}
