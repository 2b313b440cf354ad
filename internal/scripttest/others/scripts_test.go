package others

import (
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/scripttest"
)

func TestScript(t *testing.T) { scripttest.Run(t, scripttest.Others) }
