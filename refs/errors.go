package refs

import "github.com/git-checkpoint/git-checkpoint/internal/fault"

// Error is what every error of this module is underneath, for errors.As: its
// Code is a stable slug for programs ("no-such-run"), its Hint, where there is
// one, says what to do about it.
type Error = fault.Error
