#!/usr/bin/env bash
# tools/soak's program finds nothing where nothing is wrong, and what a broken ddprun leaves or ends with.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1

status=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch

# expect STATUS TEXT DDPRUN OPTION...: soak.py OPTION... with that ddprun ends so and says TEXT.
expect() {
  local wanted=$1 text=$2 ddprun=$3 ended=0 output
  shift 3
  output=$(timeout 300 tools/soak_program/soak.py --ddprun "$ddprun" --worker "$PWD/tools/soak_program/soak_worker" "$@" \
    </dev/null 2>&1) || ended=$?
  if ((ended != wanted)) || [[ $output != *"$text"* ]]; then
    printf 'soak.py %s: wanted status %d and "%s", got %d and:\n%s\n' "$*" "$wanted" "$text" "$ended" "$output"
    status=1
  fi
}

# wrap NAME: a ddprun whose script is stdin.
wrap() {
  { echo '#!/bin/sh'; cat; } >"$scratch/$1"
  chmod +x "$scratch/$1"
}

export DDPRUN=$PWD/ddprun
wrap leaves <<'END'
setsid sleep 100 &
exec "$DDPRUN" "$@"
END
wrap forgets <<'END'
"$DDPRUN" "$@" || exit 77
END

expect 0 "left behind: 0; invariants broken: 0" "$DDPRUN" --minutes 0.25 --seed 1
expect 1 "left behind: " "$scratch/leaves" --minutes 0.001 --seed 1 --lanes short
expect 1 "the agents ended with [77" "$scratch/forgets" --minutes 0.001 --seed 17 --lanes short
expect 2 "no such lane: 'fast'" "$DDPRUN" --lanes fast
expect 2 "no such lane: 'apart'" "$DDPRUN" --etcd --lanes apart
exit "$status"
