"""Measures contestants in alternation, A B A B, so that other load on the machine affects all of them alike.

A contestant is a process that sets itself up once and then waits for requests (wire.py). It uses no CPU while it waits.
It answers each request with the measurements of one burst, such as some training steps or the decoding of some sentences.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from benchmark.wire import Message

OURS = "ours"
SCRIPTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Contestant:
    """A program to measure: the Python interpreter and the file in contestants/ that run it, its settings, and the reason to
    leave it out, if any."""

    name: str
    python: str
    file: str
    settings: Message
    left_out: str = ""


@dataclass
class Measured:
    """The answers of a contestant after its set-up (`about`), the warm-up and each burst, or the reason why it was left out."""

    about: Message = field(default_factory=dict)
    warm_up: Message = field(default_factory=dict)
    bursts: list[Message] = field(default_factory=list)
    left_out: str = ""


class Worker:
    """The process of a contestant. It writes its temporary files to `folder`, since it is killed at the end."""

    def __init__(self, contestant: Contestant, folder: str) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", dir=folder)
        self._connection, other_end = Pipe()
        paths = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
        threads = str(contestant.settings["threads"])
        variables = {"PYTHONPATH": paths, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "TMPDIR": folder}
        options: dict[str, Any] = {"stdout": self._errors, "stderr": self._errors, "env": {**os.environ, **variables}}
        script, descriptor = SCRIPTS / "benchmark" / "contestants" / f"{contestant.file}.py", other_end.fileno()
        with other_end:
            command = [contestant.python, str(script), str(descriptor)]
            self._process = subprocess.Popen(command, pass_fds=[descriptor], **options)

    def ask(self, message: Message) -> Message:
        """Sends the settings or a request, and returns the answer. Raises RuntimeError if the process ends without one."""
        try:
            self._connection.send(message)
            return self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors if line.strip()]
            raise RuntimeError(f"ended with code {code}: {lines[-1] if lines else 'no message'}") from error

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._errors.close()


def in_turn(
    contestants: Sequence[Contestant], pairs: int, request: Message, begin: Callable[[str], None], fresh: bool = False
) -> dict[str, Measured]:
    """Runs a warm-up round, in which contestants also return outputs, then `pairs` rounds of one burst per contestant.

    `begin` is called with a contestant's name before each burst. With `fresh`, each burst has a new process: `ready` is then
    the time until the process is set up, and `seconds` the time until it answers. A contestant that fails is left out, except
    Entente itself, whose error is raised."""
    results = {contestant.name: Measured(left_out=contestant.left_out) for contestant in contestants}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for turn, contestant in product(range(pairs + 1), contestants):
            name, measured = contestant.name, results[contestant.name]
            if measured.left_out:
                continue
            begin(name)
            started = time.perf_counter()
            try:
                if fresh or name not in workers:
                    workers[name] = Worker(contestant, folder)
                    stack.callback(workers[name].close)
                    measured.about = workers[name].ask(contestant.settings)
                ready = time.perf_counter()
                answer = workers[name].ask({**request, "outputs": turn == 0})
            except RuntimeError as error:
                if name == OURS:
                    raise
                results[name] = Measured(left_out=str(error))
                continue
            if fresh:
                answer |= {"ready": ready - started, "seconds": time.perf_counter() - started}
                stack.close()
            if turn:
                measured.bursts.append(answer)
            else:
                measured.warm_up = answer
    return results
