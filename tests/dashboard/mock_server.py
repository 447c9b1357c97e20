#!/usr/bin/env python3
"""What `ddprun --dashboard` serves, with jobs that are made up. Standard library only.

usage: mock_server.py PAGE SCENARIO      (serves until its stdin ends, and prints its URL)
"""

import http.server
import json
import sys
import threading
import time
import urllib.parse

import scenarios

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


class MockServer:
    """Serves one page and one job, on a port of the kernel's choice. The test turns its knobs at any time."""

    def __init__(self, page, scenario, every_s=0.2):
        with open(page, "rb") as file:
            self.page = file.read()
        self.every_s = every_s    # between two events
        self.started = time.monotonic()
        self.view = scenarios.SCENARIOS[scenario]
        self.is_cut = False       # hang up on everybody, and on whoever comes
        self.is_mute = False      # keep connections open and say nothing
        self.may_log = True
        self.history = []         # what a page gets first: [age_s, round, samples, step_s, share]
        self.logs = {}            # rank -> text
        self.changed = threading.Condition()
        self.streams = 0          # opened so far
        server = self

        class Handler(_Handler):
            mock = server

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.set(is_cut=True)
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def set(self, **knobs):
        with self.changed:
            for name, value in knobs.items():
                setattr(self, name, value)
            self.changed.notify_all()

    def job(self):
        return self.view(time.monotonic() - self.started)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def do_GET(self):
        if self.mock.is_cut:
            self.close_connection = True
            return
        address = urllib.parse.urlparse(self.path)
        if address.path == "/":
            self.answer(200, "text/html; charset=utf-8", self.mock.page)
        elif address.path == "/status.json":
            self.answer(200, "application/json", json.dumps(self.mock.job(), allow_nan=False).encode())
        elif address.path == "/events":
            self.stream()
        elif address.path == "/logs":
            self.log(urllib.parse.parse_qs(address.query))
        else:
            self.answer(404, "text/plain", b"no such page\n")

    def headers_for(self, status, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")

    def answer(self, status, kind, body):
        self.headers_for(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log(self, query):
        if not self.mock.may_log:
            return self.answer(403, "application/json", b'{"error": "output is not shown: --dashboard_logs is off"}')
        rank = int(query["rank"][0])
        log = self.mock.logs.get(rank, "").encode()
        offset = int(query.get("offset", ["0"])[0])
        piece = log[offset if offset <= len(log) else 0:]
        body = json.dumps({"rank": rank, "offset": len(log), "text": piece.decode(errors="replace")})
        return self.answer(200, "application/json", body.encode())

    def stream(self):
        self.headers_for(200, "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.mock.set(streams=self.mock.streams + 1)
        try:
            history = json.dumps(self.mock.history).encode()
            self.wfile.write(b"retry: 200\n\nevent: history\ndata: " + history + b"\n\n")
            while not self.mock.is_cut:
                if not self.mock.is_mute:
                    self.wfile.write(b"event: status\ndata: " + json.dumps(self.mock.job(), allow_nan=False).encode() + b"\n\n")
                with self.mock.changed:
                    self.mock.changed.wait(self.mock.every_s)
        except OSError:
            pass  # The browser has gone.


if __name__ == "__main__":
    with MockServer(sys.argv[1], sys.argv[2], every_s=1.0) as mock:
        print(mock.url, flush=True)
        sys.stdin.read()
