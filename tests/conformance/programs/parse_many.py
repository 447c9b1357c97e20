"""torchrun's own code for many command lines, a JSON list each on stdin: PyTorch is imported once, each runs in a
child. Tells each one's exit status, a line each."""
import json
import os
import sys
import traceback

from torch.distributed.run import main

for line in sys.stdin:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            main(json.loads(line))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
