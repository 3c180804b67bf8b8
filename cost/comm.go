package cost

import (
	"math"
	"math/bits"

	"github.com/llmprof/llmprof/catalog"
)

// network times collectives between the ranks of one group. Bandwidths are
// bytes/s per direction with the efficiency already applied; latencies are
// seconds per hop.
type network struct {
	bandwidth, alpha           float64
	interBandwidth, interAlpha float64
	domain                     int
	// mesh says that a device splits its bandwidth over one link to each
	// other device of the domain.
	mesh bool
}

// interAlpha is the per-hop latency assumed between nodes where the catalog
// gives none, in seconds: the order of an RDMA write.
const defaultInterAlpha = 5e-6

func newNetwork(d *catalog.Device, efficiency float64) network {
	return network{
		bandwidth:      d.Link.Bandwidth.Value * efficiency,
		alpha:          d.Link.Alpha.Value,
		interBandwidth: d.InterNode.Value * efficiency,
		interAlpha:     defaultInterAlpha,
		domain:         max(d.Link.Domain, 1),
		mesh:           d.Link.Topology == "mesh",
	}
}

// among is the bandwidth of one device towards ranks − 1 others of its domain.
func (n network) among(ranks int) float64 {
	if !n.mesh || n.domain <= 2 {
		return n.bandwidth
	}
	return n.bandwidth * float64(min(ranks, n.domain)-1) / float64(n.domain-1)
}

// allReduceFlat is the time to sum m bytes over ranks that are all linked
// alike: the best of ring, tree and one-shot.
func allReduceFlat(m, ranks, bandwidth, alpha float64) float64 {
	if ranks <= 1 {
		return 0
	}
	ring := 2*(ranks-1)/ranks*m/bandwidth + 2*(ranks-1)*alpha
	tree := 2*m/bandwidth + 2*float64(bits.Len(uint(ranks)-1))*alpha
	oneShot := (ranks-1)*m/bandwidth + alpha
	return min(ring, tree, oneShot)
}

// gatherFlat is the time of an all-gather or reduce-scatter whose whole
// result or input has m bytes.
func gatherFlat(m, ranks, bandwidth, alpha float64) float64 {
	if ranks <= 1 {
		return 0
	}
	return (ranks-1)/ranks*m/bandwidth + alpha
}

// allReduce sums m bytes over ranks, over several nodes if they do not fit
// into one: reduce-scatter inside, all-reduce across, all-gather inside.
func (n network) allReduce(m float64, ranks int) float64 {
	if ranks <= n.domain {
		return allReduceFlat(m, float64(ranks), n.among(ranks), n.alpha)
	}
	inside := float64(n.domain)
	across := math.Ceil(float64(ranks) / inside)
	return 2*gatherFlat(m, inside, n.bandwidth, n.alpha) +
		allReduceFlat(m/inside, across, n.interBandwidth, n.interAlpha)
}

// allGather collects a result of m bytes on every one of ranks.
func (n network) allGather(m float64, ranks int) float64 {
	if ranks <= n.domain {
		return gatherFlat(m, float64(ranks), n.among(ranks), n.alpha)
	}
	inside := float64(n.domain)
	across := math.Ceil(float64(ranks) / inside)
	return gatherFlat(m, inside, n.bandwidth, n.alpha) + gatherFlat(m, across, n.interBandwidth, n.interAlpha)
}

// allToAll is the time in which each of ranks sends sent bytes, spread evenly
// over all ranks, itself included.
func (n network) allToAll(sent float64, ranks int) float64 {
	if ranks <= 1 {
		return 0
	}
	r := float64(ranks)
	if ranks <= n.domain {
		return sent*(1-1/r)/n.among(ranks) + n.alpha
	}
	local := float64(n.domain)
	return sent*(local-1)/r/n.bandwidth + sent*(r-local)/r/n.interBandwidth + n.interAlpha
}

// send is the time of m bytes from one stage to the next.
func (n network) send(m float64, betweenNodes bool) float64 {
	if betweenNodes {
		return m/n.interBandwidth + n.interAlpha
	}
	return m/n.among(2) + n.alpha
}
