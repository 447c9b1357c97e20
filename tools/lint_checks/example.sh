#!/usr/bin/env bash
# example.sh: the trainer, with its half for GPUs, is built by g++ from dist/ and its own folder alone, as a
# program of a user's is: it includes nothing of the library but dist/include. It needs no CUDA header, links
# no library of CUDA's, trains on the CPU, and on a machine without a driver says so.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# fail WORDS...: says what is not true and ends.
fail() {
  echo "example: $*"
  exit 1
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-example.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/examples"
cp -r examples/train "$scratch/examples/train"
ln -s "$repo/dist" "$scratch/dist"
cd "$scratch"

# What tools/bazel/embed_text.bzl makes.
ptx=examples/train/gpu/layers_ptx
printf '#pragma once\nnamespace train {\nextern const char kLayersPtx[];\n}\n' >$ptx.h
{
  printf '#include "%s"\nconst char train::kLayersPtx[] = R"TEXT(' $ptx.h
  cat examples/train/gpu/layers.ptx
  printf ')TEXT";\n'
} >$ptx.cc

mapfile -t sources < <(find examples/train -name '*.cc')
[[ " ${sources[*]} " == *" examples/train/gpu/cuda_network.cc "* ]] || fail "no half for GPUs in: ${sources[*]}"
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c \
  "g++ -std=c++20 -O1 -I. -Idist/include $(pkg-config --cflags eigen3) -c {} -o {}.o || { echo {}: does not build; exit 255; }" \
  >built 2>&1 || fail "$(head -n 20 built)"
# shellcheck disable=SC2046  # words
g++ "${sources[@]/%/.o}" -o trainer -Ldist/lib -l:libddp.a $(pkg-config --libs absl_statusor absl_status absl_strings absl_str_format) \
  -lz -ldl -pthread >linked 2>&1 || fail "it does not link: $(head -n 20 linked)"

libraries=$(ldd trainer)
[[ $libraries != *libcu* && $libraries != *nccl* ]] || fail "it links a library of CUDA's: $libraries"
dist/make_digits digits --train 2000 --test 400 >/dev/null
timeout 120 ./trainer --data digits --epochs 1 --device cpu >out 2>&1 </dev/null || fail "on the CPU it failed: $(cat out)"
status=0
DDPRUN_CUDA_LIB=/no/such/driver timeout 60 ./trainer --data digits --epochs 1 --device cuda >out 2>&1 </dev/null || status=$?
((status != 0)) && grep -q '/no/such/driver' out || fail "without a driver it ended with $status and said: $(cat out)"
