"""A real browser without a window: Chromium, told over a pipe what to do (DevTools protocol)."""

import base64
import itertools
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1600, 1000)  # of the window
PATIENCE = 200.0  # seconds, on a busy machine too
START = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'  # Chromium reads orders from file 3 and answers on file 4
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
FLAGS += ["--remote-debugging-pipe", "--force-color-profile=srgb"]

# JavaScript of every page: elements by a CSS selector, in shadow trees too, and how an <img> is shown.
HELP = """
globalThis.deep = (selector, root = document) => [...root.querySelectorAll('*')].flatMap(e =>
  [...(e.matches(selector) ? [e] : []), ...(e.shadowRoot ? deep(selector, e.shadowRoot) : [])]);
globalThis.picture = async image => {
  if (!image.complete) await new Promise(done => image.onload = image.onerror = done);
  image.scrollIntoView({block: 'center', behavior: 'instant'});
  const seen = await new Promise(done => new IntersectionObserver(([e]) => done(e.intersectionRect)).observe(image));
  const box = image.getBoundingClientRect();
  return [[image.naturalWidth, image.naturalHeight], [box.width, box.height],
          [seen.x - box.x, seen.y - box.y], [seen.x, seen.y, seen.width, seen.height]];
};
"""


def executable() -> str:
    """Where the browser is. A test that has none is skipped, but fails in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "chromium is missing: apt-get install chromium"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Picture(NamedTuple):
    """An <img>, scrolled to. Lengths are in pixels."""

    natural: tuple[int, int]  # width and height in its file; (0, 0) if that could not be loaded
    shown: tuple[float, float]  # width and height on the page
    corner: tuple[float, float]  # of it, where the part that is not hidden or scrolled away begins
    seen: tuple[float, float, float, float]  # that part in the window: x, y, width, height

    def scale(self) -> float:
        """The smaller of shown over natural width and height; 0 if there is nothing to see."""
        if not all(self.natural) or not all(self.seen[2:]):
            return 0.0
        return min(self.shown[0] / self.natural[0], self.shown[1] / self.natural[1])


class Browser:
    """One page. `problems` are its errors until now: of the console, not caught, of loading."""

    def __init__(self) -> None:
        command = ["sh", "-c", START, "sh", executable(), *FLAGS]
        self.problems: list[str] = []
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._read = b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._profile.name}", "about:blank"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        try:
            page = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Inspector"):
                self.call(f"{domain}.enable")
            self.call("Page.addScriptToEvaluateOnNewDocument", source=HELP)
            self.call("Emulation.setDeviceMetricsOverride", width=SIZE[0], height=SIZE[1], deviceScaleFactor=1, mobile=False)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._session = None
        with suppress(OSError, RuntimeError, TimeoutError):
            self.call("Browser.close", seconds=10)
            while True:  # until it has ended, or the time is over
                self._message(time.monotonic() + 10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        for file in (self._process.stdin, self._process.stdout, self._log):
            assert file
            file.close()
        self._profile.cleanup()

    def call(self, method: str, seconds: float = PATIENCE, **params: Any) -> Any:
        """What a method of the protocol returns."""
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while (message := self._message(deadline)).get("id") != number:
            self._note(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def _message(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\0" not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"the browser does not answer; errors until now: {self.problems}")
                part = os.read(self._process.stdout.fileno(), 1 << 20)
                if not part:
                    self._log.seek(0)
                    raise RuntimeError(f"the browser has ended: {self._log.read()[-2000:]}")
                self._read += part
        message, _, self._read = self._read.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _note(self, message: dict[str, Any]) -> None:
        """Keep it if it is a problem."""
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                exception = details.get("exception", {})
                self.problems.append(f"{details['text']} {exception.get('description', exception.get('value', ''))}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                said = (str(part.get("value", part.get("description", part["type"]))) for part in params["args"])
                self.problems.append(f"console.{params['type']}: {' '.join(said)}")
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
            case "Inspector.targetCrashed":
                raise RuntimeError("the page has crashed")

    def open(self, url: str) -> None:
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise RuntimeError(f"{url}: {failure}")
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str, seconds: float = PATIENCE) -> Any:
        """The value of JavaScript in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", seconds, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE) -> None:
        """Until the expression is true."""
        until(lambda: bool(self.evaluate(expression)), f"{expression}; errors of the page: {self.problems}", seconds)

    def click(self, element: str) -> None:
        """With the mouse, in the middle of what the expression gives, as a person would."""
        self.evaluate(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({element}.getBoundingClientRect())")
        for event in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def picture(self, image: str) -> Picture:
        """How the <img> that the expression gives is shown, once it is loaded or cannot be."""
        return Picture(*map(tuple, self.evaluate(f"picture({image})")))

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Ask again and again, until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
