"""Tests what `make tensorboard` shows, with a real server and a real browser."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from browser import new_page
from entente.training.train import train
from tiny import SMALL, run_settings, write_corpus

MAKEFILE = Path(__file__).parents[2] / "Makefile"
IMAGES = 13  # more than the 10 images per tag that TensorBoard keeps by default
TIMEOUT = 200.0  # seconds; long enough for a busy machine
# Maps each view that shows runs to the CSS selector of its headings and the text of the last heading.
HEADINGS = {
    "timeseries": (".group-title", "why"),
    "hparams": ("tf-hparams-table-view .table-header", "when finished/test bleu"),
    "custom_scalars": ("tf-card-heading [itemprop=name]", "target tokens per second"),
}
ABLATIONS = ("baseline", "no_residual")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits until the condition is true, or fails after TIMEOUT with a message that contains `what`."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT:g} s: {what}"
        time.sleep(0.05)


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Starts TensorBoard on a folder with the flags of `make tensorboard`, and yields its address."""
    flags = re.search(r"bin/tensorboard --logdir outputs (.*) \$\(ARGS\)", MAKEFILE.read_text().replace("$(BIN)", "bin"))
    assert flags and "--host 127.0.0.1" in flags[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", *flags[1].split()]
    log = folder / "tensorboard.log"
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as server:
        try:
            wait_until(lambda: "http://" in log.read_text() or server.poll() is not None, "the address of TensorBoard")
            address = re.search(r"http://\S+(?=\s)", log.read_text())
            assert address, log.read_text()
            yield address[0]
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def fetch(url: str) -> Any:
    """Returns the JSON at `url`. Waits until it is not empty, since the server may still be reading files."""
    answers: list[Any] = []

    def request() -> bool:
        try:
            answers.append(json.load(urlopen(url, timeout=60)))
        except (URLError, ConnectionError, TimeoutError):
            return False
        return bool(answers[-1])

    wait_until(request, url)
    return answers[-1]


@pytest.fixture
def two_runs(tmp_path: Path) -> set[str]:
    """Trains a baseline and an ablation as `make train` does, but with small models, and returns the names of the runs."""
    small = [*write_corpus(tmp_path), f"output_dir={tmp_path}/outputs", *SMALL["transformer"]]
    small += ["trainer.max_steps=4", "trainer.log_every=1", "search.length_factor=0.5", "views.attention=false"]
    return {train(run_settings([*small, f"ablation={name}"])).name for name in ABLATIONS}


@pytest.mark.slow
def test_a_browser_compares_two_ordinary_runs_and_every_image_is_kept(two_runs: set[str], tmp_path: Path) -> None:
    name = min(two_runs)
    with SummaryWriter(str(tmp_path / "outputs" / name)) as writer:
        for step in range(IMAGES):
            writer.add_image("weights/a b", np.zeros((5, 7, 3), dtype=np.uint8), step, dataformats="HWC")
    with new_page() as (browser, problems), tensorboard(tmp_path / "outputs") as address:
        wait_until(lambda: set(fetch(f"{address}data/runs")) >= two_runs, "both runs")
        assert set(fetch(f"{address}data/runs")) == two_runs == {f"{name}-transformer-files-seed1" for name in ABLATIONS}
        query = urlencode({"tag": "weights/a b", "run": name, "sample": 0})
        images = fetch(f"{address}data/plugin/images/images?{query}")
        assert [image["step"] for image in images] == list(range(IMAGES))
        columns = {}
        for view, (titles, last) in HEADINGS.items():
            browser.goto("about:blank")
            browser.goto(f"{address}#{view}")
            browser.locator(titles).filter(has_text=last).wait_for()
            columns[view] = [text.strip() for text in browser.locator(titles).all_text_contents()]
        assert columns["timeseries"][1:] == ["train", "valid", "weights", "when finished", "why"]
        assert "when finished/test bleu" in columns["hparams"]
        assert columns["custom_scalars"] == ["training loss", "validation BLEU", "target tokens per second"]
        assert problems == []
