"""What `make tensorboard` serves, asked of a real server."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
from torch.utils.tensorboard import SummaryWriter

MAKEFILE = Path(__file__).parents[1] / "Makefile"
IMAGES = 13  # TensorBoard by itself keeps 10 a tag


def served(url: str, seconds: float) -> list[dict[str, object]]:
    """The answer, once it is not empty; the server starts and reads the files while we ask."""
    deadline = time.monotonic() + seconds
    answer: list[dict[str, object]] = []
    while not answer and time.monotonic() < deadline:
        try:
            answer = json.load(urlopen(url, timeout=5))
        except (URLError, ConnectionError):
            answer = []
    return answer


def test_every_image_of_a_run_is_kept(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(IMAGES):
            writer.add_image("attention/a b", np.zeros((5, 7, 3), dtype=np.uint8), step, dataformats="HWC")
    flags = re.search(r"bin/tensorboard --logdir outputs (.*) \$\(ARGS\)", MAKEFILE.read_text().replace("$(BIN)", "bin"))
    assert flags and "--host 127.0.0.1" in flags[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path), "--port", "0", *flags[1].split()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "http://" in line)
            address = re.search(r"http://\S+", line)
            assert address
            query = urlencode({"tag": "attention/a b", "run": "run", "sample": 0})
            images = served(f"{address[0]}data/plugin/images/images?{query}", seconds=60)
        finally:
            server.terminate()
    assert [image["step"] for image in images] == list(range(IMAGES))
