"""A run in one file: weights, configuration, vocabulary and where it all comes from.

The file is Lightning's own checkpoint, so that training can go on from it, with one entry of ours beside its own and a
SHA-256 over all of it. It is read as data, never as code: `weights_only=True`, and the model is one of our classes with
checked arguments, whose shapes are compared before memory is taken.
"""

import hashlib
import os
import pickle
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entente.data.tokenizer import PAD, Vocabulary
from entente.errors import Diverged, InputError
from entente.models import MODELS, Seq2Seq
from entente.schema import fill
from entente.writing import made, whole

ENTRY = "entente"
CHECKSUM = "sha256"
SCHEMA = 2  # 1 had no checksum
PREFIX = "model."  # of the model's parameters among the LightningModule's
RUNTIME = {"src_vocab", "tgt_vocab", "shared_vocab", "pad_id", "seed"}  # arguments that a configuration does not give


@dataclass(frozen=True)
class Run:
    """What a checkpoint holds, ready to translate: the model is in evaluation mode."""

    model: Seq2Seq
    vocabulary: Vocabulary
    config: dict[str, Any]
    provenance: dict[str, str]
    step: int


def build(config: Mapping[str, Any], vocabulary: Vocabulary, seed: int) -> Seq2Seq:
    """The model a configuration's `model` part describes; its other keys are the constructor's arguments, checked and bounded
    by the signature."""
    arguments = dict(config)
    name = arguments.pop("name", None)
    if name not in MODELS:
        raise InputError(f"model.name={name}: choose one of {', '.join(MODELS)}")
    sizes = {"src_vocab": len(vocabulary.src), "tgt_vocab": len(vocabulary.tgt), "shared_vocab": vocabulary.joint}
    return fill(MODELS[name], "model", arguments, **sizes, pad_id=PAD, seed=seed)


def entry(config: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """What a checkpoint holds beside the weights; nothing but numbers, strings, lists, dicts and tensors."""
    return {"schema": SCHEMA, "config": dict(config), "vocabulary": vocabulary.state(), "provenance": provenance()}


def provenance() -> dict[str, str]:
    """When, from which code and by which command."""
    here = Path(__file__).parent
    try:
        git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False)
        commit = git.stdout.strip() or "unknown"
    except OSError:
        commit = "unknown"
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def find(checkpoint: str) -> Path:
    """The file meant: itself, or the best checkpoint of a run's directory."""
    path = Path(checkpoint).expanduser()
    if path.is_dir():
        path = path / "checkpoints" / "best.ckpt"
    if not path.is_file():
        raise InputError(f"checkpoint={checkpoint}: no such file, and no run with checkpoints/best.ckpt in it")
    return path


def write(content: dict[str, Any], path: Path) -> None:
    """Whoever reads finds the whole file or the one before."""
    try:
        with made(path.parent), whole(path) as file:
            torch.save({**content, CHECKSUM: checksum(content)}, file)
    except (OSError, RuntimeError) as error:
        reason = error if isinstance(error, OSError) else error.__context__  # torch's writer may fail because a write failed
        if not isinstance(reason, OSError):
            raise
        raise InputError(f"{path}: the checkpoint cannot be written ({reason.strerror or reason})") from error


def read(path: Path) -> dict[str, Any]:
    """The content of a checkpoint of ours, checked against its checksum. InputError if it is none, or
    no longer what was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > path.stat().st_size:  # torch stores tensors as they are
            raise InputError(f"{path}: not a checkpoint (it would unpack to {unpacked:,} bytes)")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except pickle.UnpicklingError as error:  # torch's own words tell how to load it all the same
        raise InputError(
            f"{path}: not a checkpoint that can be read: damaged, or with code in it, of which nothing was run; "
            "give one that training wrote here"
        ) from error
    except Exception as error:  # of damaged bytes, torch's reader makes errors of every kind
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")
        raise InputError(
            f"{path}: not a checkpoint that can be read, or a damaged one ({reason[:200]}); "
            "take another copy, or give one that training wrote here"
        ) from error
    ours = content.get(ENTRY) if isinstance(content, dict) else None
    if not isinstance(ours, dict):
        raise InputError(f"{path}: a checkpoint of another program; give one that training wrote here")
    if ours.get("schema") != SCHEMA:
        raise InputError(f"{path}: written in format {ours.get('schema')}, this version reads format {SCHEMA}; train it again")
    expected = content.pop(CHECKSUM, None)
    if checksum(content) != expected:
        raise InputError(
            f"{path}: damaged, its content does not match its checksum; take another copy or an earlier checkpoint"
        )
    return content


def checksum(content: object) -> str:
    """SHA-256 over every value, its type and its place: the bytes of tensors, what numbers and strings say."""
    digest = hashlib.sha256()
    _feed(digest, content)
    return digest.hexdigest()


def _feed(digest: Any, value: object) -> None:
    if isinstance(value, Tensor):
        digest.update(f"tensor {value.dtype} {tuple(value.shape)} {value.is_contiguous()}\n".encode())
        if value.is_contiguous():  # ours are; another's bytes may be fewer than its elements
            digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)}\n".encode())
        for key, item in value.items():
            _feed(digest, key)
            _feed(digest, item)
    elif isinstance(value, list | tuple):
        digest.update(f"{type(value).__name__} {len(value)}\n".encode())
        for item in value:
            _feed(digest, item)
    elif value is None or isinstance(value, bool | int | float | str):
        digest.update(f"{type(value).__name__} {value!r}\n".encode())
    else:
        raise TypeError(f"a checkpoint holds tensors and plain values, not a {type(value).__name__}")


def load(checkpoint: str) -> Run:
    """Reads a checkpoint, wherever it lies; a file that is none, or not one of ours, is an InputError."""
    path = find(checkpoint)
    content = read(path)
    try:
        ours, weights = content[ENTRY], model_weights(content)
        vocabulary = Vocabulary.from_state(ours["vocabulary"])
        model_config, seed = ours["config"]["model"], ours["config"]["seed"]
        with torch.device("meta"):  # shapes without memory
            planned = build(model_config, vocabulary, seed).state_dict()
        if wrong := _misfit(planned, weights):
            raise InputError(f"{path}: its weights do not fit its configuration ({wrong})")
        if bad := next((name for name, weight in weights.items() if not weight.isfinite().all()), None):
            raise Diverged(f"{path}: {bad} holds values that are not finite; train it again with a smaller optim.lr")
        model = build(model_config, vocabulary, seed)
        model.load_state_dict(weights)
        return Run(model.eval(), vocabulary, ours["config"], ours["provenance"], content["global_step"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path}: a part of the checkpoint is missing or of the wrong kind ({error})") from error


def model_weights(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """The model's own parameters in a checkpoint's content, by their names in the model."""
    return {k.removeprefix(PREFIX): v for k, v in content["state_dict"].items() if k.startswith(PREFIX)}


def _misfit(planned: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """What keeps the weights from being those of the planned model; nothing if they are."""
    for name in sorted(planned.keys() | weights.keys()):
        if name not in planned or name not in weights:
            return f"{name} is {'missing' if name in planned else 'not in the model'}"
        if not weights[name].is_contiguous() or planned[name].shape != weights[name].shape:
            return f"{name} is {tuple(weights[name].shape)}, the model has {tuple(planned[name].shape)}"
    return ""


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of one run, summed in float64 (Vaswani et al. 2017, section 6.1)."""
    states = [read(path)["state_dict"] for path in paths]
    return {
        name: (sum(state[name].double() for state in states) / len(states)).to(first.dtype) for name, first in states[0].items()
    }
