"""Writes its environment to env.<rank>.<restart>, a line for each variable, and adds its arguments as ARGV."""
import os
import sys

rank = int(os.environ["RANK"])
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
variables = dict(os.environ, ARGV=" ".join(sys.argv[1:]))
with open(f"env.{rank:03}.{restart}", "w", encoding="utf-8") as file:
    for name, value in sorted(variables.items()):
        file.write(f"{name}={value}".replace("\n", "\\n") + "\n")
