#!/usr/bin/env bash
# in_limited_cgroup.sh COMMAND...: runs COMMAND in a memory cgroup of 64 MiB, of version 1 or 2, which
# is removed again. Where none can be made it prints "SKIPPED: <why>" and exits with 0.
set -euo pipefail

if [[ -z ${IN_OWN_MOUNTS:-} ]]; then
  unshare --mount true 2>/dev/null || { echo "SKIPPED: no mount namespace may be made here"; exit 0; }
  IN_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"
fi

# The one that is mounted may be read-only, in a sandbox say.
mount=$(mktemp -d)
trap 'umount "$mount" 2>/dev/null || true; rmdir "$mount"' EXIT
hierarchy=$(awk '$1 == "memory" { print $2 }' /proc/cgroups)
if [[ ${hierarchy:-0} != 0 ]]; then
  mount -t cgroup -o memory none "$mount" || { echo "SKIPPED: no cgroup v1 may be mounted"; exit 0; }
  limit=memory.limit_in_bytes
  own=$(sed -n 's/^[0-9]*:\([^:]*,\)\?memory\(,[^:]*\)\?:\//\//p' /proc/self/cgroup)
else
  mount -t cgroup2 none "$mount" || { echo "SKIPPED: no cgroup v2 may be mounted"; exit 0; }
  limit=memory.max
  own=/
  echo +memory >"$mount/cgroup.subtree_control" ||
    { echo "SKIPPED: cgroup v2 gives no memory controller here"; exit 0; }
fi
group=$mount$own/ddp-limited-$$
mkdir "$group"
echo $((64 << 20)) >"$group/$limit"
code=0
bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" || code=$?
rmdir "$group"
exit $code
