"""Trains a suite: every variant with every seed, all else equal, each run in its own process.

The directories of the runs are a suite's only state (see entente.ablation.runs). Training the same suite again therefore
resumes it: finished runs and published rows with the same configuration are not trained again, nor are runs that diverged,
and interrupted runs go on from their last checkpoint. A run that fails is reported, and the others go on.
"""

import logging
import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from entente import files
from entente.ablation.runs import Run, Suite, runs_in
from entente.console import Stopped, Task, clock
from entente.errors import Interrupted

log = logging.getLogger("entente")

OUTCOMES = {2: "refused", 3: "diverged", 75: "interrupted"}  # by the exit code of `entente train`
STEP = re.compile(r"step (\d+)/\d+")


@dataclass
class Job:
    """A run of a suite. steps: the run's number. command: trains or resumes the run. output: file for what it prints."""

    run: Run
    steps: int
    command: list[str]
    output: Path
    process: subprocess.Popen[bytes] | None = None  # None before it is started
    ended: bool = False

    @property
    def step(self) -> int:
        """The last step that the current process has logged."""
        text = self.output.read_text(encoding="utf-8", errors="replace") if self.process else ""
        return int([0, *STEP.findall(text)][-1])

    def train(self, environment: dict[str, str], stopping: threading.Event) -> str:
        """Trains the run, and returns how it ended."""
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        if stopping.is_set():
            self.process.terminate()
        code = self.process.wait()
        self.ended = True
        return "finished" if not code else f"{OUTCOMES.get(code, 'crashed')}, see {self.output}"


@dataclass
class Plan:
    """A suite in the folder `root`. variants: the baseline first. jobs: in the order of training."""

    root: Path
    variants: list[str]
    jobs: list[Job]

    def read(self) -> Suite:
        """Reads what is on the disk of every run, and returns the suite."""
        runs = {run.key: run for run in reversed(runs_in(self.root))}
        for job in self.jobs:
            variant = job.run.variant
            job.run = runs.get(job.run.key, job.run)
            job.run.variant, job.ended = variant, bool(job.run.metrics) or job.run.diverged
        ordered = sorted((job.run for job in self.jobs), key=lambda run: (self.variants.index(run.variant), run.seed))
        return Suite(self.root, self.root.name, self.variants, ordered)

    def train(self, at_once: int, threads: int) -> Suite:
        """Trains the runs that have not ended. On a signal, makes the current ones save and exit, and raises Interrupted.
        at_once: the number of processes. threads: the number of threads of each."""
        with files.writable(str(self.root), "name or output_dir"):
            self.root.mkdir(parents=True, exist_ok=True)
        self.read()
        waiting = [job for job in self.jobs if not job.ended]
        log.info("%s: %d runs, of which %d have already ended", self.root, len(self.jobs), len(self.jobs) - len(waiting))
        stopping, began = threading.Event(), time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        with Task(lambda: progress(self.root.name, waiting, began)), ThreadPoolExecutor(at_once) as pool:
            try:
                futures = {pool.submit(job.train, environment, stopping): job for job in waiting}
                for future in as_completed(futures):
                    log.info("%s: %s", futures[future].run.directory, future.result())
            except Stopped:
                stopping.set()
                for job in waiting:
                    if job.process and not job.ended:
                        job.process.terminate()  # the run finishes its step, saves and exits
                pool.shutdown(cancel_futures=True)
                self.read()
                left = sum(not job.ended for job in self.jobs)
                raise Interrupted(f"stopped with {left} of {len(self.jobs)} runs left; resume with the same command") from None
        return self.read()


def progress(name: str, jobs: Sequence[Job], began: float) -> str:
    """Returns a line with the number of runs that have ended, the time spent and left, and the steps of the current runs."""
    elapsed = time.monotonic() - began
    done, total = sum(job.steps if job.ended else job.step for job in jobs), sum(job.steps for job in jobs)
    left = f", {clock(elapsed / done * (total - done))} left" if done else ""
    current = (f"{job.run.directory.name} step {job.step}/{job.steps}" for job in jobs if job.process and not job.ended)
    return "  ".join(
        [f"{name}: {sum(job.ended for job in jobs)} of {len(jobs)} runs ended", f"{clock(elapsed)}{left}", *current]
    )
