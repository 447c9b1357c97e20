#!/usr/bin/env python3
"""pictures.py DDPRUN TRAIN MAKE_DIGITS FOLDER: the pictures of the documents, of a real job.

Four ranks on CPUs learn to read digits, and one of them is stopped. FOLDER gets dashboard.png, the page in
Chromium, and top.png, what `ddprun top` wrote to a terminal. tools/docs --pictures calls it.
"""

import contextlib
import fcntl
import html
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pyte

import browser

RUN_ID, VICTIM = f"digits-{os.getpid()}", 2
NAMED = f"rank {VICTIM} has not come to"
LINES, COLUMNS = 14, 110
LIMIT_S = 120
CURVE_S = 30  # so long do all ranks run: the plots need a past
PAGE = """<meta charset="utf-8"><style>body {{ margin: 0; background: #1d1f21; }}
pre {{ margin: 16px; font: 15px/1.35 "DejaVu Sans Mono", monospace; color: #e0e0e0; }}
.bold {{ font-weight: bold; }} .reverse {{ background: #e0e0e0; color: #1d1f21; }}
.red {{ color: #f07178; }} .green {{ color: #9ccc65; }} .brown {{ color: #ffcb6b; }} .cyan {{ color: #80cbc4; }}
</style><pre>{}</pre>"""


@contextlib.contextmanager
def job(ddprun, train, data):
    """A job whose dashboard's address is the value; all of it is ended on exit."""
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(
            [ddprun, "--dashboard", f"--rdzv-id={RUN_ID}", "--nproc-per-node=4", "--hang-timeout=5",
             "./" + os.path.basename(train), "--data", data, "--epochs", "100000"], cwd=os.path.dirname(train),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log) as agent:
        try:
            yield wait_for(lambda: address_in(log, agent), "the dashboard's address")
        finally:
            try:
                for pid in pids(ddprun).values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            finally:
                agent.terminate()
                try:
                    agent.wait(LIMIT_S)
                except subprocess.TimeoutExpired:
                    agent.kill()  # its guardian ends the ranks


def address_in(log, agent):
    log.seek(0)
    text = log.read()
    if agent.poll() is not None:
        raise RuntimeError(f"the job ended with {agent.returncode}: {text}")
    found = re.search(r"dashboard: (http://\S+)", text)
    return found and found[1]


def wait_for(condition, what, deadline=None):
    deadline = deadline or time.monotonic() + LIMIT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {LIMIT_S} s: {what}")
        time.sleep(0.1)


def status(ddprun):
    """The job as `ddprun status --json` describes it, or None while there is none."""
    done = subprocess.run([ddprun, "status", "--json", RUN_ID], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=LIMIT_S, check=False)
    return json.loads(done.stdout) if done.stdout else None


def pids(ddprun):
    """The ranks' processes."""
    view = status(ddprun)
    return {rank["rank"]: rank["pid"] for node in view["nodes"] for rank in node["ranks"]} if view else {}


def stop_in_a_step(ddprun):
    """Stops the rank so that the others wait for it in an all-reduce, and not between two epochs."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        pid = pids(ddprun)[VICTIM]
        os.kill(pid, signal.SIGSTOP)
        problems = wait_for(lambda: status(ddprun)["problems"], "a problem of the job", deadline)
        if NAMED in problems[0]["text"]:
            return
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: not status(ddprun)["problems"], "a job without a problem", deadline)
    raise TimeoutError(f"not in {LIMIT_S} s: a problem with the text '{NAMED}'")


def read_terminal(command, is_enough):
    """What a command shows on a terminal when `is_enough` of its text; then it gets a q."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    deadline = time.monotonic() + LIMIT_S
    try:
        while not is_enough("\n".join(screen.display)):
            if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{' '.join(command)}: not in {LIMIT_S} s: {screen.display}")
            stream.feed(os.read(terminal, 1 << 16))
        os.write(terminal, b"q")
    finally:
        os.close(terminal)
        os.kill(child, signal.SIGHUP)
        os.waitpid(child, 0)
    return screen


def as_html(screen):
    lines = []
    for y in range(screen.lines):
        line = ""
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            classes = [name for name in ("bold", "reverse") if getattr(cell, name)]
            classes += [cell.fg] if cell.fg != "default" else []
            text = html.escape(cell.data)
            line += f'<span class="{" ".join(classes)}">{text}</span>' if classes else text
        lines.append(line.rstrip())
    return PAGE.format("\n".join(lines).rstrip())


def main(ddprun, train, make_digits, folder):
    with tempfile.TemporaryDirectory(prefix="ddprun-pictures.") as scratch, browser.Browser(browser.find()) as page:
        data = os.path.join(scratch, "digits")
        # Few to test: a rank shall be stopped in a step.
        subprocess.run([make_digits, data, "--train", "60000", "--test", "200"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        with job(ddprun, train, data) as address:
            wait_for(lambda: (status(ddprun) or {}).get("step"), "the first step")
            page.resize(1280, 900)
            page.open(address)
            time.sleep(CURVE_S)
            stop_in_a_step(ddprun)
            page.wait(f"document.body.innerText.includes({json.dumps(NAMED)})")
            page.screenshot(os.path.join(folder, "dashboard.png"))
            screen = read_terminal([ddprun, "top", RUN_ID], lambda text: NAMED in text)
        shown = os.path.join(scratch, "top.html")
        with open(shown, "w", encoding="utf-8") as file:
            file.write(as_html(screen))
        page.open(f"file://{shown}")
        page.resize(16 * 2 + int(COLUMNS * 9.1), 16 * 2 + int(LINES * 15 * 1.35))
        page.screenshot(os.path.join(folder, "top.png"))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: pictures.py DDPRUN TRAIN MAKE_DIGITS FOLDER")
    main(*map(os.path.abspath, sys.argv[1:]))
