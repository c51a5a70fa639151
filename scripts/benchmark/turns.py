"""Measures contestants in alternation, A B A B, so that other load on the machine affects all of them alike.

A contestant is a process that sets itself up once and then waits for requests (wire.py). It uses no CPU while it waits.
It answers each request with the measurements of one burst, such as some training steps or the decoding of some sentences.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from benchmark.wire import Answer
from entente.errors import InputError

OURS = "ours"
SHUTDOWN_SECONDS = 10  # a contestant still running this long after its input was closed is killed


@dataclass(frozen=True)
class Contestant:
    """A program to measure: the command that runs it, its settings, and the reason to leave it out, if any."""

    name: str
    command: Sequence[str]
    settings: Mapping[str, Any]
    left_out: str = ""


@dataclass
class Measured:
    """The answers of a contestant after its set-up (`about`), the warm-up and each burst, or the reason why it was left out."""

    about: Answer = field(default_factory=dict)
    warm_up: Answer = field(default_factory=dict)
    bursts: list[Answer] = field(default_factory=list)
    left_out: str = ""


class ContestantError(Exception):
    """Raised if a contestant cannot start or ends without an answer. The message is one line that says why."""


class Worker:
    """The process of a contestant."""

    def __init__(self, contestant: Contestant, threads: int) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        try:
            self._process = subprocess.Popen([*contestant.command], **pipes, text=True, env=environment)
        except OSError as error:  # for example, not enough memory for another process
            self._errors.close()
            raise ContestantError(f"not started: {error.strerror or error}") from error
        self._send(contestant.settings)

    def __enter__(self) -> "Worker":
        return self

    def ask(self, request: Mapping[str, Any]) -> Answer:
        self._send(request)
        return self.answer()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # the process has ended: answer() raises an error with the reason
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Answer:
        """Waits for the next answer. Raises ContestantError if the process ends without one."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = [line.strip() for line in self._errors if line.strip()]
            raise ContestantError(f"ended with code {self._process.returncode}: {said[-1] if said else 'no message'}")
        answer: Answer = json.loads(line)
        return answer

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def in_turn(
    contestants: Sequence[Contestant],
    pairs: int,
    threads: int,
    request: Mapping[str, Any],
    begin: Callable[[str], None],
    fresh: bool = False,
) -> dict[str, Measured]:
    """Runs a warm-up round, in which contestants also return outputs, then `pairs` rounds of one burst per contestant.

    `begin` is called with a contestant's name before each burst. With `fresh`, each burst has a new process: `ready` is then
    the time until the process is set up, and `seconds` the time until it answers. Raises InputError if Entente itself fails."""
    found = {contestant.name: Measured(left_out=contestant.left_out) for contestant in contestants}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for turn, contestant in product(range(pairs + 1), contestants):
            name, measured = contestant.name, found[contestant.name]
            if measured.left_out:
                continue
            begin(name)
            started = time.perf_counter()
            try:
                if name not in workers:
                    workers[name] = stack.enter_context(Worker(contestant, threads))
                    measured.about = workers[name].answer()
                ready = time.perf_counter()
                answer = workers[name].ask({**request, "outputs": turn == 0})
            except ContestantError as error:
                if name == OURS:
                    raise InputError(f"{name}: {error}") from error
                found[name] = Measured(left_out=str(error))
                continue
            if fresh:
                answer |= {"ready": ready - started, "seconds": time.perf_counter() - started}
                del workers[name]
                stack.close()
            if turn:
                measured.bursts.append(answer)
            else:
                measured.warm_up = answer
    return found
