#!/usr/bin/env bash
# tools/bench/run starts: a benchmark that only somebody who measures runs is else found broken by them.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1

status=0

# expect STATUS TEXT OPTION...: tools/bench/run OPTION... ends so and says TEXT.
expect() {
  local wanted=$1 text=$2 ended=0 output
  shift 2
  output=$(tools/bench/run "$@" </dev/null 2>&1) || ended=$?
  if ((ended != wanted)) || [[ $output != *"$text"* ]]; then
    printf 'tools/bench/run %s: wanted status %d and "%s", got %d and:\n%s\n' "$*" "$wanted" "$text" "$ended" "$output"
    status=1
  fi
}

expect 0 "usage: run" --help
expect 2 "unknown case 'speed'" --only speed
expect 2 "--faults: expected some of F01, " --faults F99
expect 2 "--runs must be at least 1" --runs 0
exit "$status"
