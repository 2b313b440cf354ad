// Git-checkpoint-secrets looks for secrets in blobs, for git checkpoint push:
// it reads them from standard input and prints a line of JSON a finding, which
// never holds the secret. The rules are those of gitleaks.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/rs/zerolog"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/logging"

	"github.com/git-checkpoint/git-checkpoint/internal/secrets"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(128)
	}
}

func run() error {
	logging.Logger = zerolog.Nop()
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return fmt.Errorf("read the rules: %w", err)
	}
	out := bufio.NewWriter(os.Stdout)
	err = secrets.Receive(os.Stdin, func(p secrets.Part) error {
		//lint:ignore SA1019 Detect takes no other type yet
		for _, f := range detector.Detect(detect.Fragment{Raw: string(p.Data), FilePath: p.Path}) {
			finding := secrets.Finding{Blob: p.Blob, Path: p.Path, Line: p.Line + f.StartLine + 1, Rule: f.RuleID, Hash: secrets.HashOf(f.Secret)}
			if err := json.NewEncoder(out).Encode(finding); err != nil {
				return err
			}
		}
		return nil
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	return err
}
