"""Trains a suite: every variant with every seed, all else equal, each run in its own process.

outputs/NAME/suite.yaml          what is trained: variants, seeds, overrides
             status.json         {run: {state, message, code}}; state: waiting, running, finished, diverged, crashed, killed,
                                 refused or interrupted; code: a digest of the code that trained the run
             VARIANT-seedN/      a run's directory, as `train` writes it; VARIANT-seedN.log: what the run printed

A run that fails is reported in the comparison. Repeating the command resumes a suite: finished runs are kept, interrupted runs
resume from their last checkpoint, and crashed runs are retried. If the suite's process is killed, its runs save a checkpoint
and exit.
"""

import hashlib
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import Ge, MinLen, doc
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig

from entente import checkpoint, files
from entente.ablation import variants as ablations
from entente.ablation.comparison import Compare
from entente.ablation.page import report
from entente.ablation.runs import Settings, Status, read
from entente.config import schema
from entente.config.command_line import key_of, quote
from entente.console.endings import STOPPING, Stopped
from entente.console.log import Task, clock
from entente.errors import InputError, Interrupted
from entente.files import Folder, Name
from entente.models.initialise import Seed
from entente.process import PARENT, prepare_process
from entente.training import run_directory, train

log = logging.getLogger("entente")

# Maps exit codes (see entente.console.endings) to states. The code is -N if signal N arrived before its handler was installed.
STATES = {0: "finished", 2: "refused", 3: "diverged", 75: "interrupted"}
STATES |= dict.fromkeys([code for number in STOPPING for code in (128 + number, -number)], "interrupted")
RESERVED_SETTINGS = ("ablation", "variant", "seed", "resume")  # settings that the suite chooses for each run


def check_suite_name(suite: object, suites: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Raises ValueError if `suite` is a name for which `suites` has no list of variants."""
    if isinstance(suite, str) and suite not in suites:
        choices = f"choose one of {', '.join(suites)}, or give a list of variants, such as suite=[baseline,no_residual]"
        raise ValueError(f"suite={suite}: {choices}{schema.suggestion(suite, suites)}")
    if isinstance(suite, str) and not suites[suite].get("variants"):
        raise ValueError(f"suites.{suite}.variants: give a list of variants, such as [baseline,no_residual]")


@dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    """The settings that configs/ablate.yaml adds to those of a run."""

    suite: Annotated[
        Name | Annotated[Sequence[Name], MinLen(1)],
        doc("a name in `suites`, or a list of variants, such as [baseline,no_residual]; the first is the baseline"),
    ] = "quick"
    seeds: Annotated[Sequence[Seed], MinLen(1), doc("each variant is trained with each seed")] = (1,)
    jobs: Annotated[int, Ge(1), doc("number of parallel runs, each on its share of the cores")] = 1
    name: Annotated[Folder | None, doc("directory of the suite, under output_dir; null: named after the suite")] = None
    suites: Annotated[
        Mapping[Name, Mapping[str, Sequence[str]]],
        doc("suites by name; `variants` are files in configs/ablation; `overrides` are applied before your own"),
    ]

    relations = (check_suite_name,)


SUITE_KEYS = tuple(schema.settings_of(SuiteSettings))


def check(config: Mapping[str, Any]) -> list[str]:
    """Returns the problems with the suite's own settings. `plan_jobs` checks the settings of its runs."""
    return schema.problems(SuiteSettings, "", {key: config[key] for key in SUITE_KEYS if key in config})


@dataclass
class Job:
    """A run of a suite, and the process that trains it."""

    directory: Path
    overrides: list[str]  # for a new run; a resumed run keeps those it was started with
    code: str  # see code_digest
    budget: int = 0  # the run's number of training steps
    status: Status = field(default_factory=Status)
    process: subprocess.Popen[bytes] | None = None  # None unless the run is training
    step: int = 0

    @property
    def to_do(self) -> bool:
        return self.status.state in ("waiting", "running")

    @property
    def output(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.log")

    def start(self, threads: int) -> None:
        own = [source.path for source in HydraConfig.get().runtime.config_sources if source.provider == "command-line"]
        more = [f"--config-dir={folder}" for folder in own]  # a folder with the user's ablations
        arguments = [f"resume={quote(str(self.directory))}"] if self.directory.exists() else self.overrides
        command = [sys.executable, "-P", "-m", "entente", "train", *more, *arguments, f"trainer.threads={threads}"]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), PARENT: str(os.getpid())}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
        self.status.state = "running"
        if arguments is self.overrides or not self.status.code:  # otherwise, older code has trained a part of the run
            self.status.code = self.code

    def read_step(self) -> None:
        """Sets `step` to the highest step in the run's log, or 0."""
        with suppress(OSError):
            said = (self.directory / "train.log").read_text(encoding="utf-8", errors="replace")
            self.step = max([int(step) for step in re.findall(r"step (\d+)/\d+", said)], default=0)

    def end(self, code: int) -> None:
        """Sets the final status from the process's exit code, which is -N if signal N killed the process."""
        self.process = None
        said = self.output.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2].strip()
        self.status.state = STATES.get(code, "killed" if code < 0 else "crashed")
        self.status.message = f"by {signal.Signals(-code).name}" if code < 0 else said if code else ""


@cache
def code_digest(variant: str) -> str:
    """Returns a digest of the training code, the embedded corpus's grammar and an ablation's settings; runs with different
    digests are not comparable."""
    package = Path(checkpoint.__file__).parent
    sources = [path for path in sorted(package.rglob("*.py")) if "ablation" not in path.relative_to(package).parts]
    sources += [path for path in sorted(package.with_name("entente_grammar").rglob("*")) if path.suffix in (".py", ".tsv")]
    content = b"".join(path.read_bytes() for path in sources) + json.dumps(ablations.changes(variant), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def ablate(config: Mapping[str, Any]) -> None:
    """Trains the configured suite, then compares its variants."""
    own = schema.fill(SuiteSettings, "", {key: config[key] for key in SUITE_KEYS if key in config})
    named, chosen = (own.suite, own.suites[own.suite]) if isinstance(own.suite, str) else ("suite", {"variants": own.suite})
    variants, seeds = list(dict.fromkeys(chosen["variants"])), list(dict.fromkeys(own.seeds))
    given = [one for one in HydraConfig.get().overrides.task if key_of(one).partition(".")[0] not in SUITE_KEYS]
    if wrong := [one for one in given if key_of(one) in RESERVED_SETTINGS]:
        raise InputError(*(f"{one}: a suite sets it for each run; leave it out, and set suite and seeds" for one in wrong))
    if unusable := ablations.unusable(variants):
        raise InputError(*unusable)
    overrides = [
        f"experiment={HydraConfig.get().runtime.choices['experiment']}",
        *ablations.without_debug_settings(chosen.get("overrides", [])),
        *(one for one in given if key_of(one) not in ("experiment", "trainer.threads")),
    ]
    folder = own.name or f"{named}{config['trainer']['suffix']}"
    root = files.path_of(config["output_dir"]) / folder
    jobs = plan_jobs(root, folder, variants, seeds, overrides)
    prepare_process(None)
    threads = config["trainer"]["threads"] or max(1, (os.cpu_count() or 1) // own.jobs)
    with open_suite(root, variants, seeds, overrides):
        train_all(root, jobs, restore_states(root, jobs), own.jobs, threads)
    report(Compare(str(root)))


def plan_jobs(root: Path, folder: str, variants: Sequence[str], seeds: Sequence[int], overrides: Sequence[str]) -> list[Job]:
    """Returns a job per run, grouped by seed so that the first seed is complete early. Raises InputError with all problems."""
    shared, budgets, found = {}, {}, []
    for variant in variants:
        sets = ablations.changes(variant)  # no override may change these settings, or the variant would not match its name
        shared[variant] = [*(one for one in overrides if key_of(one) not in sets), f"ablation={variant}"]
        config = ablations.compose_run(shared[variant])
        found += [f"ablation={variant}: {problem}" for problem in train.check_run(config)]
        budgets[variant] = config.get("trainer", {}).get("max_steps")
    jobs = []
    for seed, variant in product(seeds, variants):
        directory = root / f"{variant}-seed{seed}"
        own = [f"seed={seed}", f"name={quote(f'{folder}/{directory.name}')}"]
        jobs.append(Job(directory, [*shared[variant], *own], code_digest(variant), budgets[variant]))
        if directory.exists() and not (directory / "config.yaml").is_file():
            found.append(f"{directory}: already exists, but is not a run's directory (it has no config.yaml); remove it")
    if found:
        raise InputError(*found)
    return jobs


@contextmanager
def open_suite(root: Path, variants: list[str], seeds: list[int], overrides: list[str]) -> Iterator[None]:
    """Locks the suite's directory and writes suite.yaml. A later command may only add variants and seeds."""
    before = read(root / "suite.yaml", Settings) or Settings(variants=variants[:1], seeds=seeds[:1], overrides=overrides)
    if before.overrides != overrides:
        own = " ".join(before.overrides) or "no overrides"
        raise InputError(f"{root}: holds a suite with other settings ({own}); give this one another name=...")
    if (first := before.variants[0]) != variants[0]:
        raise InputError(f"{root}: holds a suite whose baseline is {first}; list it first, or give this one another name=...")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    plan = Settings(
        variants=list(dict.fromkeys([*before.variants, *variants])),
        seeds=list(dict.fromkeys([*before.seeds, *seeds])),
        overrides=overrides,
        about=before.about | {variant: ablations.header(variant) for variant in variants},
        commands=list(dict.fromkeys([*before.commands, command])),
    )
    with ExitStack() as held:
        with files.writable(str(root), "name or output_dir"):
            root.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(FileLock(root / ".lock", timeout=0))
            except Timeout:
                raise InputError(f"{root}: another process is training this suite; wait for it or stop it") from None
            files.write_text(root / "suite.yaml", yaml.safe_dump(plan.model_dump(), sort_keys=False))
        yield


def restore_states(root: Path, jobs: Sequence[Job]) -> dict[str, Status]:
    """Returns every run's status, and assigns it to the run's job. Finished and diverged runs keep their state; others become
    "waiting". If the suite was killed, waits until its runs have saved a checkpoint and exited."""
    states = read(root / "status.json", dict[str, Status]) or {}
    for job in jobs:
        job.status = states.setdefault(job.directory.name, job.status)
        if job.directory.exists():
            wait_for_others(job.directory)
        job.read_step()
        finished = run_directory.is_finished(job.directory)
        if finished or job.status.state != "diverged" or not job.directory.exists():  # a diverged run would diverge again
            job.status.state, job.status.message = "finished" if finished else "waiting", ""
        if job.directory.exists() and job.status.code not in ("", job.code):
            log.warning("%s: was trained with other code or another ablation file; remove it to train it again", job.directory)
    return states


def wait_for_others(directory: Path) -> None:
    """Waits until no other process is training the run in `directory`."""
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s: another process is training this run; waiting for it", directory)
        with Task(f"waiting for the process that trains {directory}"):
            lock.acquire()
    lock.release()


def train_all(root: Path, jobs: Sequence[Job], states: Mapping[str, Status], at_once: int, threads: int) -> None:
    """Trains until every run has ended. On a signal, makes the current runs save and exit, then raises Interrupted."""
    began = time.monotonic()
    first = sum(job.step for job in jobs)
    kept = sum(not job.to_do for job in jobs)
    log.info("%s: %d runs%s", root, len(jobs), f", {kept} of which have already ended" if kept else "")
    with Task(lambda: f"{root.name}: {progress(jobs, first, began)}"):
        try:
            while to_do := [job for job in jobs if job.to_do]:
                for job in to_do:
                    job.read_step()
                    if job.process and (code := job.process.poll()) is not None:
                        job.end(code)
                        outcome = ", ".join(filter(None, (job.status.state, job.status.message)))
                        log.info("%s: %s; %s", job.directory, outcome, progress(jobs, first, began))
                    elif not job.process and sum(bool(one.process) for one in jobs) < at_once:
                        job.start(threads)
                        log.info("%s: %s", job.directory, "resuming" if job.step else "training")
                    else:
                        continue
                    write_status(root, states)
                time.sleep(0.5)
        except Stopped:
            running = [(job, job.process) for job in jobs if job.process]
            for _, process in running:
                process.terminate()  # the run finishes its step, saves and exits
            for job, process in running:
                job.end(process.wait())
            left = sum(job.status.state not in ("finished", "diverged") for job in jobs)
            raise Interrupted(f"stopped with {left} of {len(jobs)} runs left; resume with the same command") from None
        finally:
            write_status(root, states)


def write_status(root: Path, states: Mapping[str, Status]) -> None:
    files.write_json(root / "status.json", {name: one.model_dump() for name, one in states.items()})


def progress(jobs: Sequence[Job], first: int, began: float) -> str:
    """Returns a line with ended runs, time spent and left, and current runs. first: total steps at the start."""
    elapsed = time.monotonic() - began
    to_do = [job for job in jobs if job.to_do]
    done, left = sum(job.step for job in jobs) - first, sum(job.budget - job.step for job in to_do)
    time_left = f", {clock(elapsed / done * left)} left" if done and left else ""
    running = (f"{job.directory.name} step {job.step}/{job.budget}" for job in to_do if job.process)
    return "  ".join([f"{len(jobs) - len(to_do)} of {len(jobs)} runs ended", f"{clock(elapsed)}{time_left}", *running])
