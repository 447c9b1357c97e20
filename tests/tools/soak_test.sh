#!/usr/bin/env bash
# tools/soak's program finds nothing where nothing is wrong, and what a broken ddprun leaves or ends with.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1

status=0
scratch=$(mktemp -d)
end() {
  rm -rf "$scratch"
}
trap end EXIT
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

# expect_slope TEXT COUNT: the line of a lane that has COUNT (of i, a number of ten seconds) cgroups.
expect_slope() {
  local output
  output=$(cd tools/soak_program && python3 -c "import ledger
for line in ledger.slopes('lane', [(10 * i, {'cgroups': $2}) for i in range(50)]): print(line)")
  if [[ $output != *"$1"* ]]; then
    printf 'slopes of cgroups: %s: wanted "%s", got:\n%s\n' "$2" "$1" "$output"
    status=1
  fi
}

export DDPRUN=$PWD/ddprun
wrap leaves <<'END'
setsid sleep 100 &
exec "$DDPRUN" "$@"
END
wrap forgets <<'END'
"$DDPRUN" "$@" || exit 77
END

# Where cgroups are made; "" where there is no such place.
CGROUPS=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
export CGROUPS
wrap leaves_cgroup <<'END'
mkdir -p "$CGROUPS$(sed -n 's/^0:://p' /proc/self/cgroup)/ddprun-soaktest-$$-0/below"
exec "$DDPRUN" "$@"
END

expect_slope "cgroups            15       52      (between 15 and 52) +360.0 an hour" "i + 3"
expect_slope "cgroups             3        3      (between 3 and 3) +0.0 an hour" 3
if [[ -n $CGROUPS ]] && mkdir "$CGROUPS/soaktest-$$" 2>/dev/null; then
  rmdir "$CGROUPS/soaktest-$$"
  expect 1 "cgroups: left behind: ${CGROUPS%/}/" "$scratch/leaves_cgroup" --minutes 0.001 --seed 1 --lanes short
else
  echo "skipped: no cgroups can be made here"
fi
expect 0 "short: all its agents: too few samples" "$DDPRUN" --minutes 0.15 --seed 1 --lanes short
expect 0 "left behind: 0; invariants broken: 0" "$DDPRUN" --minutes 0.25 --seed 1
expect 1 "left behind: " "$scratch/leaves" --minutes 0.001 --seed 1 --lanes short
expect 1 "the agents ended with [77" "$scratch/forgets" --minutes 0.001 --seed 17 --lanes short
expect 2 "no such lane: 'fast'" "$DDPRUN" --lanes fast
expect 2 "no such lane: 'apart'" "$DDPRUN" --etcd --lanes apart
exit "$status"
