"""A headless Chromium driven through two pipes, by its own protocol and without a library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--autoplay-policy=no-user-gesture-required",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)

# The browser reads what it is asked from descriptor 3 and answers to descriptor 4.
LAUNCH = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for pipe, number in zip(pipes, (3, 4)):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One page of a browser of its own; what it logs, throws, refuses and asks for is kept."""

    def __init__(self, folder, *, width=1280, height=800, is_dark=True, is_phone=False):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [find_chromium(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._log = (folder / "browser.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=self._log,
            stderr=self._log,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session = None
        self.problems, self.addresses = [], []
        try:
            self._set_up(width, height, is_dark, is_phone)
        except BaseException:
            self.__exit__()
            raise

    def _set_up(self, width, height, is_dark, is_phone):
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._out)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._log.close()

    def open(self, path):
        self._ask("Page.navigate", url=path.absolute().as_uri())
        self.until("document.documentElement?.dataset.ready === 'yes'")

    def run(self, script):
        """The value of an expression, waited for if it is a promise."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition, *, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"in vain: {condition}"
            time.sleep(0.03)

    def click(self, selector, *, across=0.5, down=0.5):
        """A real click of the mouse at a place within an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        area = self.run(
            f"(() => {{ const a = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            "return [a.left, a.top, a.width, a.height]; })()"
        )
        x, y = area[0] + across * area[2], area[1] + down * area[3]
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path, *, is_whole=False):
        shot = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has gone; see browser.log"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event):
        said = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(said["exceptionDetails"])
        elif event.get("method") == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.problems.append(said["args"])
        elif event.get("method") == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.problems.append(said["entry"]["text"])
        elif event.get("method") == "Network.requestWillBeSent":
            self.addresses.append(said["request"]["url"])
