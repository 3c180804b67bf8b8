//go:build !linux

package mock

// monotonic is 0 where the system's clock is not to be had: times count from
// the start of the server.
func monotonic() int64 { return 0 }
