#!/usr/bin/env bash
# in_guest.sh COMMAND...: runs COMMAND beside a real Slurm of one node, n1, that tracks processes by cgroup v2.
#
# The machine's own cgroups may be of version 1 or somebody else's, so all of it runs under a Linux of
# its own: a user-mode kernel whose root is this machine's, read-only. Prints what COMMAND prints; its
# exit code is ours. Where the packages are missing, or the kernel does not start here, it prints "SKIPPED: <why>" and
# exits with 0.
set -uo pipefail

skip() { echo "SKIPPED: $*"; exit 0; }

# As the first process of the guest. The kernel's command line has brought the variables.
boot() {
  echo "guest: started"
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SLURM_GUEST=1 SLURM_CGROUP=v2
  mount -t proc none /proc
  mount -t sysfs none /sys
  mount -t devtmpfs none /dev 2>/dev/null  # the kernel may have done it
  mkdir -p /dev/shm /dev/pts
  # Records of the machine's own jobs; nothing can be made there, as the root is read-only.
  [[ ! -d /tmp/ddprun-0 ]] || mount -t tmpfs -o mode=700 none /tmp/ddprun-0
  ln -sf /proc/self/fd /dev/fd
  mount -t devpts none /dev/pts
  mount -t tmpfs none /run
  mount -t tmpfs none "$GUEST_SCRATCH"
  mount -t cgroup2 none /sys/fs/cgroup
  mkdir /sys/fs/cgroup/system.slice
  local folder controller
  for folder in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
    for controller in cpu io memory pids; do echo "+$controller" >"$folder/cgroup.subtree_control"; done
  done
  ip link set lo up
  ip addr add 10.77.255.1/32 dev lo  # getaddrinfo finds nothing where all addresses are loopback's
  cd "$GUEST_FOLDER" || exit
  # Bash splits what was quoted for it.
  export TMPDIR=$GUEST_SCRATCH TEST_TMPDIR=$GUEST_SCRATCH
  eval "bash tests/slurm/in_slurm.sh 1 $GUEST_COMMAND"
  echo "guest: exit code $?"
  echo o >/proc/sysrq-trigger
  while true; do sleep 1; done
}

if (($$ == 1)); then boot; fi

for program in linux.uml slurmctld slurmd slurmdbd mariadbd munged; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || skip "no $program here; tools/test_slurm installs it"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/guest"
chmod 711 "$scratch"  # munged asks for it
# The guest's memory is a file in TMPDIR, which a kernel wants where programs may run.
HOME=$scratch TMPDIR=/dev/shm timeout 900 linux.uml mem=768M rootfstype=hostfs rootflags=/ root=/dev/root ro \
  con=null con0=null,fd:1 con1=null quiet init="$(realpath "$0")" GUEST_SCRATCH="$scratch/guest" \
  GUEST_FOLDER="$PWD" DDPRUN_TEST_FILE_LIMIT_S="$DDPRUN_TEST_FILE_LIMIT_S" TEST_SRCDIR="$TEST_SRCDIR" TEST_WORKSPACE="$TEST_WORKSPACE" \
  "GUEST_COMMAND=$(printf '%q ' "$@")" </dev/null 2>&1 | tee "$scratch/console"
grep -q '^guest: started' "$scratch/console" ||
  skip "no user-mode Linux starts on this machine: $(grep -m 1 -iE 'ptrace|panic' "$scratch/console" | tr -d '\r')"
code=$(sed -n 's/^guest: exit code \([0-9]*\)\r*$/\1/p' "$scratch/console")
exit "${code:-1}"
