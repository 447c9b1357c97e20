#!/usr/bin/env bash
# tidy.sh [FILE...]: clang-tidy over our sources (.clang-tidy says which checks). Minutes long.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

files=("$@")
if (($# == 0)); then
  # examples/libtorch includes what may not be here.
  mapfile -t files < <(find rendezvous process launcher worker_runtime examples -name '*.cc' -not -path 'examples/libtorch/*' 2>/dev/null | sort)
fi
((${#files[@]} > 0)) || { echo "tidy: no file was found"; exit 1; }
# Sources that include generated headers find them below Bazel's output folder.
bin=$(bazel_ info --config=opt bazel-bin 2>/dev/null)
if [[ -d proto ]]; then bazel_ build --config=opt //proto/... 2>/dev/null || { echo "tidy: //proto/... does not build"; exit 1; }; fi
say "clang-tidy over ${#files[@]} files"
flags=(-std=c++20 -I. -Iworker_runtime/include "-I$bin" -isystem /usr/include/eigen3
  -DSPDLOG_HEADER_ONLY -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL)
printf '%s\0' "${files[@]}" | xargs -0 -I{} -P "$(nproc)" clang-tidy --quiet {} -- "${flags[@]}" 2>/dev/null
