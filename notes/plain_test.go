package notes

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"strings"
	"testing"
)

// What is read as plain is what encoding/json reads, whatever the line.
func TestPlainIsWhatJSONReads(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(1))
	plain := 0
	for range 200_000 {
		line := []byte(randomLine(random))
		var fast, slow Record
		if !plainRecord(line, &fast) {
			continue
		}
		plain++
		if err := json.Unmarshal(line, &slow); err != nil {
			t.Fatalf("%q was read as plain, but: %v", line, err)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("of %q read %+v, encoding/json reads %+v", line, fast, slow)
		}
	}
	if plain < 20_000 {
		t.Errorf("only %d lines were plain", plain)
	}
}

func FuzzPlainHead(f *testing.F) {
	f.Add([]byte(`{"id":"01","at":"2026","event":"checkpoint","took_ms":3}`))
	f.Add([]byte(`{"id":"é","at":"","event":"a","x":[]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		fast, ok := plainHead(line)
		if !ok {
			return
		}
		var slow struct{ ID, At, Event string }
		if err := json.Unmarshal(line, &slow); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		// Keys may come twice: the first three members are what counts.
		if strings.Count(string(line), `"id":`) == 1 && fast.id != slow.ID {
			t.Errorf("of %q read %+v, encoding/json reads %+v", line, fast, slow)
		}
	})
}

// randomLine is an object that is nearly one that we write.
func randomLine(random *rand.Rand) string {
	keys := []string{"step_name", "step_kind", "outcome", "replay", "sdk_session_id", "transcript_path", "turn_id", "git_commit_sha", "branch", "by", "worktree", "took_ms", "id", "event", "other", "Branch", "artifacts", "skipped", "", "\u017ftep_name"}
	values := []string{`"x"`, `"two words"`, `""`, `"ü"`, `"a\"b"`, `"a\u0041"`, "\"\xff\"", "\"a\x01\"", `0`, `7`, `12345`, `01`, `-1`, `1.5`, `null`, `[]`, `{"a":1}`, `"a","b":"c"`, `"`, ``, `99999999999999999999`}
	var members []string
	for range random.Intn(5) {
		key, value := keys[random.Intn(len(keys))], values[random.Intn(len(values))]
		if random.Intn(3) > 0 {
			value = values[random.Intn(4)]
		}
		members = append(members, `"`+key+`":`+value)
	}
	line := "{" + strings.Join(members, ",") + "}"
	switch random.Intn(20) {
	case 0:
		line = strings.Replace(line, ":", ": ", 1)
	case 1:
		line = line[:random.Intn(len(line)+1)]
	case 2:
		line += " "
	case 3:
		line = strings.Replace(line, ",", ",,", 1)
	}
	return line
}
