#!/usr/bin/env bash
# readme.sh: what README.md shows is true. Its g++ line builds a program with its #include against dist/, which
# runs alone, spawns ranks and runs under dist/ddprun; its gcc line builds its program in C; and each of its
# `dist/ddprun` commands succeeds, that of two nodes twice at once.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# fail WORDS...: says what is not true and ends.
fail() {
  echo "readme: $*"
  exit 1
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-readme.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mapfile -t builds < <(sed -n 's/^    \(g++ .*-l:libddp\.a.*\)$/\1/p' README.md)
mapfile -t includes < <(sed -n 's/^    \(#include <ddp\/ddp\.h>.*\)$/\1/p' README.md)
mapfile -t c_builds < <(sed -n 's/^    \(gcc .*-lddp.*\)$/\1/p' README.md)
mapfile -t commands < <(sed -n 's/^    \(dist\/ddprun .*\)$/\1/p' README.md)
((${#builds[@]} == 1)) || fail "README.md shows ${#builds[@]} g++ lines with libddp.a, wanted one"
((${#c_builds[@]} == 1)) || fail "README.md shows ${#c_builds[@]} gcc lines with -lddp, wanted one"
((${#includes[@]} == 1)) || fail "README.md shows ${#includes[@]} lines that include the library, wanted one"
((${#commands[@]} >= 4)) || fail "README.md shows ${#commands[@]} commands of dist/ddprun, wanted four or more"

ln -s "$repo/dist" "$scratch/dist"
cd "$scratch"
printf '%s\n' "${includes[@]}" >program.cc
cat >>program.cc <<'END'
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
END
bash -ec "${builds[0]}" || fail "does not build: ${builds[0]}"
[[ $(./program) == "rank 0 of 1" ]] || fail "alone, the program printed: $(./program 2>&1)"
output=$(timeout 60 ./program spawn 2>err </dev/null | sort)
[[ $output == $'rank 0 of 2\nrank 1 of 2' ]] || fail "two ranks of a Spawn printed: $output $(cat err)"
output=$(timeout 60 dist/ddprun --standalone --nproc_per_node=2 ./program 2>err </dev/null | sort)
[[ $output == $'rank 0 of 2\nrank 1 of 2' ]] || fail "two ranks printed: $output $(cat err)"

sed -n '/^    #include <ddp\/c\.h>/,/^    }$/s/^    //p' "$repo/README.md" >program.c
bash -ec "${c_builds[0]}" || fail "does not build: ${c_builds[0]}"
[[ $(./program) == "rank 0 of 1: loss 0" ]] || fail "alone, the program in C printed: $(./program 2>&1)"
output=$(timeout 60 dist/ddprun --standalone --nproc_per_node=2 ./program 2>err </dev/null | sort)
[[ $output == $'rank 0 of 2: loss 0.5\nrank 1 of 2: loss 0.5' ]] || fail "two ranks in C printed: $output $(cat err)"

echo 'import os; print("rank", os.environ["RANK"])' >train.py
dist/make_digits digits --train 2000 --test 400 >/dev/null
# The port that README.md names may be in use here.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for command in "${commands[@]}"; do
  here=${command//:29400/:$port}
  if [[ $here == *--nnodes=2* ]]; then
    timeout 120 bash -c "$here" >other 2>&1 </dev/null &
    other=$!
    timeout 120 bash -c "$here" >out 2>&1 </dev/null || fail "one node of '$command' failed: $(cat out)"
    wait "$other" || fail "the other node of '$command' failed: $(cat other)"
  else
    # On a machine that does other work a rank may be slow for true: to say so is an answer.
    timeout 120 bash -c "$here" >out 2>&1 </dev/null || [[ $here == *' check '* && $(cat out) == *' is slow: '* ]] ||
      fail "'$command' failed: $(cat out)"
  fi
done
