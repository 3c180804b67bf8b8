package workload

// Reused is, for each request, how many tokens from the start of its prompt an
// engine has seen that served all requests before it in the schedule and forgets
// nothing: the prompts, and the answers that stand in the prompts of later turns.
func Reused(requests []Request) []int {
	type step struct {
		node int32 // what was said before, 0 for nothing
		seed uint64
	}
	type end struct {
		step
		length int
	}
	longest, nodes := map[step]int{}, map[end]int32{}
	most := make([]int, len(requests))
	for i := range requests {
		q, node, seen := &requests[i], int32(0), true
		for k := 0; ; k++ {
			part, ok := q.part(k)
			if !ok {
				break
			}
			at := step{node, part.Seed}
			before := longest[at]
			next, known := nodes[end{at, part.Len}]
			switch {
			case !seen:
			case known || part.Answer:
				most[i] += part.Len
			default:
				most[i] += min(before, part.Len)
				seen = false
			}
			if !known {
				next = int32(len(nodes) + 1)
				nodes[end{at, part.Len}] = next
				longest[at] = max(before, part.Len)
			}
			node = next
		}
	}
	return most
}
