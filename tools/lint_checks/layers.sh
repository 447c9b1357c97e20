#!/usr/bin/env bash
# layers.sh [PURE-TARGET [LIBRARY-TARGET]]: which of our packages reach which, from the BUILD files. The
# optional targets are judged as if they belonged to the pure code and to the library.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# under DIR...: every target below the folders that exist and hold one, as a query expression.
under() {
  local dir parts=()
  for dir in "$@"; do
    if [[ -d $dir && -n $(find "$dir" -name BUILD -print -quit) ]]; then parts+=("//$dir/..."); fi
  done
  local IFS=+
  echo "(${parts[*]:-set()})"
}

status=0
# forbid WHY FROM TO: no target of FROM may reach one of TO. Prints one path when it does.
forbid() {
  local path
  path=$(query "somepath($2, ($3) except ($2))")
  [[ -z $path ]] || { echo "layers: $1:" $path; status=1; }
}

pure="($(pure_targets))"
library=$(under worker_runtime)
if (($# > 0)); then pure="($pure + $1)"; fi
if (($# > 1)); then library="($library + $2)"; fi
base="(//rendezvous/base:ids + //rendezvous/base:time + //rendezvous/base:check)"
ours="kind('cc_(library|binary)', $(under rendezvous process launcher worker_runtime examples bench proto))"
grpc="(@grpc//:all + $(under proto rendezvous/wire rendezvous/server rendezvous/etcd rendezvous/client) + //rendezvous/net:channel)"

forbid "pure code reaches code that is not" "$pure" "(($ours except $base) except $pure) + @grpc//:all + @zlib//:all"
forbid "the lowest layer reaches one above" "$(under rendezvous/base)" "$ours"
forbid "the rendezvous reaches the launcher or the library" "$(under rendezvous)" \
  "$(under launcher worker_runtime) except //worker_runtime:env_contract"
forbid "the process code reaches more than the lowest layer" "$(under process)" \
  "($ours except $(under rendezvous/base)) + $grpc"
forbid "the store reaches gRPC" "$(under rendezvous/store)" "$grpc"
forbid "the library reaches the launcher or gRPC" "$library" "$(under launcher bench) + $grpc"
forbid "an example or the bench reaches more than the library" "$(under examples bench)" "$(under launcher) + $grpc"
forbid "a product depends on tests" "$ours" "$(under tests)"
exit $status
