"""Checkpoints: the weights, settings, vocabulary and provenance of a run, in one file.

The file is a Lightning checkpoint with our own entry added. It is read as data, never as code: torch loads it with
`weights_only=True`, and the model is built from one of our classes. Damage is found by the zip format's checksums.
"""

import platform
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entente.data.text import distinct_words
from entente.data.tokenizer import PAD, Vocabulary
from entente.errors import Diverged, InputError, reason
from entente.fast.attach import attach
from entente.files import open_atomic
from entente.models.build import build
from entente.models.seq2seq import Seq2Seq, Sizes, parameter_count
from entente.settings import RunSettings
from entente.validation import to_text, validate

PACKAGE = Path(__file__).resolve().parent
ENTRY = "entente"
FOLDER = 0x10  # attribute of a folder in a zip file
FORMAT = 3  # see CHANGELOG.md
MODEL_PREFIX = "model."  # prefix of the model's parameters in the LightningModule's state dict
UNREADABLE = "not a checkpoint of this program, or a damaged one; use another copy, or train the model again"


@dataclass(frozen=True)
class TrainedRun:
    """The content of a checkpoint, with the model in evaluation mode."""

    model: Seq2Seq
    vocabulary: Vocabulary
    settings: RunSettings
    provenance: dict[str, str]
    step: int
    words: frozenset[str]  # the source words of the training text

    @property
    def languages(self) -> tuple[str, str]:
        return self.settings.data.src, self.settings.data.tgt

    def summary(self) -> str:
        (src, tgt), count = self.languages, parameter_count(self.model)
        return f"{type(self.model).__name__} {src} -> {tgt}, {count:,} parameters, trained {self.step:,} steps"

    def new_words(self, source: str) -> list[str]:
        """Returns the words of a sentence that are not in the training text, or none if that text's words are not known."""
        return [word for word in distinct_words(source) if word not in self.words] if self.words else []


def sizes_of(vocabulary: Vocabulary, seed: int) -> Sizes:
    return Sizes(len(vocabulary.src), len(vocabulary.tgt), vocabulary.joint, PAD, seed)


def provenance() -> dict[str, str]:
    """Returns the time, the commit, the command, and the versions of torch and Python."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": shlex.join(["entente", *sys.argv[1:]]),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Returns the commit of this checkout, or "unknown" if the package is installed elsewhere: git could then find another
    repository, one that contains the environment."""
    if not (PACKAGE.parents[1] / ".git").exists():
        return "unknown"
    git = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, cwd=PACKAGE, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    except OSError:  # git is not installed
        return "unknown"


def entry(settings: RunSettings, vocabulary: Vocabulary, text: str, words: str) -> dict[str, Any]:
    """Returns our entry in a checkpoint. text: `Corpus.digest`. words: the distinct source words of train, one per line."""
    content = {"config": settings.stored(), "vocabulary": vocabulary.state(), "text": text, "words": words}
    return {"format": FORMAT, "provenance": provenance(), **content}


def find(checkpoint: str) -> Path:
    """Returns the path of a checkpoint file, or of the best checkpoint in a run's directory."""
    path = Path(checkpoint).expanduser()
    path = path / "checkpoints" / "best.ckpt" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{checkpoint}: no such checkpoint, and no folder that contains checkpoints/best.ckpt")
    return path


def write(content: Mapping[str, Any], path: Path) -> None:
    with open_atomic(path) as file:
        torch.save(content, file)


@contextmanager
def _as_input_error(path: Path, problem: str) -> Iterator[None]:
    """Turns any error while reading a file, except Diverged and MemoryError, into one line that names the file."""
    try:
        yield
    except (InputError, Diverged, MemoryError):
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    except Exception as error:  # zipfile, pickle and torch raise errors of many types
        raise InputError(f"{path}: {problem}") from error


def read(path: Path) -> dict[str, Any]:
    """Returns the content of a checkpoint: plain values and tensors. Raises InputError if it is damaged or not ours."""
    with _as_input_error(path, UNREADABLE):
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() or any(part.external_attr & FOLDER for part in archive.infolist()):
                # torch would fill a tensor whose part is marked as a folder with whatever is in memory
                raise ValueError("a part does not match its checksum, or is not a file")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if content[ENTRY].get("format") != FORMAT:
            stored = to_text(content[ENTRY].get("format"))
            raise InputError(f"{path}: its format is {stored}, not {FORMAT}; train the model again, or use its version")
    return content


def load(checkpoint: str) -> TrainedRun:
    """Loads a checkpoint (see `find`). Raises Diverged if a weight is not finite."""
    path = find(checkpoint)
    content = read(path)
    with _as_input_error(path, UNREADABLE):
        ours, step = content[ENTRY], content["global_step"]
        origin, words = ours["provenance"], frozenset(ours["words"].split())
        weights = {k.removeprefix(MODEL_PREFIX): v for k, v in content["state_dict"].items() if k.startswith(MODEL_PREFIX)}
        settings = validate(RunSettings, ours["config"], where=f"{path}: in its configuration, ")
        if names := [name for name, weight in weights.items() if not weight.isfinite().all()]:
            raise Diverged(f"{path}: {names[0]} holds values that are not finite; train again with a smaller optim.lr")
        vocabulary = Vocabulary.from_state(ours["vocabulary"])
    with _as_input_error(path, "its weights do not fit its configuration; use another copy, or train the model again"):
        with torch.random.fork_rng(devices=[]):  # building a model draws from the caller's generator
            model = attach(build(settings.model, sizes_of(vocabulary, settings.seed)))
        dtype = next(iter(weights.values())).dtype  # float64 after training in 64-true; float16 only saves space in the file
        model.to(torch.float32 if dtype == torch.float16 else dtype).load_state_dict(weights)
    return TrainedRun(model.eval(), vocabulary, settings, origin, step, words)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Averages the weights of several checkpoints of a run, summing in float64 (Vaswani et al. 2017, section 6.1)."""
    states = [read(path)["state_dict"] for path in paths]
    means = {name: sum(state[name].double() for state in states) / len(states) for name in states[0]}
    return {name: mean.to(states[0][name].dtype) for name, mean in means.items()}
