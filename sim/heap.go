package sim

// Heap is a queue whose first item comes before all others. The zero value is
// empty; [Heap.Push] and [Heap.Pop] keep the order.
type Heap[T interface{ Before(other T) bool }] []T

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	*h = append(*h, item)
	items := *h
	i := len(items) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !item.Before(items[up]) {
			break
		}
		items[i] = items[up]
		i = up
	}
	items[i] = item
}

// Pop takes the first item, of at least one.
func (h *Heap[T]) Pop() T {
	items := *h
	first, n := items[0], len(items)-1
	item := items[n]
	items = items[:n]
	for i := 0; n > 0; {
		down := 2*i + 1
		if down >= n {
			items[i] = item
			break
		}
		if down+1 < n && items[down+1].Before(items[down]) {
			down++
		}
		if !items[down].Before(item) {
			items[i] = item
			break
		}
		items[i] = items[down]
		i = down
	}
	*h = items
	return first
}
