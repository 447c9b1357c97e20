#!/usr/bin/env bash
# format.sh FILE...: clang-format finds nothing to change. Its versions differ in taste, so the one of
# Debian 12 judges; elsewhere the check says that it did not run.
set -euo pipefail
(($# > 0)) || { echo "format: no file was given"; exit 1; }
judge=14
for program in "clang-format-$judge" clang-format; do
  if command -v "$program" >/dev/null && [[ $("$program" --version) == *"version $judge."* ]]; then
    said=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-format.XXXXXX")
    trap 'rm -rf "$said"' EXIT
    # Each process has a file of its own: what several write at once into one would be mixed.
    # shellcheck disable=SC2016  # for the inner shell
    if printf '%s\0' "$@" | said=$said program=$program xargs -0 -n 50 -P "$(nproc)" \
      bash -c '"$program" --dry-run -Werror --style=file "$@" 2>"$(mktemp "$said/XXXXXX")"' --; then exit 0; fi
    found=$(cat "$said"/*)
    # One line a file is enough; tools/lint --fix mends them.
    grep -oP '^[^:]+:\d+(?=:\d+: error)' <<<"$found" | sort -t: -u -k1,1 |
      sed 's/$/: clang-format would change it (tools\/lint --fix)/'
    exit 1
  fi
done
echo "format: not checked: clang-format $judge is not here ($(clang-format --version 2>&1 | head -n 1))"
