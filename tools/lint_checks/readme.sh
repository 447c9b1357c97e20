#!/usr/bin/env bash
# readme.sh: what README.md and some pages show is true. README.md's `ddprun` commands run: that of two
# machines in two network namespaces, `status` beside a job. So do the first commands of the guides. The
# programs of docs/library/cpp.md and c.md are built by the lines shown there, and run alone and under
# ddprun.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# fail WORDS...: says what is not true and ends.
fail() {
  echo "readme: $*"
  exit 1
}

# show PAGE PATTERN: `command` is the one line of a code block of PAGE that begins with PATTERN, without its
# remark and prompt.
show() {
  local lines
  mapfile -t lines < <(grep -E "^( {4})?(\\$ )?$2" "$repo/$1" | sed 's/^    //; s/^\$ //; s/  *# .*//')
  ((${#lines[@]} == 1)) || fail "$1 shows ${#lines[@]} lines that begin with $2, wanted one"
  command=${lines[0]}
}

# block PAGE LINE: the fenced block of PAGE that begins with LINE.
block() { sed -n "/^$2/,/^\`\`\`\$/{/^\`\`\`\$/d;p}" "$repo/$1"; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-readme.XXXXXX")
spaces=()
cleanup() {
  for space in "${spaces[@]}"; do ip netns del "$space" || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT
ln -s "$repo/dist" "$scratch/dist"
cd "$scratch"
export PATH=$scratch/dist:$PATH

# runs OUTPUT COMMAND: it succeeds in a minute and prints these lines, in any order.
runs() {
  local output
  output=$(timeout 60 bash -c "$2" 2>err </dev/null | sort) || fail "'$2' failed: $(cat err)"
  [[ $output == "$1" ]] || fail "'$2' printed: $output $(cat err)"
}

# succeeds [TEXT]: `command` ends with 0 in two minutes, or prints TEXT.
succeeds() {
  timeout 120 bash -c "$command" >out 2>&1 </dev/null || [[ -n ${1:-} && $(cat out) == *"$1"* ]] ||
    fail "'$command' failed: $(cat out)"
}

check_programs() {
  { block docs/library/cpp.md '#include <ddp\/ddp.h>' | head -1; cat <<'END_OF_PROGRAM'; } >program.cc
#include <iostream>

int RunRank() {
  auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) {
    std::cerr << group.status() << "\n";
    return 1;
  }
  std::cout << "rank " << (*group)->rank() << " of " << (*group)->world_size() << std::endl;
  return (*group)->Shutdown().ok() ? 0 : 1;
}

int main(int argc, char**) {
  if (argc == 1) return RunRank();
  return ddp::Spawn(2, [](int) { return RunRank(); }).ok() ? 0 : 1;
}
END_OF_PROGRAM
  show docs/library/cpp.md "g\+\+ "
  bash -ec "$command" || fail "does not build: $command"
  runs "rank 0 of 1" ./program
  runs $'rank 0 of 2\nrank 1 of 2' "./program spawn"
  runs $'rank 0 of 2\nrank 1 of 2' "ddprun --standalone --nproc-per-node=2 ./program"

  block docs/library/c.md '#include <ddp\/c.h>' >program.c
  show docs/library/c.md "gcc "
  bash -ec "$command" || fail "does not build: $command"
  runs "rank 0 of 1: loss 0" ./program
  runs $'rank 0 of 2: loss 0.5\nrank 1 of 2: loss 0.5' "ddprun --standalone --nproc-per-node=2 ./program"
}

check_one_machine() {
  echo 'import os, sys; sys.stdout.write("rank " + os.environ["RANK"] + chr(10))' >train.py
  printf '#!/bin/sh\necho rank $RANK\n' >any_program
  chmod +x any_program
  show README.md 'ddprun --nproc-per-node=8 train.py'
  runs "$(printf 'rank %d\n' {0..7})" "$command"
  show README.md 'ddprun --nproc-per-node=8 --max-restarts=3 train.py'
  runs "$(printf 'rank %d\n' {0..7})" "$command"
  show README.md 'ddprun --nproc-per-node=4 ./any_program'
  runs "$(printf 'rank %d\n' {0..3})" "$command"
}

# Two network namespaces, joined by a cable, in which node1 is the first one's name.
check_two_machines() {
  local number space pids=()
  show README.md 'ddprun --nnodes=2'
  if ((EUID != 0)); then
    skipped "'$command': network namespaces need root"
    return
  fi
  for number in 1 2; do
    space=ddprun-readme-$$-$number
    ip netns add "$space"
    spaces+=("$space")
  done
  ip link add eth0 netns "${spaces[0]}" type veth peer name eth0 netns "${spaces[1]}"
  printf '127.0.0.1 localhost\n10.78.1.1 node1\n10.78.1.2 node2\n' >hosts
  for number in 1 2; do
    space=${spaces[number - 1]}
    ip -n "$space" addr add "10.78.1.$number/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" link set lo up
    # Names of its own, and a mount namespace in which /etc/hosts has both.
    nsenter --net="/run/netns/$space" unshare --mount --uts timeout 120 bash -ec \
      "hostname node$number; mount --bind hosts /etc/hosts; $command" >"out$number" 2>&1 </dev/null &
    pids+=($!)
  done
  wait "${pids[0]}" || fail "the first node of '$command' failed: $(cat out1)"
  wait "${pids[1]}" || fail "the second node of '$command' failed: $(cat out2)"
  [[ $(grep -hx 'rank [0-9]*' out1 out2 | sort -V) == "$(printf 'rank %d\n' {0..15})" ]] ||
    fail "'$command' printed: $(cat out1 out2)"
}

check_status() {
  local job output
  show README.md 'ddprun status'
  mkfifo gate
  timeout 120 ddprun --nproc-per-node=2 --rdzv-id=readme-$$ sh -c 'read -r end <gate' \
    >out 2>&1 </dev/null &
  job=$!
  for ((i = 0; i < 600; i++)); do
    if output=$($command "readme-$$" 2>err) && [[ $output == running:* ]]; then break; fi
    sleep 0.1
  done
  exec 3<>gate
  printf 'end\nend\n' >&3
  wait "$job" || fail "the job of '$command' failed: $(cat out)"
  [[ $output == "running: round 1, 1 node, 2 ranks"* ]] || fail "'$command' printed: $output $(cat err)"
}

# A port that a page names may be in use here.
check_pages() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  show docs/getting-started/quickstart.md 'ddprun --nproc-per-node=4 train.py'
  runs "$(printf 'rank %d\n' {0..3})" "$command"
  show docs/guides/multi-node.md 'ddprun --nnodes=2 --nproc-per-node=2 .*127.0.0.1:29400 train.py'
  command=${command//:29400/:$port}
  runs "$(printf 'rank %d\n' {0..3})" "$command & $command && wait \$!"
  dist/make_digits digits --train 2000 --test 400 >/dev/null
  show docs/getting-started/quickstart.md 'dist/ddprun --standalone'
  succeeds
  show docs/guides/check-nodes.md 'ddprun doctor'
  succeeds
  # On a machine that does other work a rank may be slow for true: to say so is an answer.
  show docs/guides/check-nodes.md 'ddprun check --nproc-per-node=2'
  succeeds ' is slow: '
  show docs/guides/scaling.md 'ddprun bench dp-ddp .*--html bench.html'
  succeeds
}

check_programs
check_one_machine
check_pages
check_two_machines
check_status
