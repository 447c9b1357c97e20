#!/usr/bin/env bash
# libraries.sh LIBDDP.SO LIBDDP.A: what the libraries are to those who link them. The shared one shows the functions of
# ddp/c.h, ddp/stop.h and ddp/progress.h and nothing else; all of the archive goes into a shared library, and works there.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
(($# == 2)) || { echo "libraries: usage: libraries.sh LIBDDP.SO LIBDDP.A"; exit 1; }
shared=$(realpath "$1") archive=$(realpath "$2") status=0

scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-libraries.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
include=$repo/worker_runtime/include
cd "$scratch"

# The preprocessor takes the comments out, which name functions, too. Small letters are symbols that
# nobody can link with.
printf '#include <ddp/%s.h>\n' c stop progress | gcc -E -P -I"$include" - | grep -oE '\bddp_[a-z0-9_]+\(' | tr -d '(' | sort -u >declared
# Each bears the version that the programs ask for, which is a symbol as well.
version=$(sed -nE 's/^inline constexpr char kVersion\[\] = "([0-9]+\.[0-9]+)\..*/DDP_\1/p' "$repo/rendezvous/base/version.h")
nm -D --defined-only "$shared" | awk -v version="$version" '
  $2 ~ /[A-Z]/ && $3 != version { sub("@@" version "$", "", $3); print $3 }' | sort -u >shown
[[ -s declared ]] || { echo "libraries: no function was found in the headers for C"; status=1; }
comm -3 declared shown >differ
if [[ -s differ ]]; then
  echo "libraries: $1 and the headers for C differ:" $(comm -13 declared shown | sed 's/$/ (shown, not declared)/') \
    $(comm -23 declared shown | sed 's/$/ (declared, not shown)/')
  status=1
fi

cat >face.cc <<'END'
#include <ddp/ddp.h>

extern "C" int WorldSize() {
  auto group = ddp::ProcessGroup::FromEnv({});
  return group.ok() && (*group)->Shutdown().ok() ? (*group)->world_size() : -1;
}
END
# shellcheck disable=SC2046  # words
if ! g++ -std=c++20 -fPIC -shared -I"$include" face.cc -o face.so -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
  $(pkg-config --libs absl_statusor absl_status absl_strings absl_str_format) -ldl -pthread -Wl,-z,defs >linked 2>&1; then
  echo "libraries: $2 goes into no shared library: $(head -n 3 linked)"
  status=1
elif said=$(env -u RANK python3 -c 'import ctypes; print(ctypes.CDLL("./face.so").WorldSize())' 2>&1); [[ $said != 1 ]]; then
  echo "libraries: a group of one in a shared library with $2: $said"
  status=1
fi
exit $status
