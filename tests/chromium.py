"""A headless Chromium for tests: a page is opened, pointed at and clicked, and asked what it shows.

It speaks the DevTools protocol over a pair of pipes, in JSON messages that end in a zero byte, so that neither a driver
nor a port is needed.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Becomes the browser, which reads from 3 and writes to 4; done by a program, since a fork of one with JAX is unsafe.
MOVED = (
    "import os, sys; a, b = map(int, sys.argv[1:3]); os.dup2(a, 103); os.dup2(b, 104); "
    "os.dup2(103, 3); os.dup2(104, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def executable() -> str | None:
    """Where a Chromium is."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """A page in a browser of its own; use it with ``with``."""

    def __init__(self, file: Path, profile: Path, size: tuple[int, int] = (1200, 900)):
        path = executable()
        assert path is not None
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "--host-rules=MAP * ~NOTFOUND"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOVED, str(to_browser), str(from_browser), path, *flags, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.held, self.events = 0, b"", list[dict[str, Any]]()
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(found["targetId"] for found in targets if found["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.held:
            part = os.read(self.read, 65536)
            assert part, "the browser has ended"
            self.held += part
        text, _, self.held = self.held.partition(b"\0")
        return json.loads(text)

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def place(self, selector: str, across: float = 0.5) -> tuple[float, float]:
        """The middle of an element, or a place ``across`` its width, after scrolling to it."""
        box = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()"
        )
        return box[0] + across * box[2], box[1] + box[3] / 2

    def point(self, selector: str, across: float = 0.5) -> None:
        """Move the mouse there."""
        x, y = self.place(selector, across)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element."""
        x, y = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key of that name, such as ``ArrowLeft``, where the focus is."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def choose(self, label: str, text: str) -> None:
        """Choose the entry ``text`` of the list named ``label``."""
        found = self.ask(
            f"(() => {{ const list = document.querySelector('select[aria-label={json.dumps(label)}]');"
            f" const i = [...list.options].findIndex(o => o.textContent === {json.dumps(text)});"
            " list.value = i; list.dispatchEvent(new Event('change')); return i; })()"
        )
        assert found >= 0, f"{label} has no {text}"

    def complaints(self) -> list[str]:
        """Errors that the page or the browser reported, and every address that the page asked for."""
        said = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(str(event["params"]["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                said.append(event["params"]["entry"]["text"])
            if event.get("method") == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith(("data:", "file:")):
                    said.append(f"asked for {url}")
        return said

    def screenshot(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
