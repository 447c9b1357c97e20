#!/usr/bin/env bash
# readme_line.sh: the README's one g++ line builds a program against dist/, and the program runs, alone
# and under dist/ddprun.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

mapfile -t lines < <(sed -n 's/^    \(g++ .*-lddp.*\)$/\1/p' README.md)
((${#lines[@]} == 1)) || { echo "readme_line: README.md shows ${#lines[@]} g++ lines with -lddp, wanted one"; exit 1; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-readme.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
ln -s "$repo/dist" "$scratch/dist"
cat >"$scratch/program.cc" <<'END'
#include <ddp/checkpoint.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/distributed_sampler.h>
#include <ddp/process_group.h>
#include <ddp/step_metrics.h>

#include <iostream>

int main() {
  auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) {
    std::cerr << group.status() << "\n";
    return 1;
  }
  std::cout << "rank " << (*group)->rank() << " of " << (*group)->world_size() << std::endl;
  return (*group)->Shutdown().ok() ? 0 : 1;
}
END
cd "$scratch"
bash -ec "${lines[0]}" || { echo "readme_line: does not build: ${lines[0]}"; exit 1; }
[[ $(./program) == "rank 0 of 1" ]] || { echo "readme_line: alone, the program printed: $(./program 2>&1)"; exit 1; }
output=$(timeout 60 dist/ddprun --standalone --nproc_per_node=2 ./program 2>&1 </dev/null | sort)
[[ $output == $'rank 0 of 2\nrank 1 of 2' ]] || { echo "readme_line: two ranks printed: $output"; exit 1; }
