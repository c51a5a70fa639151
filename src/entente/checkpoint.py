"""Checkpoints: the weights, configuration, vocabulary and provenance of a run, in one file.

The file is a Lightning checkpoint, so training can resume from it, with our own entry and a SHA-256 of the content added.
It is read as data, never as code: torch loads it with `weights_only=True`, and the model is built from one of our classes.
Before memory is allocated for the model, its arguments are checked, and its shapes are compared with those of the weights.
"""

import hashlib
import math
import os
import pickle
import pickletools
import platform
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
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from entente.config.schema import fill, to_text
from entente.console import escape
from entente.data.tokenizer import PAD, Vocabulary
from entente.data.words import distinct_words
from entente.errors import Diverged, InputError, disk_error, reason
from entente.fast.attach import attach
from entente.files import open_atomic, path_of
from entente.models import MODELS, Seq2Seq
from entente.models.seq2seq import parameter_count
from entente.process import memory

ENTRY = "entente"
CHECKSUM = "sha256"
SCHEMA = 2  # format 1 had no checksum
READ_BY = "entente>=0.1"  # versions that can read this format, for the error message of those that cannot; see CHANGELOG.md
MODEL_PREFIX = "model."  # prefix of the model's parameters in the LightningModule's state dict
MAX_DEPTH = 50  # maximum depth of nesting in a checkpoint; ours have a depth of 10
# Maximum number of bytes hashed per byte of the file. The value None is stored in 1 byte but hashed as 14, and tied weights
# are stored once but hashed under each of their names.
EXPANSION = 16
DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool}
STORAGES = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Byte", "Bool")
ADVICE = "give one that this program wrote"
GLOBALS = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", *(f"torch {name}Storage" for name in STORAGES)}
RUNTIME = {"src_vocab", "tgt_vocab", "shared_vocab", "pad_id", "seed"}  # model arguments that are not in `config["model"]`


@dataclass(frozen=True)
class Run:
    """The content of a checkpoint, ready to translate, with the model in evaluation mode."""

    model: Seq2Seq
    vocabulary: Vocabulary
    config: dict[str, Any]
    provenance: dict[str, str]
    step: int
    words: frozenset[str]  # the source words of the training text

    @property
    def languages(self) -> tuple[str, str]:
        """The names of the source and the target language. Raises InputError if the configuration does not have them."""
        match self.config.get("data"):
            case {"src": str(src), "tgt": str(tgt)}:
                return src, tgt
        raise InputError("the checkpoint's configuration lacks data.src or data.tgt; give a checkpoint that this program wrote")

    def summary(self) -> str:
        (src, tgt), count = self.languages, parameter_count(self.model)
        return f"{type(self.model).__name__} {src} -> {tgt}, {count:,} parameters, trained {self.step:,} steps"

    def new_words(self, source: str) -> list[str]:
        """Returns the words of a sentence that are not in the training text, or none if that text's words are not known."""
        return [word for word in distinct_words(source) if word not in self.words] if self.words else []


def build(config: Mapping[str, Any], vocabulary: Vocabulary, seed: int) -> Seq2Seq:
    """Checks `config`, the `model` section of a configuration, against the constructor's signature, and builds the model.
    `attach` then replaces some of the model's methods, such as `loss`, with faster ones from fast/."""
    arguments = dict(config)
    if not isinstance(name := arguments.pop("name", None), str) or name not in MODELS:
        raise InputError(f"model.name={to_text(name)}: choose one of {', '.join(MODELS)}")
    sizes = {"src_vocab": len(vocabulary.src), "tgt_vocab": len(vocabulary.tgt), "shared_vocab": vocabulary.joint}
    return attach(fill(MODELS[name], "model", arguments, **sizes, pad_id=PAD, seed=seed))


class NoNormalValues(TorchFunctionMode):
    """Skips `nn.init.normal_`: meta tensors have no values, and the call makes torch import its compiler, which takes 1 s."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **(kwargs or {}))


def plan(config: Mapping[str, Any], vocabulary: Vocabulary, copies: int, accelerator: str = "cpu") -> Seq2Seq:
    """Builds the model on device "meta". Raises InputError if `copies` float32 copies of it exceed the accelerator's memory."""
    with torch.device("meta"), NoNormalValues():
        planned = build(config, vocabulary, seed=0)
    count = parameter_count(planned)
    if (needed := copies * 4 * count) > (there := memory(accelerator)):
        raise InputError(
            f"model: its {count:,} parameters take {needed / 1e9:,.0f} GB{' to train' * (copies > 1)}, but the device has "
            f"{there / 1e9:,.0f} GB; make it smaller by reducing its widths or n_layers"
        )
    return planned


def entry(config: Mapping[str, Any], vocabulary: Vocabulary, text: str, words: str) -> dict[str, Any]:
    """Returns our entry in a checkpoint: plain values and tensors. text: the digest of the corpus. words: the distinct words of
    the source sentences in train, one per line."""
    made_of = {"config": dict(config), "vocabulary": vocabulary.state(), "text": text, "words": words}
    return {"schema": SCHEMA, "read_by": READ_BY, "provenance": provenance(), **made_of}


def provenance() -> dict[str, str]:
    """Returns the time, the commit, the command, and the versions of torch and Python."""
    git = ["git", "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # git is not installed
        commit = ""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def refuse_other_text(path: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises InputError if this run's corpus (see `Corpus.digest`) or vocabulary differs from the checkpoint's: the weights fit
    only the stored vocabulary. stored: the checkpoint's `entry`. given: the `entry` of this run."""
    if stored["text"] != given["text"]:
        wrong, give = "the training or validation text has changed since this checkpoint was written", "that text"
    elif checksum(stored["vocabulary"]) != checksum(given["vocabulary"]):
        wrong, give = "its vocabulary differs from this run's", "the text and SentencePiece version that it was made with"
    else:
        return
    raise InputError(f"{path}: {wrong}; restore {give}, or start a new run without resume")


def find(checkpoint: str) -> Path:
    """Returns the path of a checkpoint file, or of the best checkpoint in a run's directory."""
    path = path_of(checkpoint)
    if os.path.isdir(path):  # Path.is_dir may raise PermissionError
        path = path / "checkpoints" / "best.ckpt"
    if not os.path.isfile(path):
        raise InputError(f"checkpoint={checkpoint}: no such file, and no folder that contains checkpoints/best.ckpt")
    return path


def write(content: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint atomically: a reader finds either the complete file or the previous one."""
    try:
        with open_atomic(path) as file:
            torch.save({**content, CHECKSUM: checksum(content)}, file)
    except (OSError, RuntimeError) as error:
        if (cause := disk_error(error)) is None:
            raise
        raise InputError(f"{path}: the checkpoint cannot be written ({reason(cause)})") from error


@contextmanager
def _as_input_error(path: Path, what: str) -> Iterator[None]:
    """Turns any error while reading a file, except Diverged and MemoryError, into an InputError that names the file. what: the
    problem to report for an unexpected error."""
    try:
        yield
    except (Diverged, MemoryError):
        raise
    except InputError as error:
        raise InputError(*(f"{path}: {problem}" for problem in error.problems)) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    except pickle.UnpicklingError as error:  # torch's message is not shown: it explains how to load the file unsafely
        raise InputError(
            f"{path}: not a readable checkpoint: it is damaged, or contains code, none of which was run; {ADVICE}"
        ) from error
    except Exception as error:  # torch's reader may raise any exception, and so may our code if a value has the wrong type
        why = escape.line(reason(error).removesuffix("."), 200)
        raise InputError(f"{path}: {what} ({why}); use another copy, or {ADVICE}") from error


def read(path: Path) -> dict[str, Any]:
    """Returns the content of one of our checkpoints: plain values and dense tensors. Raises InputError if the file is not ours,
    if its content does not match its checksum, or if that content is far larger than the file."""
    with _as_input_error(path, "not a checkpoint, or a damaged one"):
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > size:  # torch stores tensors uncompressed
                raise InputError(f"not a checkpoint (it would unpack to {unpacked:,} bytes)")
            _refuse_other_globals(archive)
        content = torch.load(path, map_location="cpu", weights_only=True)
        ours = content.get(ENTRY) if type(content) is dict else None
        if type(ours) is not dict:
            raise InputError(f"a checkpoint from another program; {ADVICE}")
        schema = ours.get("schema")
        written = to_text(schema) if isinstance(schema, int | str) else type(schema).__name__
        if written != str(SCHEMA):
            readers = ours.get("read_by")
            again = "train the model again"
            advice = f"install {to_text(readers)} or {again}" if isinstance(readers, str) else again
            raise InputError(f"its format is {written}, but this version reads format {SCHEMA}; {advice}")
        expected = content.pop(CHECKSUM, None)
        if checksum(content, EXPANSION * size) != expected:
            raise InputError("damaged: its content does not match its checksum; use another copy or an earlier checkpoint")
    return content


def _refuse_other_globals(archive: zipfile.ZipFile) -> None:
    """Raises UnpicklingError if a pickle in a checkpoint names a global that our checkpoints do not use. torch's reader allows
    a few more, such as `bytearray`, with which a file could allocate any amount of memory."""
    for part in archive.infolist():
        if part.filename.lower().endswith(".pkl"):
            for opcode, name, _ in pickletools.genops(archive.read(part)):
                if opcode.name == "GLOBAL" and name not in GLOBALS:
                    raise pickle.UnpicklingError(f"{name} in it")


def checksum(content: object, limit: float = math.inf) -> str:
    """Returns one SHA-256 over all values, with their types and positions. Raises TypeError for a value that our checkpoints
    never hold, and ValueError if there are more than `limit` bytes to hash or the nesting is too deep."""
    digest, size = hashlib.sha256(), 0
    for part in _parts(content, ()):
        size += len(part)
        if size > limit:
            raise ValueError("its repeated values expand to far more than the size of the file")
        digest.update(part)
    return digest.hexdigest()


def _parts(value: object, place: tuple[object, ...]) -> Iterator[bytes | memoryview]:
    """Yields the bytes to hash for a value, in order. place: the keys and indices that lead to this value."""
    if len(place) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Tensor):
        # A view that is not contiguous may use the same bytes for many elements, so a small file could expand to a huge tensor.
        dense = type(value) is Tensor and value.layout is torch.strided and value.dtype in DTYPES and value.is_contiguous()
        if not dense or value.requires_grad or value.is_neg() or value.is_meta:
            raise TypeError(f"{_path(place)} is not a dense tensor of numbers (contiguous, without gradient)")
        yield f"tensor {value.dtype} {tuple(value.shape)} True\n".encode()  # True: is_contiguous(), part of the format
        yield value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}\n".encode()
        for key, item in value.items():
            if not isinstance(key, str | int):
                raise TypeError(f"{_path(place)} has a key of type {type(key).__name__}")
            yield from _parts(key, place)
            yield from _parts(item, (*place, key))
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}\n".encode()
        for number, item in enumerate(value):
            yield from _parts(item, (*place, number))
    elif value is None or isinstance(value, bool | int | float | str):
        yield f"{type(value).__name__} {value!r}\n".encode()
    else:
        raise TypeError(f"a checkpoint holds only tensors and plain values, but {_path(place)} is a {type(value).__name__}")


def _path(place: Sequence[object]) -> str:
    return to_text("/".join(map(str, place)))


def load(checkpoint: str) -> Run:
    """Loads a checkpoint (see `find`). Raises InputError if it is missing or not ours, and Diverged if a weight is not
    finite."""
    path = find(checkpoint)
    content = read(path)
    with _as_input_error(path, "a part of the checkpoint is missing or invalid"):
        ours, step = content[ENTRY], content["global_step"]
        weights = {k.removeprefix(MODEL_PREFIX): v for k, v in content["state_dict"].items() if k.startswith(MODEL_PREFIX)}
        config, described, words = ours["config"], ours["provenance"], ours["words"]
        if not (isinstance(config, dict) and isinstance(described, dict) and type(step) is int and isinstance(words, str)):
            raise TypeError("config and provenance must be mappings, global_step a whole number, and words a string")
        vocabulary = Vocabulary.from_state(ours["vocabulary"])
        if wrong := _misfit(plan(config["model"], vocabulary, copies=1).state_dict(keep_vars=True), weights):
            raise InputError(f"its weights do not fit its configuration ({wrong})")
        if bad := next((name for name, weight in weights.items() if not weight.isfinite().all()), None):
            raise Diverged(f"{path}: {bad} holds values that are not finite; train the model again with a smaller optim.lr")
        model = build(config["model"], vocabulary, config["seed"])
        model.load_state_dict(weights)
        return Run(model.eval(), vocabulary, config, described, step, frozenset(words.split()))


def _misfit(planned: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """Returns why the weights do not fit the planned model, or an empty string if they do."""
    for name in sorted(planned.keys() | weights.keys()):
        if name not in planned or name not in weights:
            return f"{name} is {'missing' if name in planned else 'not in the model'}"
        if planned[name].shape != weights[name].shape:
            return f"{name} has shape {tuple(weights[name].shape)}, but the model needs {tuple(planned[name].shape)}"
    # Tied weights have several names, but count once.
    needed = sum(weights[name].nbytes for name in {id(one): name for name, one in planned.items()}.values())
    storages = [weight.untyped_storage() for weight in weights.values()]
    held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    return f"the model needs {needed:,} bytes of weights, but the file holds {held:,}" if needed > held else ""


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Averages the weights of several checkpoints of a run, summing in float64 (Vaswani et al. 2017, section 6.1)."""
    states = [read(path)["state_dict"] for path in paths]
    return {
        name: (sum(state[name].double() for state in states) / len(states)).to(first.dtype) for name, first in states[0].items()
    }
