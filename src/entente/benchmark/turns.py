"""Contestants measured in turn, A B A B: what the machine does beside them strikes all alike.

A contestant is a process that sets itself up once and then waits for requests (wire.py); while it waits it takes no CPU.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entente.benchmark.wire import Answer
from entente.errors import InputError

OURS = "ours"
PATIENCE = 10  # seconds for a contestant to leave when it is told that there is no more


@dataclass(frozen=True)
class Contestant:
    """command: the interpreter and what it runs; the settings' file is added."""

    name: str
    command: Sequence[str]
    settings: Mapping[str, Any]


class Lost(Exception):
    """A contestant that has gone, or that cannot do what it is asked: one line saying why."""


class Worker:
    """A contestant's process."""

    def __init__(self, contestant: Contestant, threads: int) -> None:
        self.contestant = contestant
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as file:
            json.dump(contestant.settings, file)
        self._settings = Path(file.name)
        self._process = subprocess.Popen(
            [*contestant.command, file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"},
        )

    def ready(self) -> Answer:
        """Waits for it to be set up; what it says of itself."""
        return self._answer()

    def ask(self, request: Mapping[str, Any]) -> Answer:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has gone: the answer says why
        return self._answer()

    def _answer(self) -> Answer:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = [line.strip() for line in self._errors if line.strip()]
            raise Lost(f"ended with code {self._process.returncode}: {said[-1] if said else 'without a word'}")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._settings.unlink(missing_ok=True)


@dataclass
class Measured:
    """A contestant's bursts, the first one, which warms up, apart; why it was left out, where it was."""

    about: Answer
    warm_up: Answer = field(default_factory=dict)
    bursts: list[Answer] = field(default_factory=list)
    left_out: str = ""


def in_turn(
    contestants: Sequence[Contestant],
    pairs: int,
    threads: int,
    request: Mapping[str, Any],
    begin: Callable[[str], None],
    last: Mapping[str, Any] | None = None,
) -> dict[str, Measured]:
    """One burst of each to warm up, then `pairs` rounds. begin: called with the name of the contestant whose burst, or set-up,
    begins. last: one more request at the end, whose answer stands in `about`."""
    found: dict[str, Measured] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for contestant in contestants:  # one after the other, so that none is set up while another is measured
            begin(contestant.name)
            worker = Worker(contestant, threads)
            stack.callback(worker.close)
            try:
                found[contestant.name] = Measured(worker.ready())
                workers[contestant.name] = worker
            except Lost as lost:
                found[contestant.name] = _lost(contestant.name, lost)
        for round in range(pairs + 1):
            for name, worker in list(workers.items()):
                begin(name)
                try:
                    answer = worker.ask({**request, "outputs": round == 0})
                except Lost as lost:
                    del workers[name]
                    found[name] = _lost(name, lost)
                    continue
                if round:
                    found[name].bursts.append(answer)
                else:
                    found[name].warm_up = answer
        if last:
            for name, worker in workers.items():
                try:
                    found[name].about["last"] = worker.ask(last)
                except Lost as lost:
                    found[name] = _lost(name, lost)
    return found


def starts(
    contestants: Sequence[Contestant], pairs: int, threads: int, request: Mapping[str, Any], begin: Callable[[str], None]
) -> dict[str, Measured]:
    """As `in_turn`, of whole processes: `seconds` from a process' start until it has answered its first request."""
    found = {contestant.name: Measured({}) for contestant in contestants}
    for round in range(pairs + 1):
        for contestant in contestants:
            measured = found[contestant.name]
            if measured.left_out:
                continue
            begin(contestant.name)
            started = time.perf_counter()
            worker = Worker(contestant, threads)
            try:
                measured.about = worker.ready()
                ready = time.perf_counter()
                answer = worker.ask(request)
                answer = {**answer, "seconds": time.perf_counter() - started, "first_step": time.perf_counter() - ready}
                if round:
                    measured.bursts.append(answer)
                else:
                    measured.warm_up = answer
            except Lost as lost:
                found[contestant.name] = _lost(contestant.name, lost)
            finally:
                worker.close()
    return found


def _lost(name: str, lost: Lost) -> Measured:
    if name == OURS:
        raise InputError(f"{name}: {lost}") from lost
    return Measured({}, left_out=str(lost))
