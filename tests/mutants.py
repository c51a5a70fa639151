"""Changes the source one line at a time and checks that the tests notice: `python tests/mutants.py [FILE ...] [--jobs 2]`.

Each row of tests/mutants.tsv describes a mutant by a file of src/entente, a fragment that occurs once in this file, its
replacement, and pytest's arguments for the tests to run first. A mutant that is equivalent to the original has a reason in the
last column. Each mutant is written into a copy of the checkout and tested in a forked process, because importing torch takes
longer than most tests.

mutmut and cosmic-ray generate mutants (cosmic-ray 8.7 makes 4,175 from the same files); this short list is written by hand.
"""

import argparse
import csv
import os
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# These are imported here so that forked processes need not import them. A process imports only its own mutant of entente.
import datasets  # noqa: F401
import hydra  # noqa: F401
import lightning  # noqa: F401
import pytest
import sacrebleu  # noqa: F401
import torch  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutants.tsv"
OPTIONS = "-x -q -p no:cacheprovider -p no:xdist --hypothesis-seed=1 --basetemp=temporary".split()
OPTIONS += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
WIDER = """test_scores.py test_attention.py test_batches.py test_laws.py test_alignment.py test_search.py test_maps.py
    test_fast.py test_variants.py -k 'not two_workers and not freed_memory'"""  # run if a mutant's own tests pass
MEMORY = 16 * 2**30  # limit in bytes for each process, because an endless loop in a mutant could fill the memory


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str
    equivalent: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()}  =>  {self.new.strip()}"

    def source(self, checkout: Path) -> str:
        """Returns the text of the mutated file. Exits if the list no longer matches the source."""
        text = (checkout / "src/entente" / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            sys.exit(f"error: {LIST.name}: {self.file} contains this {text.count(self.old)} times, not once: {self.old}")
        compile(mutated := text.replace(self.old, self.new), self.file, "exec")
        return mutated


def start(folder: Path, stages: Iterable[str]) -> int:
    """Forks a process that runs pytest in `folder` on each stage until one fails, and logs to `log`. Returns its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.chdir(folder)
        sys.path[:0] = [str(folder / "src"), str(folder / "tests")]
        # Python compares bytecode with its source by time, in whole seconds, so it could run the previous mutant's bytecode.
        os.environ.update(PYTHONPATH=str(folder / "src"), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        sys.dont_write_bytecode = True
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1), os.dup2(log, 2)
        for stage in stages:
            code = int(pytest.main([*OPTIONS, *(f"tests/{a}" if a.startswith("test_") else a for a in shlex.split(stage))]))
            if code:
                break
        sys.stdout.flush()
    finally:
        os._exit(code)


def poll(folder: Path, pid: int, seconds_left: float) -> tuple[str, float] | None:
    """Returns None while the process runs, then the test or error that killed the mutant (else "") and the CPU seconds used."""
    if seconds_left < 0:
        os.killpg(pid, signal.SIGKILL)
    ended, status, usage = os.wait4(pid, 0 if seconds_left < 0 else os.WNOHANG)
    if not ended:
        return None
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.*?)(?: - .*)?$", log, re.M)
    by = "timeout" if seconds_left < 0 else failed[1] if failed else log.strip().rpartition("\n")[2]
    return by if status else "", usage.ru_utime + usage.ru_stime


def results(
    mutants: list[Mutant], wider: list[str], jobs: int, timeout: float, scratch: Path
) -> Iterator[tuple[Mutant, str, float]]:
    """Tests the mutants, `jobs` at a time. Yields each mutant when its process ends, with the values that `poll` returns."""
    waiting, free, running = mutants[::-1], list(range(jobs)), dict[int, tuple[Mutant, int, float]]()
    try:
        while waiting or running:
            while waiting and free:
                mutant, job = waiting.pop(), free.pop()
                folder = copy_checkout(scratch / "original", scratch / str(job))
                (folder / "src/entente" / mutant.file).write_text(mutant.source(folder), encoding="utf-8")
                stages = [mutant.tests] if mutant.equivalent else [mutant.tests, *wider]
                running[start(folder, stages)] = mutant, job, time.monotonic() + timeout
            time.sleep(0.05)
            for pid, (mutant, job, end) in list(running.items()):
                if result := poll(scratch / str(job), pid, end - time.monotonic()):
                    del running[pid]
                    free.append(job)
                    yield mutant, *result
    finally:
        for pid in running:
            os.killpg(pid, signal.SIGKILL)


def copy_checkout(checkout: Path, folder: Path) -> Path:
    """Copies the files that the tests need from `checkout` to `folder`, replacing an earlier copy, and returns `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("src", "tests", "configs", "scripts"):
        shutil.copytree(checkout / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(checkout / "pyproject.toml", folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="test only the mutants of these files of src/entente")
    parser.add_argument("--jobs", type=int, default=1, help="number of mutants tested at the same time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a mutant counts as killed")
    parser.add_argument(
        "--first", action="store_true", help="run only the tests that the list names, not the wider set after them"
    )
    given = parser.parse_args()
    with LIST.open(encoding="utf-8", newline="") as lines:
        mutants = [Mutant(*row) for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
    mutants = [mutant for mutant in mutants if not given.files or mutant.file in given.files]
    if not mutants:
        parser.error(f"{LIST.name} has no mutants of these files")
    wider = [] if given.first else [WIDER]
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        original = copy_checkout(ROOT, scratch / "original")
        for mutant in mutants:
            mutant.source(original)
        stages = [*dict.fromkeys([*(mutant.tests for mutant in mutants), *wider])]
        print(f"{len(mutants)} mutants; first, {len(stages)} sets of tests run on the unchanged source", flush=True)
        pid, began, counts = start(original, stages), time.monotonic(), Counter[str]()
        while not (control := poll(original, pid, began + 4 * given.timeout - time.monotonic())):
            time.sleep(0.05)
        if control[0]:
            sys.exit(f"error: the tests fail on the unchanged source: {control[0]}")
        began, cpu = time.monotonic(), control[1]
        for mutant, by, seconds in results(mutants, wider, given.jobs, given.timeout, scratch):
            verdict = ("contradicted" if by else "equivalent") if mutant.equivalent else "killed" if by else "survived"
            counts[verdict] += 1
            cpu += seconds
            left = (time.monotonic() - began) / counts.total() * (len(mutants) - counts.total()) / 60
            print(f"[{counts.total()}/{len(mutants)}, {left:.0f} min left] {verdict} ({seconds:.0f} s): {mutant}", flush=True)
            print(f"    {by or mutant.equivalent}", flush=True)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("killed", "equivalent", "survived", "contradicted"))
    minutes = (time.monotonic() - began) / 60
    print(f"{len(mutants)} listed: {summary}; {minutes:.0f} minutes, {cpu / 3600:.2f} core-hours")
    sys.exit(counts["survived"] + counts["contradicted"] > 0)


if __name__ == "__main__":
    main()
