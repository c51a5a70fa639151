"""Trains a suite: variants x seeds, everything else equal, each run in a process of its own.

outputs/NAME/suite.yaml          what is trained: variants, seeds, overrides
             status.json         {run: {state, message, code}}; state: waiting, running, finished, diverged, crashed, killed,
                                 refused or interrupted; code: a digest of what trained it
             VARIANT-seedN/      a run's directory, as `train` writes it; VARIANT-seedN.log what it printed
             .VARIANT-seedN.lock held by the process that trains the run, from its first moment to its last

A run that fails is a row that says so. The same command resumes a suite: finished runs stay, interrupted ones resume from their
last checkpoint, crashed ones are tried again.
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import Ge, Interval, MinLen, doc
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from pydantic import TypeAdapter
from rich.console import Console
from rich.live import Live
from rich.table import Table
from torch.utils.tensorboard import SummaryWriter

from entente import checkpoint
from entente.ablation import locked
from entente.ablation.comparison import Compare
from entente.ablation.page import report
from entente.ablation.runs import ASPECTS, Settings, settings_of
from entente.ablation.variants import composed, header, refuse_unusable, sets
from entente.config.command_line import key_of, quoted
from entente.config.schema import nearest, problems
from entente.console import escape
from entente.console.endings import Stopped
from entente.errors import InputError, Interrupted
from entente.files import Folder, Name, path_of, small_file, write_json, write_text
from entente.process import prepare_process
from entente.training.progress import clock
from entente.training.run_directory import is_finished
from entente.training.settings import completed
from entente.training.train import check_run

log = logging.getLogger("entente")

ENDED = ("finished", "diverged")  # would end the same way again
TO_DO = ("waiting", "running")
STOPPED = dict.fromkeys((75, 130, 143), "interrupted")
CODES = {0: "finished", 2: "refused", 3: "diverged", **STOPPED}  # of train; see entente.console.endings
QUIET = 120  # seconds between lines where there is no terminal
OWN = ("suite", "seeds", "jobs", "suites", "name")  # settings that are not of a run
SET_HERE = ("ablation", "variant", "seed", "resume")  # settings of a run that the suite decides
# Charts that overlay the runs; TensorBoard's own page of scalars shows one tag at a time.
LAYOUT = {
    "How well": {name: ["Multiline", [name]] for name in ("valid/bleu", "valid/nll", "train/loss")},
    "Why": {aspect.replace("_", " "): ["Multiline", [f"why/{aspect}/.*"]] for aspect in ASPECTS},
}


@dataclass(frozen=True)
class SuiteSettings:
    """What configs/ablate.yaml adds to a run's settings."""

    suite: Annotated[
        Name | Annotated[Sequence[Name], MinLen(1)],
        doc("one of `suites`, or variants: suite=[baseline,no_residual]; the first is what the others are compared with"),
    ] = "quick"
    seeds: Annotated[Sequence[Annotated[int, Interval(ge=0, lt=2**32)]], MinLen(1), doc("of each variant")] = (1,)
    jobs: Annotated[int, Ge(1), doc("runs side by side, each on its share of the cores")] = 1
    name: Annotated[Folder | None, doc("directory of the suite, under output_dir; null: the name of the suite")] = None
    suites: Annotated[Mapping[Name, Any], doc("variants are files of configs/ablation; `overrides` come before your own")] = (
        field(default_factory=dict)
    )


def check(config: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with the suite's own settings; the runs' are checked when they are composed."""
    if found := problems(SuiteSettings, "", {key: config[key] for key in OWN if key in config}):
        return found
    suite, suites = config["suite"], config["suites"]
    if not isinstance(suite, str):
        return []
    if suite not in suites:
        near = f"; did you mean {near}?" if (near := nearest(suite, list(suites))) else ""
        return [
            f"suite={suite}: choose one of {', '.join(suites)}, or give a list of variants, suite=[baseline,no_residual]{near}"
        ]
    variants = suites[suite].get("variants") if isinstance(suites[suite], Mapping) else None
    if not (isinstance(variants, Sequence) and variants):
        return [f"suites.{suite}.variants: give a list of variants, [baseline,no_residual]"]
    return []


@dataclass
class Job:
    """One run of a suite."""

    variant: str
    seed: int
    directory: Path
    overrides: list[str]
    state: str = "waiting"
    message: str = ""
    code: str = ""  # a digest of what it was trained with, see `digest`
    process: subprocess.Popen[bytes] | None = None  # None while running: another process trains it
    step: int = 0
    first_step: int = 0  # where this process began
    budget: int = 0

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def output(self) -> Path:
        """The file of what it printed."""
        return self.directory.with_name(f"{self.name}.log")

    @property
    def lock(self) -> Path:
        return self.directory.with_name(f".{self.name}.lock")

    def is_locked(self) -> bool:
        """Returns whether a process trains the run."""
        try:
            with FileLock(self.lock, timeout=0):
                return False
        except Timeout:
            return True

    def start(self, threads: int) -> None:
        """Starts a process that trains the run, unless another one does."""
        if not self.is_locked():
            more = [one for one in sys.argv if one.startswith("--config-dir=")]  # where a user keeps ablations of their own
            arguments = [f"resume={self.directory}"] if self.directory.exists() else self.overrides
            command = [sys.executable, "-P", "-m", locked.__name__, str(self.lock)]
            with self.output.open("wb") as output:
                self.process = subprocess.Popen(
                    [*command, *more, *arguments, f"trainer.threads={threads}"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                )
            self.code = digest(self.variant)
        self.state, self.message = "running", "" if self.process else "in another process"
        self.read_step()
        self.first_step = self.step

    def read_step(self) -> None:
        """Reads from the run's log how far it has come."""
        with suppress(OSError):
            said = (self.directory / "train.log").read_text(encoding="utf-8", errors="replace")
            self.step = max([int(step) for step in re.findall(r"step (\d+)/\d+", said)], default=0)

    def update(self) -> None:
        """Looks how far the run has come, and how it ended, if it has."""
        self.read_step()
        if self.process is None:
            if not self.is_locked():
                self.state, self.message = ("finished" if is_finished(self.directory) else "waiting"), ""
        elif (code := self.process.poll()) is not None:
            self.process = None
            self.state = "killed" if code < 0 else CODES.get(code, "crashed")
            self.message = f"by {signal.Signals(-code).name}" if code < 0 else "" if code == 0 else self.last_line()
            if code == 0 and not is_finished(self.directory):
                self.state, self.message = "crashed", "ended without metrics"

    def last_line(self) -> str:
        """Returns the last line that the run printed."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


@cache
def digest(variant: str) -> str:
    """Returns a digest of the code that trains and of what an ablation sets: a change of either makes another experiment."""
    package = Path(checkpoint.__file__).parent
    sources = [path for path in sorted(package.rglob("*.py")) if "ablation" not in path.relative_to(package).parts]
    content = b"".join(path.read_bytes() for path in sources) + json.dumps(sets(variant), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def ablate(config: Mapping[str, Any]) -> Path:
    """Trains the suite that the command line names, then compares; returns its directory."""
    variants, given = chosen(config)
    own = [one for one in HydraConfig.get().overrides.task if _part(one) not in OWN and key_of(one) != "trainer.threads"]
    if wrong := [one for one in own if key_of(one) in SET_HERE]:
        raise InputError(*(f"{one}: a suite sets it for each of its runs; leave it out, see suite and seeds" for one in wrong))
    refuse_unusable(variants)
    overrides = [*given, *own]
    named = config["suite"] if isinstance(config["suite"], str) else "suite"
    root = path_of(config["output_dir"]) / (config["name"] or named)
    jobs = plan_jobs(config, root, variants, overrides)
    prepare_process(None)
    with one_suite(root, variants, config["seeds"], overrides):
        recall(root, jobs)
        threads = config["trainer"]["threads"] or max(1, (os.cpu_count() or 1) // config["jobs"])
        train_all(root, jobs, config["jobs"], threads)
    report(asdict(Compare(suite=str(root))))
    return root


def chosen(config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the variants of the suite, and the overrides that all its runs have."""
    if isinstance(config["suite"], str):
        named = config["suites"][config["suite"]]
        return list(dict.fromkeys(named["variants"])), list(named.get("overrides", []))
    return list(dict.fromkeys(config["suite"])), []


def plan_jobs(config: Mapping[str, Any], root: Path, variants: Sequence[str], overrides: Sequence[str]) -> list[Job]:
    """Returns every run, seeds outermost, so that a first table is soon complete. InputError with all that is wrong."""
    within = root.relative_to(path_of(config["output_dir"]))
    jobs = []
    for seed in dict.fromkeys(config["seeds"]):
        for variant in variants:
            own = sets(variant)  # the ablation overrules: otherwise a variant would not be what its name says
            shared = [one for one in overrides if key_of(one) not in own]
            name = f"{variant}-seed{seed}"
            arguments = [*shared, f"ablation={variant}", f"seed={seed}", quoted(f"name={within}/{name}")]
            jobs.append(Job(variant, seed, root / name, arguments))
    settings = {job.variant: composed(job.overrides) for job in jobs[: len(variants)]}  # seeds are of one kind
    found = [f"ablation={variant}: {problem}" for variant in variants for problem in check_run(settings[variant])]
    found += [
        f"{job.directory}: in the way, it is no run (it has no config.yaml); remove it"
        for job in jobs
        if job.directory.exists() and not (job.directory / "config.yaml").is_file()
    ]
    if found:
        raise InputError(*found)
    for job in jobs:
        job.budget = completed(settings[job.variant])["trainer"]["max_steps"]
    return jobs


@contextmanager
def one_suite(root: Path, variants: Sequence[str], seeds: Sequence[int], overrides: Sequence[str]) -> Iterator[None]:
    """Locks the suite's directory and writes its suite.yaml: an existing one may get more variants and seeds, never other
    settings."""
    before = settings_of(root) or Settings(list(variants[:1]), list(seeds[:1]), overrides=list(overrides))
    if before.overrides != list(overrides):
        own = " ".join(before.overrides) or "none of its own"
        raise InputError(f"{root}: holds a suite with other settings ({own}); give this one another name=...")
    if (first := before.variants[0]) != variants[0]:
        raise InputError(f"{root}: holds a suite compared with {first}; name that first, or give this one another name=...")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    plan = {
        "variants": list(dict.fromkeys([*before.variants, *variants])),
        "seeds": list(dict.fromkeys([*before.seeds, *seeds])),
        "overrides": list(overrides),
        "about": before.about | {variant: header(variant) for variant in variants},
        "commands": list(dict.fromkeys([*before.commands, command])),
    }
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock", timeout=0):
            write_text(root / "suite.yaml", yaml.safe_dump(plan, sort_keys=False))
            if not any(root.glob("events.out.tfevents.*")):
                with SummaryWriter(str(root)) as writer:
                    writer.add_custom_scalars(LAYOUT)
            yield
    except Timeout:
        raise InputError(f"{root}: another process is training this suite; wait for it or stop it") from None
    except OSError as error:
        raise InputError(f"{root}: cannot be written ({error.strerror or error}); give another name or output_dir") from error


def recall(root: Path, jobs: Sequence[Job]) -> None:
    """Gives each job the state in which an earlier command left it."""
    before = status_of(root)
    for job in jobs:
        known = before.get(job.name, {})
        job.code = known.get("code", "")
        if is_finished(job.directory):
            job.state = "finished"
            job.step = job.first_step = job.budget
        elif known.get("state") in ENDED:
            job.state, job.message = known["state"], known.get("message", "")
        elif job.is_locked():  # a suite that was killed leaves its runs behind
            job.state, job.message = "running", "in another process"
            job.read_step()
            job.first_step = job.step
        if job.state in ENDED and job.code not in ("", digest(job.variant)):
            log.warning("%s: was trained with other code, or another ablation file; to train it again remove it", job.directory)


def status_of(root: Path) -> dict[str, dict[str, str]]:
    """Returns the suite's status.json; nothing where it is missing or unreadable, since the runs' own files say more."""
    try:
        return TypeAdapter(dict[str, dict[str, str]]).validate_json(small_file(root / "status.json"))
    except (OSError, ValueError):
        return {}


def train_all(root: Path, jobs: Sequence[Job], at_once: int, threads: int) -> None:
    """Trains until every run has ended, one way or another. A signal lets those under way save what they have, and raises
    Interrupted."""
    console = Console(markup=False, emoji=False)
    began = said = time.monotonic()
    kept = sum(job.state in ENDED for job in jobs)
    log.info("%s: %d runs%s", root, len(jobs), f", of which {kept} have ended already" if kept else "")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        try:
            while any(job.state in TO_DO for job in jobs):
                for job in [job for job in jobs if job.state == "running"]:
                    job.update()
                    if job.state not in TO_DO:
                        message = f", {job.message}" if job.message else ""
                        log.info("%s: %s%s (%s)", job.directory, job.state, message, _summary(jobs, began))
                for job in [job for job in jobs if job.state == "waiting"]:
                    if sum(job.state == "running" for job in jobs) < at_once:
                        job.start(threads)
                write_status(root, jobs)
                if console.is_interactive:
                    live.update(progress(root.name, jobs, began), refresh=True)
                elif time.monotonic() - said > QUIET:
                    said = time.monotonic()
                    under_way = ", ".join(f"{job.name} {job.step}/{job.budget}" for job in jobs if job.state == "running")
                    log.info("%s: %s (%s)", root, under_way, _summary(jobs, began))
                time.sleep(0.5)
        except Stopped:
            stop(jobs)
            left = sum(job.state not in ENDED for job in jobs)
            raise Interrupted(f"stopped with {left} of {len(jobs)} runs left; the same command goes on") from None
        finally:
            write_status(root, jobs)


def stop(jobs: Sequence[Job]) -> None:
    """Lets every process under way finish its step, save and end."""
    processes = [(job, job.process) for job in jobs if job.process]
    for _, process in processes:
        process.terminate()
    for job, process in processes:
        process.wait()
        job.update()
        if job.state not in (*ENDED, "refused"):
            job.state, job.message = "interrupted", ""


def write_status(root: Path, jobs: Sequence[Job]) -> None:
    before = status_of(root)
    status = before | {job.name: {"state": job.state, "message": job.message, "code": job.code} for job in jobs}
    if status != before:
        write_json(root / "status.json", status)


def progress(title: str, jobs: Sequence[Job], began: float) -> Table:
    """Returns a table of all runs and how far each is."""
    table = Table("run", "state", "step", "", title=f"{title}: {_summary(jobs, began)}", title_justify="left")
    for job in jobs:
        table.add_row(job.name, job.state, f"{job.step}/{job.budget}" if job.step else "", escape.line(job.message))
    return table


def _summary(jobs: Sequence[Job], began: float) -> str:
    """Returns how many have ended, the time since this command began, and the time left at the speed so far."""
    elapsed = time.monotonic() - began
    to_do = [job for job in jobs if job.state in TO_DO]
    done, left = sum(job.step - job.first_step for job in jobs), sum(job.budget - job.step for job in to_do)
    text = f"{len(jobs) - len(to_do)} of {len(jobs)} ended, {clock(elapsed)}"
    return f"{text}, {clock(elapsed / done * left)} left" if done and left else text


def _part(override: str) -> str:
    return key_of(override).partition(".")[0]
