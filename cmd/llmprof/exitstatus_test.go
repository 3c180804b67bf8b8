package main

import (
	"errors"
	"os/exec"
	"strconv"
)

// exitStatus is the exit code behind the error of a finished command.
func exitStatus(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &exit):
		return strconv.Itoa(exit.ExitCode())
	default:
		return err.Error()
	}
}
