package engine

import "errors"

// pythonScript starts the interpreter of a place with the script's arguments.
const pythonScript = `if [ -n "$LLMPROF_PYTHON" ]; then exec "$LLMPROF_PYTHON" "$@"; fi
if [ -n "$VIRTUAL_ENV" ] && [ -x "$VIRTUAL_ENV/bin/python" ]; then exec "$VIRTUAL_ENV/bin/python" "$@"; fi
exec python3 "$@"`

// PythonCommand is the command line of a Python at a place: of the program, or
// where none is named of the interpreter in $LLMPROF_PYTHON, of the active
// virtual environment's, or of python3, whichever comes first there. A shell
// finds it, which ends with status 127 where there is none.
func PythonCommand(program string, args ...string) []string {
	argv := []string{"sh", "-c", pythonScript, "sh"}
	if program != "" {
		argv = []string{program}
	}
	return append(argv, args...)
}

// PythonMissing gives a Python that is missing, or may not be run, a remedy that
// names the packages which it has to have, as pip takes them. It takes the
// error of a process that was started with [PythonCommand], however the place
// tells it; other errors stay as they are.
func PythonMissing(err error, place Place, program, packages string) error {
	what := program
	if what == "" {
		what = "Python"
	}
	problem, cause := Unusable(err), err
	if unusable, ok := errors.AsType[*UnusableError](err); ok {
		cause = unusable.Err
	} else if exit, ok := errors.AsType[*ExitError](err); ok {
		switch exit.Code {
		case 126:
			problem = PermissionDenied
		case 127:
			problem = ProgramMissing
		}
	}
	switch {
	case problem == ProgramMissing:
		return &UnusableError{
			Problem: problem, What: what + " on " + place.String(), Err: cause,
			Remedy: "install Python 3.10 or newer there, then " + PackageRemedy("python3", packages),
		}
	case problem == PermissionDenied && errors.As(cause, new(*ExitError)):
		return &UnusableError{
			Problem: problem, What: what + " on " + place.String(), Err: cause,
			Remedy: "make it executable for this user, or name another Python: --program PATH or $LLMPROF_PYTHON",
		}
	}
	return err
}

// PackageRemedy is the advice where a Python lacks an engine's packages, as pip
// takes them.
func PackageRemedy(python, packages string) string {
	return python + " -m pip install " + packages + ", or name another Python: --program PATH or $LLMPROF_PYTHON"
}
