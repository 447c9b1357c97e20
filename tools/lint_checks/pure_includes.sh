#!/usr/bin/env bash
# pure_includes.sh PURE [FILE...]: the pure files, which the file PURE names (graph.py pure-files), include only
# what is named here and each other. The given files are judged as if they were pure, in their place. Everything
# under /usr/include compiles without a declared dependency, so Bazel cannot see this. The second half does the
# same for the layers that may not reach a library.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

allowed_std='algorithm|array|bit|cctype|charconv|chrono|cmath|compare|concepts|csignal|cstddef|cstdint|cstdio|cstdlib'
allowed_std+='|cstring|deque|functional|initializer_list|iomanip|iterator|limits|list|map|memory|numeric|optional|queue|random'
allowed_std+='|ratio|set|span|sstream|stddef\.h|stdint\.h|string|string_view|system_error|tuple|type_traits|unordered_map|unordered_set|utility|variant|vector'
allowed_own='rendezvous/base/(ids|time|check|rng)\.h|absl/(algorithm|status|strings|types)/[a-z_]+\.h'

(($# > 0)) || { echo "pure_includes: no list of pure files was given"; exit 1; }
mapfile -t pure_files <"$1"
shift
files=("$@")
(($# > 0)) || files=("${pure_files[@]}")
((${#pure_files[@]} > 0)) || { echo "pure_includes: no pure file was found"; exit 1; }
own=$(printf '%s\n' "${pure_files[@]}" | sed 's|^worker_runtime/include/||; s|\.|\\.|g' | paste -sd'|')

status=0
for file in "${files[@]}"; do
  if found=$(grep -nE '^[[:space:]]*#[[:space:]]*include' "$file" |
    grep -vE "#[[:space:]]*include[[:space:]]+[<\"]($allowed_std|$allowed_own|$own)[>\"]"); then
    sed "s|^|$file:|; s|\$|   (not allowed in pure code)|" <<<"$found"
    status=1
  fi
done

# A seeded generator of <random> is a function; random_device is found by pure_symbols.sh.
# A hash container may be asked, never walked: its order differs between runs and libraries. Where the
# order cannot get out, the line says "any order".
text=$(cat "${files[@]}" | tr '\n' ' ')
alias=$(grep -oP 'using \K\w+(?= = (std::)?unordered_)' <<<"$text" | sort -u | paste -sd'|' || true)
hashed=$(grep -oP "\\b(unordered_(multi)?(map|set)${alias:+|$alias})(<[^;{}]*>)?\\s*&?\\s+\\K\\w+(?=\\s*[;={,)])" <<<"$text" |
  sort -u | paste -sd'|' || true)
if [[ -n $hashed ]] && found=$(grep -nHE "for *\(.*:.*\b($hashed)\)|\b($hashed)(\.|->)c?r?begin\(" "${files[@]}" |
  grep -v '// any order$'); then
  sed 's|$|   (walks a hash container: its order is no order)|' <<<"$found"
  status=1
fi
if (($# > 0)); then exit $status; fi

# What calls itself pure in its first comment is judged as pure.
first_comment='FNR == 1 { is_comment = 1 } !/^\/\// { is_comment = 0 } is_comment && /\[pure\]/ { print FILENAME }'
if found=$(find rendezvous process launcher worker_runtime -name '*.h' -exec awk "$first_comment" {} + |
  grep -vxF -f <(printf '%s\n' "${pure_files[@]}")); then
  sed 's|$|: says [pure] but its target is not in tools/lint_checks/pure_targets.txt|' <<<"$found"
  status=1
fi

# in_layers REGEX FOLDER...: includes that match, below those folders.
in_layers() {
  local regex=$1
  shift
  find "$@" \( -name '*.h' -o -name '*.cc' \) -print0 2>/dev/null |
    xargs -0r grep -nHE "#[[:space:]]*include[[:space:]]+[<\"]($regex)"
}

# Training programs link the library beside their own copies of these.
if found=$(in_layers 'grpc|google/protobuf|boost/|spdlog/|fmt/|CLI/|launcher/|proto/' \
  process worker_runtime rendezvous/base rendezvous/core rendezvous/store); then
  sed 's|$|   (the library reaches no gRPC, Protobuf, Boost, spdlog or launcher)|' <<<"$found"
  status=1
fi
if found=$(in_layers 'absl/synchronization|absl/time|CLI/|spdlog/|fmt/' rendezvous process launcher worker_runtime examples |
  grep -vE '^(examples/train/options\.cc|launcher/cli/(command_line|help)\.cc):.*CLI/' |
  grep -vE '^rendezvous/net/channel\.cc:.*absl/synchronization/mutex\.h' |
  grep -vE '^launcher/(logs/logger|agent/agent_log)\.cc:.*spdlog/'); then
  sed 's|$|   (locks are std::mutex, of absl only the switch in channel.cc, time is std::chrono; CLI11 stays in options.cc, command_line.cc and help.cc, spdlog in logger.cc and agent_log.cc)|' <<<"$found"
  status=1
fi
exit $status
