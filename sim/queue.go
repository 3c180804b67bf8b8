package sim

import "slices"

// queue holds the waiting requests: a ring in order of arrival, or under the
// priority policy a heap on (priority, id).
type queue struct {
	ranked   bool    // a heap
	priority []int32 // of every request, by id
	ids      []int32 // as a ring its length is a power of two
	head     int     // of the ring
	n        int
}

// reserve makes room for n requests, so that putting one back allocates
// nothing.
func (q *queue) reserve(n int) {
	if n <= len(q.ids) {
		return
	}
	grown := make([]int32, max(16, 2*len(q.ids)))
	for i := range q.n {
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
	q.ids[(q.head+q.n)&(len(q.ids)-1)] = id
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
	i := q.n
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
	if !q.ranked {
		q.head = (q.head + 1) & (len(q.ids) - 1)
		return
	}
	if q.n > 0 {
		q.sink(q.ids[q.n])
	}
}

// sink puts id at the root of the heap and moves it down.
func (q *queue) sink(id int32) {
	i := 0
	for {
		down := 2*i + 1
		if down >= q.n {
			break
		}
		if down+1 < q.n && q.before(q.ids[down+1], q.ids[down]) {
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

// remove takes a request out of the middle; it is rare.
func (q *queue) remove(id int32) {
	if !q.ranked {
		for i := range q.n {
			if q.ids[(q.head+i)&(len(q.ids)-1)] != id {
				continue
			}
			for ; i+1 < q.n; i++ {
				q.ids[(q.head+i)&(len(q.ids)-1)] = q.ids[(q.head+i+1)&(len(q.ids)-1)]
			}
			q.n--
			return
		}
		return
	}
	at := slices.Index(q.ids[:q.n], id)
	if at < 0 {
		return
	}
	n := q.n
	copy(q.ids[at:n], q.ids[at+1:n])
	q.n = 0
	for _, kept := range q.ids[:n-1] {
		q.rise(kept) // the heap is never longer than what is read already
	}
}

// list appends the requests in the order in which they would be admitted.
func (q *queue) list(to []int32) []int32 {
	from := len(to)
	for i := range q.n {
		to = append(to, q.ids[(q.head+i)&(len(q.ids)-1)])
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
