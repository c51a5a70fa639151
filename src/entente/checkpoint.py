"""A run in one file: weights, configuration, vocabulary and where it all comes from.

The file is Lightning's own checkpoint, so that training can go on from it, with one entry of ours beside its own. It is read
with `weights_only=True`: data, no code.
"""

import inspect
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from entente.data.tokenizer import PAD, Vocabulary
from entente.errors import InputError
from entente.models import MODELS, Seq2Seq

ENTRY = "entente"
SCHEMA = 1
RUNTIME = {"self", "src_vocab", "tgt_vocab", "shared_vocab", "pad_id", "seed"}  # arguments that a configuration does not give


@dataclass(frozen=True)
class Run:
    """What a checkpoint holds, ready to translate: the model is in evaluation mode."""

    model: Seq2Seq
    vocabulary: Vocabulary
    config: dict[str, Any]
    provenance: dict[str, str]
    step: int


def build(config: Mapping[str, Any], vocabulary: Vocabulary, seed: int) -> Seq2Seq:
    """The model a configuration's `model` part describes; its other keys are the constructor's arguments."""
    arguments = dict(config)
    name = arguments.pop("name", None)
    if name not in MODELS:
        raise InputError(f"model.name={name}: choose one of {', '.join(MODELS)}")
    allowed = set(inspect.signature(MODELS[name]).parameters) - RUNTIME
    for key in arguments:
        if key not in allowed:
            near = get_close_matches(key, allowed, 1)
            hint = f"did you mean model.{near[0]}?" if near else f"it has {', '.join(sorted(allowed))}"
            raise InputError(f"model.{key}: model={name} has no such setting; {hint}")
    sizes = {"src_vocab": len(vocabulary.src), "tgt_vocab": len(vocabulary.tgt), "shared_vocab": vocabulary.joint}
    try:
        return MODELS[name](**sizes, pad_id=PAD, seed=seed, **arguments)
    except (ValueError, TypeError) as error:
        raise InputError(f"model={name}: {error}") from error


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


def load(checkpoint: str) -> Run:
    """Reads a checkpoint, wherever it lies; a file that is none, or not one of ours, is an InputError."""
    path = find(checkpoint)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: not a checkpoint that can be read ({reason[0]})") from error
    ours = content.get(ENTRY) if isinstance(content, dict) else None
    if not isinstance(ours, dict):
        raise InputError(f"{path}: a checkpoint of another program; give one that training wrote here")
    if ours["schema"] != SCHEMA:
        raise InputError(f"{path}: written in format {ours['schema']}, this version reads format {SCHEMA}")
    vocabulary = Vocabulary.from_state(ours["vocabulary"])
    model = build(ours["config"]["model"], vocabulary, ours["config"]["seed"])
    prefix = "model."
    weights = {k.removeprefix(prefix): v for k, v in content["state_dict"].items() if k.startswith(prefix)}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path}: its weights do not fit its configuration ({str(error).splitlines()[0]})") from error
    return Run(model.eval(), vocabulary, ours["config"], ours["provenance"], content["global_step"])
