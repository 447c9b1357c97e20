"""calls.py CALLS [--page]: prints the nanoseconds of one call of CPU time of one ddprun.report_step(), less an empty loop's."""

import fcntl
import os
import struct
import sys
import time

STEP = 1_000_000  # a number that Python has no object for


def make_page():
    page = os.memfd_create("counters", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, 8192)
    os.pwrite(page, struct.pack("QQ", 0x3153544E43504444, 1), 0)
    fcntl.fcntl(page, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return page


def loop(calls):
    start = time.process_time_ns()
    for _ in range(STEP, STEP + calls):
        pass
    return time.process_time_ns() - start


def loop_with_reports(calls, report_step):
    start = time.process_time_ns()
    for step in range(STEP, STEP + calls):
        report_step(step, 32)
    return time.process_time_ns() - start


def main():
    calls, is_with_page = int(sys.argv[1]), "--page" in sys.argv[2:]
    page = make_page() if is_with_page else None
    if is_with_page:
        os.environ["DDPRUN_COUNTERS_FD"] = str(page)
    from ddprun import report_step  # noqa: PLC0415  which looks for the page

    report_step(0)
    print((loop_with_reports(calls, report_step) - loop(calls)) / calls)
    steps = struct.unpack("Q", os.pread(page, 8, 40))[0] if is_with_page else calls + 1
    return 0 if steps == calls + 1 else f"of {calls + 1} steps {steps} stand in the page"


if __name__ == "__main__":
    sys.exit(main())
