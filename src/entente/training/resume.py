"""Stop anywhere, go on, and end with the same bits as a run that never stopped.

A checkpoint is a moment between two optimiser steps, after whatever validation followed the first of them. It holds what
Lightning keeps (weights, optimiser, schedule, loops, callbacks) and what it does not: the random states of torch, NumPy and
Python, and, from our loader, how many batches were consumed. TensorBoard's events are flushed before it is written, and those
after it are purged when a run goes on from it, so no point is lost or shown twice.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from entente.checkpoint import ENTRY, checksum, read
from entente.console.endings import Stopped, StopSignals
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError, Interrupted, shortage
from entente.training.run_directory import how_to_resume, step_of, steps, steps_of_mean
from entente.training.saving import Checkpoints

log = logging.getLogger("entente")


@dataclass(frozen=True)
class Point:
    """Where a run goes on."""

    path: Path | None  # of the checkpoint; None: from the beginning
    step: int = 0
    trained: bool = False  # what is left is the evaluation
    best: float | None = None  # BLEU of the best validation so far, whose weights best.ckpt holds
    vocabulary: str | None = None  # checksum of the checkpoint's
    text: str | None = None  # digest of the corpus; None in a checkpoint from before these were kept

    def refuse_text(self, digest: str) -> None:
        """Raises InputError where the corpus is not the one that the run began with."""
        if self.path and self.text is None:
            log.info("%s holds no digest of the text: only its vocabulary is compared with this one's", self.path)
        elif self.path and self.text != digest:
            raise InputError(
                f"{self.path}: the training or validation text has changed since this was written; "
                "give the run its own text again, or begin a new one without resume"
            )

    def refuse_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raises InputError where a piece would no longer mean what the weights know it as."""
        if self.path and self.vocabulary != checksum(vocabulary.state()):
            raise InputError(
                f"{self.path}: its vocabulary is not the one that the text gives now; "
                "give the run its own text and SentencePiece again, or begin a new one without resume"
            )


BEGINNING = Point(None)


def newest(run_dir: Path, every: int = 1, average: int = 1, last: int | None = None) -> Point:
    """The latest checkpoint that is whole and from which training forward gives whatever else the run's end needs and is not
    there: the points of the mean, and best.ckpt. Each damaged or missing file is named. last: the run's last step where that is
    known before it is reached."""
    folder = run_dir / "checkpoints"

    @cache
    def content(name: str) -> dict[str, Any] | None:
        try:
            return read(folder / name)
        except InputError as error:
            log.warning("%s: going back to a checkpoint before it", error)
            return None

    lost: float | None = None  # BLEU of the best.ckpt that must be written again
    for path in steps(folder)[::-1]:
        point = _point(path, content(path.name))
        if point is None or (lost is not None and point.best == lost):
            continue
        end = point.step if point.trained else last or point.step + 1
        if not all(content(f"step-{step}.ckpt") for step in steps_of_mean(end, every, average) if step <= point.step):
            continue
        if lost is None and point.best is not None and content("best.ckpt") is None:
            lost = point.best
            continue
        return point
    return BEGINNING


def _point(path: Path, content: Mapping[str, Any] | None) -> Point | None:
    if content is None:
        return None
    state, ours = content.get("callbacks", {}).get(Checkpoints.__qualname__), content[ENTRY]
    if state is None:
        log.warning("%s: not a checkpoint that training goes on from: going back to one before it", path)
        return None
    return Point(path, content["global_step"], state["trained"], state["best"], checksum(ours["vocabulary"]), ours.get("text"))


def forget_after(run_dir: Path, point: Point) -> None:
    """Removes the checkpoints of later steps: training writes them again, as it does their points for TensorBoard."""
    for path in steps(run_dir / "checkpoints"):
        if step_of(path) > point.step:
            path.unlink()


def _without_disk_errors(error: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer is a thread, whose error the main thread raises again at the next write."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)


@contextmanager
def resumable(run_dir: Path) -> Iterator[None]:
    """Turns what ends the run in `run_dir` early into a line that says how to resume it."""
    try:
        with StopSignals():
            threading.excepthook = _without_disk_errors
            yield
    except Stopped as stopped:
        raise Interrupted(f"{stopped}; {how_to_resume(run_dir)}") from None
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if isinstance(error, BrokenPipeError) or (line := shortage(error)) is None:
            raise
        raise InputError(f"{run_dir}: {line}; {how_to_resume(run_dir)}") from error
