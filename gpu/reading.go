package gpu

// Reading is the state of one device at one time. Fields that the tool did not
// give are nil.
type Reading struct {
	// Index is the tool's number of the device, -1 where it gives none; UUID
	// and Name are empty then.
	Index int
	UUID  string
	Name  string
	// Time is the tool's own time stamp as it wrote it, in local time without
	// a zone; empty where there is none.
	Time string
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed *int64
	// Utilization is the share of time in which a kernel ran,
	// MemoryUtilization that in which memory was read or written, 0..1.
	Utilization, MemoryUtilization *float64
	// Power and PowerLimit are in watts.
	Power, PowerLimit *float64
	// Clock and MemoryClock are in hertz, 1/s.
	Clock, MemoryClock *float64
	// Temperature is in degrees Celsius.
	Temperature *float64
}
