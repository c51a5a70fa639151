"""Opens pages in the installed Chromium or Chrome with Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
TIMEOUT = 200_000  # milliseconds; long enough for a busy machine


def executable() -> str:
    """Returns the path of an installed browser. If there is none, skips the test, or fails it in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "chromium is missing: apt-get install chromium"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def new_page() -> Iterator[tuple[Page, list[str]]]:
    """Yields a page of 1600 x 1000 pixels, and a list that collects the page's uncaught errors and console errors."""
    path = executable()
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=FLAGS) as browser:
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(TIMEOUT)
        problems: list[str] = []

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "assert"):
                problems.append(f"console.{message.type}: {message.text} {message.location['url']}")

        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(f"Error: {error}"))
        yield page, problems
