#!/usr/bin/env python3
"""mutate.py OUT_DIR FILE...: copies of the product's pure sources with the faults of mutants.py planted.

Each fault stands behind a switch, ddprun::sim::IsMutant(number), so one program holds all of them and,
with no switch on, is the product. A fault whose text is not found exactly once is an error: the product
has moved on, and the list must follow.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mutants import MUTANTS  # noqa: E402


def main():
    out_dir, paths = sys.argv[1], sys.argv[2:]
    texts = {path: open(path, encoding="utf-8").read() for path in paths}
    for number, mutant in enumerate(MUTANTS, 1):
        for path, old, new in mutant["patches"]:
            if path not in texts:
                sys.exit(f"mutants.py: mutant {number} ({mutant['name']}): {path} is not among the copied files")
            count = texts[path].count(old)
            if count != 1:
                sys.exit(f"mutants.py: mutant {number} ({mutant['name']}): found {count} times in {path}:\n{old}")
            texts[path] = texts[path].replace(old, new.replace("MUTANT", f"::ddprun::sim::IsMutant({number})"))
    for path, text in texts.items():
        target = os.path.join(out_dir, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write('#include "tests/sim/mutant.h"\n' + text)
    names = "".join(f'    "{mutant["name"]}",\n' for mutant in MUTANTS)
    with open(os.path.join(out_dir, "mutant_names.cc"), "w", encoding="utf-8") as file:
        file.write('#include "tests/sim/mutant.h"\n\nnamespace ddprun::sim {\n\n'
                   f"const std::vector<std::string>& MutantNames() {{\n"
                   f"  static const std::vector<std::string> names = {{\n{names}  }};\n"
                   "  return names;\n}\n\n}  // namespace ddprun::sim\n")


main()
