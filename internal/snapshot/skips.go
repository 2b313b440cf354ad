package snapshot

import (
	"encoding/json"
	"slices"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

// EncodeSkips is how a record holds what was skipped: paths that JSON cannot
// hold are quoted (output.Name).
func EncodeSkips(list []Skip) []byte {
	named := slices.Clone(list)
	for i := range named {
		named[i].Path = output.Name(named[i].Path)
	}
	data, _ := json.Marshal(named)
	return data
}

// DecodeSkips reads what EncodeSkips wrote.
func DecodeSkips(data []byte) ([]Skip, error) {
	var list []Skip
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for i := range list {
		p, err := output.Unname(list[i].Path)
		if err != nil {
			return nil, err
		}
		list[i].Path = p
	}
	return list, nil
}
