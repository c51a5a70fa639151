"""What may be a name: of a run, a suite, a variant, a test set, a language. Each of them becomes part of a path, and comes from
a command line or from a file that someone else may have written."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from entente.errors import InputError

LONGEST = 200  # bytes: file systems take 255, and suffixes such as "-seed4294967295" or "@alone.pharaoh.new" are added
RULE = f"1 to {LONGEST} bytes, without / or \\ or control characters, and no dot at the beginning"
ODD = re.compile(r"[/\\]|\A\.|\A\Z")


def is_name(text: str) -> bool:
    """Whether a file or folder can be called so, on its own and with one of our suffixes."""
    return not ODD.search(text) and text.isprintable() and len(text.encode(errors="replace")) <= LONGEST


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"not a name ({RULE})")
    return text


def _split(text: str) -> str:
    if not is_name(text) or "@" in text:
        raise ValueError(f"not a name ({RULE}, and no @)")
    return text


def _folder(text: str) -> str:
    if not all(map(is_name, text.split("/"))):
        raise ValueError(f"not a folder below another (names of {RULE}, separated by /)")
    return text


Name = Annotated[str, AfterValidator(_name), Field(description=f"a name ({RULE})")]
Split = Annotated[
    str, AfterValidator(_split), Field(description=f"a name ({RULE}, and no @)")
]  # "test@alone" is another reading of test
Folder = Annotated[
    str,
    AfterValidator(_folder),
    Field(description=f"the name of a folder under output_dir (each part {RULE}; parts are separated by /)"),
]


def file_in(folder: Path, name: str, suffix: str) -> Path:
    """The path of the file `name` + `suffix` in a folder; an InputError where it would lie anywhere else."""
    if not is_name(name):
        raise InputError(f"{name}: no file can have this name; rename it to one of {RULE}")
    return folder / f"{name}{suffix}"
