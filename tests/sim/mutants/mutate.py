#!/usr/bin/env python3
"""mutate.py LIST OUT_DIR FILE...: copies of the product's sources with the faults of a list planted.

LIST is a Python file: MUTANTS are the faults, SWITCH the function that tells whether one is switched on,
HEADER what declares it. One program so holds all of them and, with no switch on, is the product. A fault
whose text is not found exactly once is an error: the product has moved on, and the list must follow.
"""

import os
import runpy
import sys


def main():
    list_path, out_dir, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    listed = runpy.run_path(list_path)
    mutants, switch = listed["MUTANTS"], listed["SWITCH"]
    include = f'#include "{listed["HEADER"]}"\n'
    list_name = os.path.basename(list_path)
    texts = {path: open(path, encoding="utf-8").read() for path in paths}
    for number, mutant in enumerate(mutants, 1):
        for path, old, new in mutant["patches"]:
            if path not in texts:
                sys.exit(f"{list_name}: mutant {number} ({mutant['name']}): {path} is not among the copied files")
            count = texts[path].count(old)
            if count != 1:
                sys.exit(f"{list_name}: mutant {number} ({mutant['name']}): found {count} times in {path}:\n{old}")
            texts[path] = texts[path].replace(old, new.replace("MUTANT", f"{switch}({number})"))
    for path, text in texts.items():
        target = os.path.join(out_dir, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(include + text)
    names = "".join(f'    "{mutant["name"]}",\n' for mutant in mutants)
    namespace = switch.removeprefix("::").rpartition("::")[0]
    with open(os.path.join(out_dir, "mutant_names.cc"), "w", encoding="utf-8") as file:
        file.write(f"{include}\nnamespace {namespace} {{\n\n"
                   f"const std::vector<std::string>& MutantNames() {{\n"
                   f"  static const std::vector<std::string> names = {{\n{names}  }};\n"
                   f"  return names;\n}}\n\n}}  // namespace {namespace}\n")


main()
