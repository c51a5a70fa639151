"""Trains a suite: every variant with every seed, all else equal, each run in its own process.

The directories of the runs are a suite's only state (see entente.ablation.runs). Training the same suite again therefore
resumes it: finished runs and published rows with the same configuration are not trained again, nor are runs that diverged,
and interrupted runs go on from their last checkpoint. A run that fails is reported, and the others go on.
"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from entente.ablation.runs import Run, Suite, runs_in
from entente.console import Task, clock, log
from entente.errors import Interrupted, Stopped
from entente.files import numbered

OUTCOMES = {0: "finished", 2: "refused", 3: "diverged", 75: "interrupted"}  # by the exit code of `entente train`


@dataclass
class Job:
    """A run of a suite, and the command that trains or resumes it."""

    run: Run
    command: list[str]
    process: subprocess.Popen[bytes] | None = None  # None before it is started
    code: int | None = None  # the exit code of the process, once it has ended

    def train(self, threads: int, stopping: threading.Event) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        with self.run.output.open("wb") as out:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        if stopping.is_set():
            self.process.terminate()
        self.code = self.process.wait()
        outcome = OUTCOMES.get(self.code, "crashed")
        log.info("%s: %s%s", self.run.directory, outcome, f", see {self.run.output}" if self.code else "")


def progress(jobs: Sequence[Job], elapsed: float) -> str:
    """Says how many jobs have ended after `elapsed` seconds, and the time left, which those that trained to their end tell."""
    left, trained = (sum(job.code in codes for job in jobs) for codes in ([None], [0, 3]))
    rest = f", {clock(elapsed / trained * left)} left" if trained else ""
    return f"{len(jobs) - left} of {len(jobs)} runs ended  {clock(elapsed)}{rest}"


@dataclass
class Plan:
    """A suite in the folder `root`. variants: the baseline first. jobs: in the order of training."""

    root: Path
    variants: list[str]
    jobs: list[Job]

    def read(self) -> Suite:
        """Reads what is on the disk of every run, and returns the suite."""
        found = sorted(reversed(runs_in(self.root)), key=lambda run: bool(run.metrics))  # of equal runs, a finished one wins
        runs = {run.key: run for run in found}
        for job in self.jobs:
            run = runs.get(job.run.key)
            if not run:  # the name may be taken by a run with other settings; then `entente train` adds a number to it
                paths = numbered(self.root / f"{job.run.variant}-seed{job.run.seed}")
                run = replace(job.run, directory=next(path for path in paths if not path.exists()))
            run.variant = job.run.variant
            job.run = run
        ordered = sorted((job.run for job in self.jobs), key=lambda run: (self.variants.index(run.variant), run.seed))
        return Suite(self.root, self.root.name, self.variants, ordered)

    def train(self, at_once: int, threads: int) -> Suite:
        """Trains the runs that have not ended. On a signal, makes the current ones save and exit, and raises Interrupted.
        at_once: the number of processes. threads: the number of threads of each."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.read()
        waiting = [job for job in self.jobs if not (job.run.metrics or job.run.diverged)]
        log.info("%s: %d runs, of which %d have already ended", self.root, len(self.jobs), len(self.jobs) - len(waiting))
        stopping, began = threading.Event(), time.monotonic()
        with (
            Task(lambda: f"{self.root.name}: {progress(waiting, time.monotonic() - began)}"),
            ThreadPoolExecutor(at_once) as pool,
        ):
            try:
                for future in [pool.submit(job.train, threads, stopping) for job in waiting]:
                    future.result()
            except Stopped:
                stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                for process in [job.process for job in waiting if job.process and job.code is None]:
                    process.terminate()  # it finishes its step, saves and exits, for which the pool waits
        suite = self.read()
        if stopping.is_set():
            left = sum(not (run.metrics or run.diverged) for run in suite.runs)
            raise Interrupted(f"stopped with {left} of {len(self.jobs)} runs left; resume with the same command")
        return suite
