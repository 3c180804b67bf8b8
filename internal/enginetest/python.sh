# Sourced by the scripts that install Python programs into a cache folder. They
# set root, the folder, and python, the wanted version, and have a function say.
# shellcheck shell=bash disable=SC2154

# uv makes environments of a Python other than the system's; pip brings it.
find_uv() {
	if command -v uv > /dev/null && uv --version > /dev/null 2>&1; then
		command -v uv
		return
	fi
	local tools=$root/uv
	if [ ! -x "$tools/bin/uv" ]; then
		say "installing uv into $tools"
		python3 -m venv "$tools"
		"$tools/bin/pip" install --quiet --disable-pip-version-check uv >&2
	fi
	echo "$tools/bin/uv"
}

# find_python prints a Python of the wanted version: the system's, pyenv's, or
# the version number itself, for which uv fetches one where it can.
find_python() {
	local candidate
	for candidate in "python$python" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$python".*/bin/python"$python"; do
		if "$candidate" -c '' > /dev/null 2>&1; then
			command -v "$candidate"
			return
		fi
	done
	echo "$python"
}
