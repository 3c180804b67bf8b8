package place

import "strconv"

// signalName names a signal of POSIX; the numbers are those of Linux.
func signalName(number int) string {
	switch number {
	case 1:
		return "SIGHUP"
	case 2:
		return "SIGINT"
	case 3:
		return "SIGQUIT"
	case 4:
		return "SIGILL"
	case 5:
		return "SIGTRAP"
	case 6:
		return "SIGABRT"
	case 7:
		return "SIGBUS"
	case 8:
		return "SIGFPE"
	case 9:
		return "SIGKILL"
	case 11:
		return "SIGSEGV"
	case 13:
		return "SIGPIPE"
	case 14:
		return "SIGALRM"
	case 15:
		return "SIGTERM"
	case 24:
		return "SIGXCPU"
	case 31:
		return "SIGSYS"
	}
	return "signal " + strconv.Itoa(number)
}
