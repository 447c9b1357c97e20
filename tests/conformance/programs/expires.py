"""Asks the launcher's watchdog for a timer: without an argument one that has expired, and waits for its end."""
import json
import os
import signal
import sys
import time

is_released = len(sys.argv) > 1
request = {
    "version": 1,
    "pid": os.getpid(),
    "scope_id": "scope",
    "expiration_time": time.time() + (600 if is_released else -1),
    "signal": int(signal.SIGKILL),
}
open("asked", "w", encoding="utf-8").close()
with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w", encoding="utf-8") as pipe:
    pipe.write(json.dumps(request) + "\n")
    if is_released:
        pipe.write(json.dumps(dict(request, expiration_time=-1)) + "\n")
if not is_released:
    signal.pause()
