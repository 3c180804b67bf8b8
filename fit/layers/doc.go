// Package layers answers questions from a layer profile: how long does one
// layer, one attention call, one step of the engine or one request take, given
// the times of single layers that a profiler measured.
//
// [New] makes a [Table] of points of kind layer. It takes the three kinds of
// tables that are about: one block at batch size 1, by prompt length and cached
// tokens (the seed tables of LLM-Profile and of LLMServingSim 1.0), and bundles
// with batches (LLMServingSim 1.1), with attention over four sizes, mixture of
// experts, and batches of unequal lengths.
//
// # Two ways to look up
//
// Every question can be asked in two ways. The compat way follows the rules of
// the program that the table was made for, to the nanosecond, faults included:
// straight lines through neighbours, through the top two points beyond the
// grid, first duplicate wins. Use it to compare with that program.
//
// The physical way is the default. A layer that reads weights takes
//
//	t(x) = √(flat² + (rate·x)²)
//
// beyond its grid, with x rounded up to the tiles of matrix products: reading
// weights for few tokens, arithmetic for many. Where one turns into the other
// is a property of the device, so layers learn it from each other. Inside
// the grid the data rule, with steps at the tiles where held-out points show
// that there are some. Attention is a sum of non-negative physical terms (pairs
// of tokens, cache reads, sequences, launch) times a correction that bends as
// little as the measurements allow, on the lattice of all four sizes; beyond
// the lattice the slopes of its last octave go on.
//
// Physical times never fall as a size grows: noise is averaged out. The one
// exception are layers whose measured times clearly fall, by more than about a
// tenth, where another kernel takes over; those falls are kept.
//
// # What an answer claims
//
// The basis is measured where the answer is the very median that was measured
// at these sizes, interpolated inside the grid and extrapolated beyond it.
// Intervals come from points that were held out: order statistics of log errors
// (split conformal), which beyond the grid grow with every octave at the pace
// at which a fit of the lower half of the table missed the upper half. What
// nobody measured is an error or a warning, never a zero: the time of
// communication between ranks is in none of these tables.
package layers
