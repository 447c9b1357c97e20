"""A headless Chromium, driven over a pair of pipes by its DevTools protocol. Standard library only."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 60  # Long enough for a loaded machine; nothing waits for it unless something is wrong.


def find():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


class Browser:
    """One browser with one tab. Remembers what the page asked of the network, its errors and its dialogs."""

    def __init__(self, path, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix="ddprun-browser.")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        self.requests, self.errors, self.dialogs = [], [], []
        self.buffer, self.answers, self.last_id, self.session = b"", {}, 0, None
        # The protocol's pipes are descriptors 3 and 4. Without them the browser ends by itself: a test that
        # is killed leaves nothing behind.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", path, "--headless=new",
             "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-default-apps", "--disable-extensions", "--disable-breakpad", "--hide-scrollbars", "--lang=en-US",
             "--force-color-profile=srgb", f"--user-data-dir={self.folder}/profile", f"--window-size={width},{height}",
             "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(f"{self.folder}/stderr", "wb"), start_new_session=True,
            env={**os.environ, "HOME": self.folder, "XDG_CONFIG_HOME": self.folder, "XDG_CACHE_HOME": self.folder,
                 "DBUS_SESSION_BUS_ADDRESS": "disabled:"})
        os.close(to_browser)
        os.close(from_browser)
        try:
            self._open_tab()
        except BaseException:
            self.close()
            raise

    def _open_tab(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", patience_s=10)
            self.process.wait(10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            pass
        # The group, which this browser leads: also its helpers.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, patience_s=PATIENCE_S, **parameters):
        """One command of the protocol; its result."""
        number = self._send(method, parameters)
        answer = self._read_until(lambda: self.answers.pop(number, None), patience_s, method)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _send(self, method, parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self.write_end, rest):]
        return self.last_id

    def _read_until(self, condition, patience_s, what):
        deadline = time.monotonic() + patience_s
        while True:
            found = condition()
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{what}: no answer of the browser in {patience_s} s; {self._stderr()}")
            if select.select([self.read_end], [], [], left)[0]:
                piece = os.read(self.read_end, 1 << 20)
                if not piece:
                    raise EOFError(f"{what}: the browser has ended; {self._stderr()}")
                self.buffer += piece
                *messages, self.buffer = self.buffer.split(b"\0")
                for message in messages:
                    self._take(json.loads(message))

    def _stderr(self):
        with open(f"{self.folder}/stderr", "rb") as file:
            return "its stderr: " + file.read()[-2000:].decode(errors="replace")

    def _take(self, message):
        if "id" in message:
            self.answers[message["id"]] = message
            return
        method, parameters = message["method"], message["params"]
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
            # The page stands still until somebody answers.
            self._send("Page.handleJavaScriptDialog", {"accept": False})

    # What a test does.

    def open(self, url):
        result = self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise RuntimeError(f"open {url}: {result['errorText']}")

    def evaluate(self, expression):
        """A JavaScript expression's value; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, patience_s=PATIENCE_S):
        """Waits until the expression holds, which the page itself watches; its value."""
        deadline = time.monotonic() + patience_s
        while True:
            left = deadline - time.monotonic()
            value = self.evaluate(
                f"new Promise((done) => {{ const end = performance.now() + {min(max(left, 0), 5) * 1000:.0f}; const look = () => {{"
                f" const value = ({expression}); if (value || performance.now() > end) done(value); else setTimeout(look, 20); }}; look(); }})")
            if value:
                return value
            if left <= 0:
                raise AssertionError(f"not in {patience_s} s: {expression}\nthe page's text: {self.text()[:1500]}\nerrors: {self.errors}")

    def text(self):
        return self.evaluate("document.body ? document.body.innerText : ''")

    def resize(self, width, height, is_phone=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=is_phone)

    def set_dark(self, is_dark):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def press(self, key):
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def mouse(self, kind, selector):
        place = self.evaluate(f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.scrollIntoView({{block: 'center'}});"
                              " const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()")
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], **button)

    def click(self, selector):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, selector)

    def screenshot(self, path, is_whole=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
