package sim

import "slices"

// queue holds the waiting requests: a ring in order of arrival, or under the
// priority policy a heap on (priority, id). One that waits no longer, since it was
// cancelled or has ended, stays where it is until it would be first: leaving costs
// the same however many wait.
type queue struct {
	ranked   bool    // a heap
	priority []int32 // of every request, by id
	state    []State // of every request, by id
	ids      []int32 // as a ring its length is a power of two
	head     int     // of the ring
	n        int     // requests that wait
	gone     int     // beside them, those that wait no longer; never the first
}

// reserve makes room for n requests, so that putting one back allocates
// nothing.
func (q *queue) reserve(n int) {
	if n += q.gone; n <= len(q.ids) {
		return
	}
	grown := make([]int32, max(16, 2*len(q.ids)))
	for i := range q.n + q.gone {
		grown[i] = q.ids[(q.head+i)&(len(q.ids)-1)]
	}
	q.ids, q.head = grown, 0
}

// before orders the heap.
func (q *queue) before(a, b int32) bool {
	if q.priority[a] != q.priority[b] {
		return q.priority[a] < q.priority[b]
	}
	return a < b
}

// first is the request that is admitted next; the queue is not empty.
func (q *queue) first() int32 { return q.ids[q.head] }

// pushBack adds a request that arrives.
func (q *queue) pushBack(id int32) {
	if q.ranked {
		q.rise(id)
		return
	}
	q.ids[(q.head+q.n+q.gone)&(len(q.ids)-1)] = id
	q.n++
}

// pushFront puts a request back: to the head, or to its place in the heap.
func (q *queue) pushFront(id int32) {
	if q.ranked {
		q.rise(id)
		return
	}
	q.head = (q.head - 1) & (len(q.ids) - 1)
	q.ids[q.head] = id
	q.n++
}

// rise adds to the heap.
func (q *queue) rise(id int32) {
	i := q.n + q.gone
	q.n++
	for i > 0 {
		up := (i - 1) / 2
		if !q.before(id, q.ids[up]) {
			break
		}
		q.ids[i] = q.ids[up]
		i = up
	}
	q.ids[i] = id
}

// pop drops the first request.
func (q *queue) pop() {
	q.n--
	q.drop()
	q.trim()
}

// left says that a request in the queue waits no longer.
func (q *queue) left() {
	q.n--
	q.gone++
	q.trim()
}

// trim drops those that wait no longer until the first one waits.
func (q *queue) trim() {
	for q.gone > 0 && q.state[q.first()] != Waiting {
		q.gone--
		q.drop()
	}
}

// drop takes the first entry out, which is not counted any longer.
func (q *queue) drop() {
	if !q.ranked {
		q.head = (q.head + 1) & (len(q.ids) - 1)
		return
	}
	if last := q.n + q.gone; last > 0 {
		q.sink(q.ids[last])
	}
}

// sink puts id at the root of the heap and moves it down.
func (q *queue) sink(id int32) {
	i := 0
	for {
		down := 2*i + 1
		if down >= q.n+q.gone {
			break
		}
		if down+1 < q.n+q.gone && q.before(q.ids[down+1], q.ids[down]) {
			down++
		}
		if !q.before(q.ids[down], id) {
			break
		}
		q.ids[i] = q.ids[down]
		i = down
	}
	q.ids[i] = id
}

// list appends the requests in the order in which they would be admitted.
func (q *queue) list(to []int32) []int32 {
	from := len(to)
	for i := range q.n + q.gone {
		if id := q.ids[(q.head+i)&(len(q.ids)-1)]; q.state[id] == Waiting {
			to = append(to, id)
		}
	}
	if q.ranked {
		slices.SortFunc(to[from:], func(a, b int32) int {
			if q.before(a, b) {
				return -1
			}
			return 1
		})
	}
	return to
}
