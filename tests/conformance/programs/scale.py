"""Ends at once when the world has as many ranks as its argument says; otherwise waits, at the file `fail` to fail."""
import os
import sys
import time

rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
open(f"up.{world}.{rank}", "w", encoding="utf-8").close()
while world != sys.argv[1]:
    if os.path.exists("fail"):
        sys.exit(1)
    time.sleep(0.01)
