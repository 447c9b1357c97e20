#!/usr/bin/env bash
# llm_c.sh FOLDER: karpathy/llm.c's train_gpt2.c, in FOLDER, with the edits of docs/library/llm.c.md: 2 ranks of batch 4 and 4
# ranks of batch 2 print the losses of 1 rank of batch 8. Needs gcc and dist/ (tools/build).
set -euo pipefail
(($# == 1)) || { echo "llm_c: usage: llm_c.sh FOLDER_OF_LLM.C"; exit 2; }
repo=$(realpath "$(dirname "$0")/../..") source=$(realpath "$1")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-llm_c.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
python3 "$repo/tests/real/llm_c_inputs.py" .

# Each block of lines in the document goes into a file: block1, block2 ...
awk '/^    / { if (!is_in) ++count; is_in = 1; print substr($0, 5) >("block" count); next } { is_in = 0 }' "$repo/docs/library/llm.c.md"
sed -E -e '/^#include <unistd.h>/r block1' -e '/^int main\(/r block2' -e '/^ *gpt2_free\(&model\);/r block3' \
  -e 's/(dataloader_init\(&[a-z_]+, [a-z_]+, B, T), 0, 1, [01]\)/\1, rank, world_size, 0)/' \
  -e '/^ *gpt2_backward\(&model\);/r block4' -e '/^ *val_loss \/= /r block5' -e 's/int B = 4;/int B = BATCH;/' \
  "$source/train_gpt2.c" >train_gpt2.c
edits=$(diff "$source/train_gpt2.c" train_gpt2.c | grep -cE '^[0-9]') || true
[[ $edits == 7 ]] || { echo "llm_c: $edits places were edited, wanted 7: this is another train_gpt2.c"; exit 1; }

for ranks in 1 2 4; do
  gcc -O3 -DBATCH=$((8 / ranks)) train_gpt2.c -o train -I"$source" -I"$repo/dist/include" -L"$repo/dist/lib" -lddp \
    -Wl,-rpath,"$repo/dist/lib" -lm
  OMP_NUM_THREADS=1 "$repo/dist/ddprun" --standalone --nproc-per-node=$ranks ./train >said$ranks
  sed -nE 's/^(val|step [0-9]+: train) loss ([0-9.]+).*/\2/p' said$ranks >losses$ranks
done
# The last digit that is printed, and what 40 steps make of sums in another order.
for ranks in 2 4; do
  paste losses1 losses$ranks | awk -v ranks=$ranks '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1; if (difference > most) most = difference }
    NR == 2 { first = $1 } { last = $1 }
    END {
      printf "llm_c: %d ranks: %d losses, %s to %s, differ by at most %.6f\n", ranks, NR, first, last, most
      exit !(NR == 46 && NF == 2 && most <= 0.0002 && last < first - 0.05)
    }' || { echo "llm_c: $ranks ranks do not have the losses of one"; exit 1; }
done
