package object

// queue holds the objects that wait for Flush, in the order of Put.
type queue struct {
	format string
	order  []string
	held   map[string]held
}

type held struct {
	kind Kind
	data []byte
}

func (q *queue) Put(kind Kind, data []byte) string {
	id := ID(q.format, kind, data)
	if _, ok := q.held[id]; !ok {
		if q.held == nil {
			q.held = map[string]held{}
		}
		q.held[id] = held{kind, data}
		q.order = append(q.order, id)
	}
	return id
}

func (q *queue) queued(id string) (Kind, []byte, bool) {
	h, ok := q.held[id]
	return h.kind, h.data, ok
}

func (q *queue) clear() { q.order, q.held = nil, nil }
