"""Leaves an error file that is no JSON and fails."""
import os
import sys

with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
    file.write("{\"message\": ")
sys.exit(3)
