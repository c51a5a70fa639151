"""A suite: variants x seeds, everything else equal, each run a process of its own.

outputs/NAME/suite.yaml          what is trained: variants, seeds, overrides
             status.json         {run: {state, message, code}}; state: waiting, running, finished, diverged, crashed, killed,
                                 refused or interrupted; code: a digest of what trained it
             VARIANT-seedN/      a run's directory, as `train` writes it; VARIANT-seedN.log what it printed
             .VARIANT-seedN.lock held by the process that trains the run, from its first moment to its last

A run that fails is a row that says so. Started again, a suite goes on where it was: what has finished stays, what was stopped
goes on from its last checkpoint, what had crashed is tried again.
"""

import fcntl
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
from contextlib import contextmanager
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
from entente.ablation.comparison import Compare
from entente.ablation.page import report
from entente.ablation.runs import Settings, settings_of
from entente.ablation.variants import composed, header, refuse_unusable, sets
from entente.config.command_line import key_of, quoted
from entente.config.schema import nearest, problems
from entente.console import escape
from entente.console.signals import Stopped
from entente.errors import InputError, Interrupted
from entente.files.names import Folder, Name
from entente.files.reading import path_of, small_file
from entente.files.writing import write_json, write_text
from entente.process import prepare_process
from entente.training.progress import clock
from entente.training.run_directory import is_finished
from entente.training.settings import completed
from entente.training.train import check_run

log = logging.getLogger("entente")

ENDED = ("finished", "diverged")  # would end the same way again
STOPPED = dict.fromkeys((75, 130, 143), "interrupted")
CODES = {0: "finished", 2: "refused", 3: "diverged", **STOPPED}  # of train; see entente.console.endings
QUIET = 120  # seconds between lines where there is no terminal
OWN = ("suite", "seeds", "jobs", "suites", "name")  # settings that are not of a run
SET_HERE = ("ablation", "variant", "seed", "resume")  # settings of a run that the suite decides
# Charts that lay the runs over one another; what TensorBoard's own page of scalars shows one tag at a time.
LAYOUT = {
    "How well": {
        "validation BLEU": ["Multiline", ["valid/bleu"]],
        "validation NLL": ["Multiline", ["valid/nll"]],
        "training loss": ["Multiline", ["train/loss"]],
    },
    "Why": {
        title: ["Multiline", [f"why/{aspect}/.*"]]
        for title, aspect in (
            ("norm of the gradient", "gradient_norm"),
            ("norm of a sublayer's output over its input", "update_ratio"),
            ("cosine of a sublayer's output and its input", "update_cosine"),
            ("mean cosine between positions", "position_cosine"),
            ("entropy of attention, as a share of its maximum", "attention_entropy"),
            ("variance of scores", "score_variance"),
        )
    },
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
    """What is wrong with the suite's own settings; the runs' are checked when they are composed."""
    found = problems(SuiteSettings, "", {key: config[key] for key in OWN if key in config})
    if found:
        return found
    if not isinstance(config["suite"], str):
        return found
    if config["suite"] in config["suites"]:
        named = config["suites"][config["suite"]]
        if not (isinstance(named, Mapping) and isinstance(named.get("variants"), Sequence) and named["variants"]):
            found.append(f"suites.{config['suite']}.variants: give a list of variants, [baseline,no_residual]")
    else:
        near = nearest(config["suite"], list(config["suites"]))
        found += [
            f"suite={config['suite']}: choose one of {', '.join(config['suites'])}, or give a list of variants, "
            f"suite=[baseline,no_residual]" + (f"; did you mean {near}?" if near else "")
        ]
    return found


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
        """What it printed."""
        return self.directory.with_name(f"{self.name}.log")

    def lock(self) -> int | None:
        """A descriptor that holds the run's lock till it is closed by all who have it; None where another process does."""
        descriptor = os.open(self.directory.with_name(f".{self.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def start(self, threads: int) -> None:
        """A process of its own. It holds the lock, so that whoever comes after a suite that was killed knows of it."""
        lock = self.lock()
        if lock is None:
            self.state, self.message = "running", "in another process"
            return
        more = [one for one in sys.argv if one.startswith("--config-dir=")]  # where a user keeps ablations of their own
        arguments = [f"resume={self.directory}"] if self.directory.exists() else self.overrides
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entente", "train", *more, *arguments, f"trainer.threads={threads}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                pass_fds=[lock],
            )
        os.close(lock)
        self.state, self.message, self.code = "running", "", digest(self.variant)
        self.look()
        self.first_step = self.step

    def look(self) -> None:
        """How far it has come, by its log; and how it ended, if it has."""
        try:
            said = (self.directory / "train.log").read_text(encoding="utf-8", errors="replace")
            self.step = max([int(step) for step in re.findall(r"step (\d+)/\d+", said)], default=0)
        except OSError:
            pass
        if self.process is None:
            if (lock := self.lock()) is not None:
                os.close(lock)
                self.state, self.message = ("finished" if is_finished(self.directory) else "waiting"), ""
        elif (code := self.process.poll()) is not None:
            self.process = None
            self.state = "killed" if code < 0 else CODES.get(code, "crashed")
            self.message = f"by {signal.Signals(-code).name}" if code < 0 else "" if code == 0 else self.last_words()
            if code == 0 and not is_finished(self.directory):
                self.state, self.message = "crashed", "ended without metrics"

    def last_words(self) -> str:
        lines = [line for line in self.output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


@cache
def digest(variant: str) -> str:
    """Of the code that trains, and of what an ablation sets: who has changed either looks at numbers of something else."""
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
    root = path_of(config["output_dir"]) / (
        config["name"] or (config["suite"] if isinstance(config["suite"], str) else "suite")
    )
    jobs = planned(config, root, variants, overrides)
    prepare_process(None)
    with one_suite(root, variants, config["seeds"], overrides):
        recall(root, jobs)
        threads = config["trainer"]["threads"] or max(1, (os.cpu_count() or 1) // config["jobs"])
        work(root, jobs, config["jobs"], threads)
    report(asdict(Compare(suite=str(root))))
    return root


def chosen(config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The variants of the suite, and the overrides that all its runs have."""
    if isinstance(config["suite"], str):
        named = config["suites"][config["suite"]]
        return list(dict.fromkeys(named["variants"])), list(named.get("overrides", []))
    return list(dict.fromkeys(config["suite"])), []


def planned(config: Mapping[str, Any], root: Path, variants: Sequence[str], overrides: Sequence[str]) -> list[Job]:
    """Every run, seeds outermost, so that a first table is soon whole. InputError with all that is wrong with any of them."""
    within = root.relative_to(path_of(config["output_dir"]))
    jobs = []
    for seed in dict.fromkeys(config["seeds"]):
        for variant in variants:
            own = sets(variant)  # the last word: two of them would make a variant that is not what its name says
            shared = [one for one in overrides if key_of(one) not in own]
            name = f"{variant}-seed{seed}"
            arguments = [*shared, f"ablation={variant}", f"seed={seed}", quoted(f"name={within}/{name}")]
            jobs.append(Job(variant, seed, root / name, arguments))
    settings = {job.variant: composed(job.overrides) for job in jobs[: len(variants)]}  # seeds are of one kind
    found = [f"ablation={variant}: {problem}" for variant in variants for problem in check_run(settings[variant])]
    for job in jobs:
        if job.directory.exists() and not (job.directory / "config.yaml").is_file():
            found.append(f"{job.directory}: in the way, it is no run (it has no config.yaml); remove it")
    if found:
        raise InputError(*found)
    for job in jobs:
        job.budget = completed(settings[job.variant])["trainer"]["max_steps"]
    return jobs


@contextmanager
def one_suite(root: Path, variants: Sequence[str], seeds: Sequence[int], overrides: Sequence[str]) -> Iterator[None]:
    """suite.yaml in its directory: one that is there may get more variants and seeds, never other settings; and one process."""
    before = settings_of(root) or Settings(list(variants[:1]), list(seeds[:1]), overrides=list(overrides))
    if before.overrides != list(overrides):
        own = " ".join(before.overrides) or "none of its own"
        raise InputError(f"{root}: holds a suite with other settings ({own}); give this one another name=...")
    if before.variants[0] != variants[0]:
        raise InputError(
            f"{root}: holds a suite compared with {before.variants[0]}; name that first, or give this one another name=..."
        )
    command = " ".join([Path(sys.argv[0]).name, *map(shlex.quote, sys.argv[1:])])
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
    """What was done before."""
    for job in jobs:
        before = status_of(root).get(job.name, {})
        job.code = before.get("code", "")
        if is_finished(job.directory):
            job.state = "finished"
            job.step = job.first_step = job.budget
        elif before.get("state") in ENDED:
            job.state, job.message = before["state"], before.get("message", "")
        elif (lock := job.lock()) is None:  # a suite that was killed leaves its runs behind
            job.state, job.message = "running", "in another process"
            job.look()
            job.first_step = job.step
        else:
            os.close(lock)


def status_of(root: Path) -> dict[str, dict[str, str]]:
    """status.json of the suite; nothing where it is missing or no longer readable, for the runs' own files say more."""
    try:
        return TypeAdapter(dict[str, dict[str, str]]).validate_json(small_file(root / "status.json"))
    except (OSError, ValueError):
        return {}


def work(root: Path, jobs: Sequence[Job], at_once: int, threads: int) -> None:
    """Until every run has ended, some way or other. A signal lets those under way save what they have; then it is an
    Interrupted."""
    console = Console(markup=False, emoji=False)
    began = said = time.monotonic()
    kept = sum(job.state in ENDED for job in jobs)
    for job in jobs:
        if job.state in ENDED and job.code not in ("", digest(job.variant)):
            log.warning("%s: was trained with other code, or another ablation file; to train it again remove it", job.directory)
    log.info("%s: %d runs%s", root, len(jobs), f", of which {kept} have ended already" if kept else "")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        try:
            while any(job.state in ("waiting", "running") for job in jobs):
                for job in [job for job in jobs if job.state == "running"]:
                    job.look()
                    if job.state not in ("running", "waiting"):
                        _say(job, jobs, began)
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
            write_status(root, jobs)
            left = sum(job.state not in ENDED for job in jobs)
            raise Interrupted(f"stopped with {left} of {len(jobs)} runs left; the same command goes on") from None
    write_status(root, jobs)


def stop(jobs: Sequence[Job]) -> None:
    """Every process under way finishes its step, saves and ends."""
    under_way = [job for job in jobs if job.process]
    for job in under_way:
        assert job.process
        job.process.terminate()
    for job in under_way:
        assert job.process
        job.process.wait()
        job.look()
        if job.state not in (*ENDED, "refused"):
            job.state, job.message = "interrupted", ""


def write_status(root: Path, jobs: Sequence[Job]) -> None:
    before = status_of(root)
    status = before | {job.name: {"state": job.state, "message": job.message, "code": job.code} for job in jobs}
    if status != before:
        write_json(root / "status.json", status)


def progress(title: str, jobs: Sequence[Job], began: float) -> Table:
    """All runs, how far each is, and the time left."""
    table = Table(title=f"{title}: {_summary(jobs, began)}", title_justify="left")
    for column in ("run", "state", "step", ""):
        table.add_column(column, justify="right" if column == "step" else "left")
    for job in jobs:
        table.add_row(job.name, job.state, f"{job.step}/{job.budget}" if job.step else "", escape.line(job.message))
    return table


def _summary(jobs: Sequence[Job], began: float) -> str:
    """How many have ended, the time since this command began, and the time left at the speed so far."""
    elapsed = time.monotonic() - began
    ended = sum(job.state not in ("waiting", "running") for job in jobs)
    done = sum(job.step - job.first_step for job in jobs)
    left = sum(job.budget - job.step for job in jobs if job.state in ("waiting", "running"))
    text = f"{ended} of {len(jobs)} ended, {clock(elapsed)}"
    return f"{text}, {clock(elapsed / done * left)} left" if done and left else text


def _say(job: Job, jobs: Sequence[Job], began: float) -> None:
    log.info("%s: %s%s (%s)", job.directory, job.state, f", {job.message}" if job.message else "", _summary(jobs, began))


def _part(override: str) -> str:
    return key_of(override).partition(".")[0]
