"""Writes the best checkpoint of a run as a small file:  python scripts/publish_model.py outputs/RUN FILE

Weights are rounded to float16, and the file is compressed, to about half the size. `entente.load` and all commands take it.
"""

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entente import checkpoint
from entente.console import exit_codes
from entente.errors import InputError
from entente.files import open_atomic


def halved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights in float16. Tied parameters, which share memory, are stored once, and still are."""
    halves = {weight.data_ptr(): weight.half() for weight in weights.values()}
    return {name: halves[weight.data_ptr()] for name, weight in weights.items()}


def write_compressed(content: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint whose parts are compressed, which `torch.save` cannot do and `torch.load` reads."""
    torch.save(content, stored := io.BytesIO())
    with open_atomic(path) as file, zipfile.ZipFile(stored) as source, zipfile.ZipFile(file, "w") as target:
        for part in source.infolist():
            target.writestr(part, source.read(part), zipfile.ZIP_DEFLATED, compresslevel=9)


def publish(path: Path, file: Path) -> None:
    """Writes the checkpoint at `path`, without what only resuming needs."""
    content = checkpoint.read(path)
    kept = {key: content[key] for key in ("global_step", checkpoint.ENTRY)}
    write_compressed({**kept, "state_dict": halved(content["state_dict"])}, file)


if __name__ == "__main__":
    with exit_codes():
        if len(sys.argv) != 3:
            raise InputError("give a run and a file: python scripts/publish_model.py outputs/RUN FILE")
        publish(checkpoint.find(sys.argv[1]), file := Path(sys.argv[2]))
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
