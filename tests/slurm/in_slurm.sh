#!/usr/bin/env bash
# in_slurm.sh NODES COMMAND...: runs COMMAND on the controller host of a real Slurm of NODES nodes n1, n2, ...
# From COMMAND, in_slurm.sh --cut I takes the power and the cable from node nI, --return I starts it again.
#
# With $SLURM_GUEST set the machine is a guest for this alone (in_guest.sh): one node, without a network.
#
# Everything lives in namespaces of its own (processes, mounts, network, host name): a controller, a
# slurmd for each node in a network namespace of the node's, munged, and slurmdbd with its MariaDB for
# sacct. All of it ends with COMMAND, whose exit code is ours. $SLURM_LAB is the folder of the
# cluster, with the daemons' logs. $SLURM_CGROUP: v1 or v2 where it tracks processes by cgroup.
# $SLURM_AFFINITY: 1 where it binds tasks to CPUs, of which a node then has the machine's.
# Where the packages or the rights are missing, it prints "SKIPPED: <why>" and exits with 0.
set -euo pipefail

skip() { echo "SKIPPED: $*"; exit 0; }

GUEST=${SLURM_GUEST:-0}
AFFINITY=${SLURM_AFFINITY:-0}

# As COMMAND's own, this runs in the namespaces. $1: the number of nodes.
network() {
  local i
  ip link set lo up
  mount -t tmpfs none /run
  mount -t tmpfs none /dev/shm
  # Records of jobs lie there, those of tests beside this one, too.
  mkdir -p -m 700 /tmp/ddprun-0
  mount -t tmpfs -o mode=700 none /tmp/ddprun-0
  mkdir -p /run/netns
  ip netns add switch
  ip -n switch link add br0 type bridge
  ip -n switch link set br0 up
  ip -n switch link set lo up
  ip -n switch addr add 10.77.0.100/24 dev br0
  for i in $(seq "$1"); do
    ip netns add "n$i"
    ip -n switch link add "p$i" type veth peer name eth0 netns "n$i"
    ip -n switch link set "p$i" master br0 up
    ip -n "n$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "n$i" link set eth0 up
    ip -n "n$i" link set lo up
  done
}

# Slurm finds a step's processes by walking /proc, or by their cgroup.
tracking() {
  if [[ ${SLURM_CGROUP:-none} == none ]]; then
    echo ProctrackType=proctrack/linuxproc
    if ((AFFINITY)); then echo TaskPlugin=task/affinity; fi
  else
    printf '%s\n' ProctrackType=proctrack/cgroup TaskPlugin=task/cgroup UnkillableStepTimeout=20
  fi
}

configure() {
  local nodes=$1 lab=$SLURM_LAB i
  mkdir -p "$lab"/{munge,socket,state,log,run,db}
  chmod 700 "$lab/munge"
  chmod 711 "$lab" "$lab/socket"
  for i in $(seq "$nodes"); do mkdir -p "$lab/spool/n$i"; done
  for i in 0 1 2 3; do mknod "$lab/gpu$i" c 1 3; done
  echo "NodeName=n[1-$nodes] Name=gpu File=$lab/gpu[0-3]" >"$lab/gres.conf"
  head -c 128 /dev/urandom >"$lab/munge/key"
  chmod 600 "$lab/munge/key"
  local net=10.77.0 ctl=10.77.0.100 cpus=8
  ((AFFINITY)) && cpus=$(nproc)
  ((GUEST)) && net=127.0.0 ctl=127.0.0.1
  { echo 127.0.0.1 localhost; echo "$ctl ctl"; } >"$lab/hosts"
  for i in $(seq "$nodes"); do echo "$net.$i n$i" >>"$lab/hosts"; done
  cat >"$lab/slurm.conf" <<END
ClusterName=ddprun
SlurmctldHost=ctl($ctl)
SlurmctldPort=26817
SlurmUser=root
AuthInfo=socket=$lab/socket/s
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool/%n
SlurmctldPidFile=$lab/run/slurmctld.pid
SlurmdPidFile=$lab/run/slurmd-%n.pid
$(tracking)
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=5
SlurmdParameters=config_overrides
GresTypes=gpu
MpiParams=ports=12000-12999
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=26819
AccountingStoragePass=$lab/socket/s
JobAcctGatherType=jobacct_gather/linux
NodeName=n[1-$nodes] NodeAddr=$net.[1-$nodes] CPUs=$cpus RealMemory=1000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=n[1-$nodes] Default=YES PriorityTier=10 GraceTime=5 MaxTime=60 State=UP
PartitionName=high Nodes=n[1-$nodes] PriorityTier=20 PreemptMode=OFF MaxTime=60 State=UP
END
  cat >"$lab/cgroup.conf" <<END
CgroupPlugin=cgroup/${SLURM_CGROUP:-v1}
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
IgnoreSystemd=yes
ConstrainCores=no
ConstrainRAMSpace=no
END
  cat >"$lab/slurmdbd.conf" <<END
AuthInfo=socket=$lab/socket/s
AuthType=auth/munge
DbdHost=localhost
DbdPort=26819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=13306
StorageUser=slurm
StoragePass=x
StorageLoc=acct
ArchiveDir=$lab/log
PidFile=$lab/run/slurmdbd.pid
END
  chmod 600 "$lab/slurmdbd.conf"
}

# at NETNS COMMAND...: in that network namespace.
at() {
  local netns=(nsenter --net="/run/netns/$1")
  shift
  ((GUEST)) && netns=()
  "${netns[@]}" "$@"
}

# on NETNS HOST COMMAND...: as that host.
on() {
  local netns=$1 host=$2
  shift 2
  at "$netns" unshare -um bash -c \
    'hostname "$0"; mount --bind "$SLURM_LAB/hosts" /etc/hosts; exec "$@"' "$host" "$@"
}

start() {
  local log=$SLURM_LAB/log/$1.log
  shift
  "$@" >"$log" 2>&1 </dev/null &
}

# await WHAT COMMAND...: until COMMAND succeeds, 30 s at most.
await() {
  local what=$1 deadline=$((SECONDS + 30))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then
      echo "in_slurm.sh: $what is not there after 30 s; its logs:" >&2
      tail -n 20 "$SLURM_LAB"/log/* >&2
      exit 1
    fi
    sleep 0.05
  done
}

# MariaDB and slurmdbd, on the controller host.
accounting() {
  local db=(mariadb --no-defaults -S "$SLURM_LAB/run/db" -u root)
  # Small, also in address space, of which a guest has little. The names of its temporary tables hold
  # its pid, which another lab on this machine has, too: each has its own namespace of pids.
  local own=(--innodb-buffer-pool-size=64M --loose-innodb-buffer-pool-size-max=64M --tmpdir="$SLURM_LAB/db_tmp")
  mkdir "$SLURM_LAB/db_tmp"
  mariadb-install-db --no-defaults --user=root --datadir="$SLURM_LAB/db" --skip-test-db "${own[@]}" \
    --auth-root-authentication-method=normal >"$SLURM_LAB/log/db_install.log" 2>&1 ||
    { cat "$SLURM_LAB/log/db_install.log" >&2; exit 1; }
  start mariadb on switch ctl mariadbd --no-defaults --user=root --datadir="$SLURM_LAB/db" --port=13306 \
    --bind-address=127.0.0.1 --socket="$SLURM_LAB/run/db" "${own[@]}"
  await mariadb "${db[@]}" -e 'select 1'
  "${db[@]}" -e "create user slurm@'127.0.0.1' identified by 'x'; create user slurm@localhost identified by 'x';
    grant all on acct.* to slurm@'127.0.0.1'; grant all on acct.* to slurm@localhost"
  start slurmdbd on switch ctl slurmdbd -D
  await slurmdbd at switch timeout 5 sacctmgr -i add cluster ddprun
}

has_idle() { [[ $(sinfo -h -N -p main -t idle -o %N | wc -l) == "$1" ]]; }

inside() {
  local nodes=$1 i
  shift
  ((GUEST)) || network "$nodes"
  configure "$nodes"
  start munged munged -F --socket="$SLURM_LAB/socket/s" --key-file="$SLURM_LAB/munge/key" \
    --pid-file="$SLURM_LAB/munge/pid" --seed-file="$SLURM_LAB/munge/seed" --log-file="$SLURM_LAB/munge/log" \
    --num-threads=2
  await munged test -S "$SLURM_LAB/socket/s"
  accounting
  start slurmctld on switch ctl slurmctld -D -c
  hostname ctl
  mount --bind "$SLURM_LAB/hosts" /etc/hosts
  await slurmctld on switch ctl bash -c 'exec 3<>/dev/tcp/ctl/26817'
  for i in $(seq "$nodes"); do start "slurmd-n$i" on "n$i" "n$i" slurmd -D -N "n$i"; done
  await "a node of the cluster" at switch bash -c "$(declare -f has_idle); has_idle $nodes"
  at switch "$@"
}

cut_node() {
  ip -n switch link set "p$1" down
  # shellcheck disable=SC2046  # a list
  kill -9 $(ip netns pids "n$1")
}

return_node() {
  ip -n switch link set "p$1" up
  start "slurmd-n$1" on "n$1" "n$1" setsid slurmd -D -N "n$1"
  # Slurm takes it back before the network does.
  local other
  for other in $(ip netns list | grep -o '^n[0-9]*'); do
    await "the way from n$1 to $other" at "n$1" bash -c "exec 3<>/dev/tcp/10.77.0.${other#n}/6818"
  done
}

case ${1:-} in
  --inside) shift; inside "$@"; exit ;;
  --cut) cut_node "$2"; exit ;;
  --return) return_node "$2"; exit ;;
esac

for program in slurmctld slurmd slurmdbd mariadbd mariadb-install-db munged srun ip; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || skip "no $program here; tools/setup --with-slurm installs it"
done
export PATH=$PATH:/usr/sbin:/sbin
namespaces=(--pid --fork --kill-child --mount-proc --mount --uts)
probe='mknod "$0" c 1 3'
if ((!GUEST)); then
  namespaces+=(--net)
  probe+=' && ip link add br0 type bridge && ip link add p1 type veth peer name p2'
fi
SLURM_LAB=$(mktemp -d)
trap 'rm -rf "$SLURM_LAB"' EXIT
unshare "${namespaces[@]}" -- bash -c "$probe" "$SLURM_LAB/probe" 2>/dev/null ||
  skip "this machine permits no namespaces, devices or bridges of our own"
rm "$SLURM_LAB/probe"
export SLURM_LAB SLURM_CONF=$SLURM_LAB/slurm.conf
unshare "${namespaces[@]}" -- bash "$0" --inside "$@"
