"""What a trace is made of: steps with tables of numbers, and how a number, a sum and a shape are written.

Shapes: T queries, S keys.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["encoder", "decoder", "cross", "alignment"]


class Labels(NamedTuple):
    """The tokens of one sentence, padding included: those of the source (S), those that the decoder reads (T), and what it has
    to produce at each (T)."""

    source: list[str]
    read: list[str]
    produced: list[str]


@dataclass(frozen=True)
class Table:
    """The numbers of one tensor, of one sentence and head: `tensor` is 2-D, `shape` that of the whole, with its letters."""

    name: str
    shape: str
    where: str  # which part of the whole
    tensor: Tensor
    rows: list[str]
    columns: list[str]
    tokens: bool = False  # the columns are tokens
    hidden: Tensor | None = None  # True where masked, of the same size
    sums: bool = False  # of rows and columns

    @property
    def title(self) -> str:
        return f"{self.name}, {self.where}" if self.where else self.name


@dataclass(frozen=True)
class Step:
    """formula: what is computed. worked: one entry, by hand. sentences: what people ask here, answered."""

    title: str
    formula: str
    tables: list[Table]
    sentences: list[str]
    worked: str = ""

    @property
    def shapes(self) -> str:
        """Of the whole tensors, each once."""
        return ", ".join(dict.fromkeys(f"{table.name} ({table.shape})" for table in self.tables if table.shape))


@dataclass(frozen=True)
class Trace:
    title: str
    preface: list[str]
    steps: list[Step]

    def table(self, name: str, sentence: int = 0) -> Table:
        """The table of that name; of several sentences, that of the one given."""
        return [table for step in self.steps for table in step.tables if table.name == name][sentence]


def shape_of(tensor: Tensor, letters: str) -> str:
    return ", ".join(
        letter if letter == "1" else f"{letter} {size}" for letter, size in zip(letters.split(), tensor.shape, strict=True)
    )


def decimals(value: Any) -> str:
    """Three decimals; what is 0 exactly is written so."""
    if isinstance(value, Tensor):
        value = value.item()
    if isinstance(value, bool):
        return str(int(value))
    if value == 0:
        return "0"
    if abs(value) >= 1e6 and abs(value) != torch.inf:
        return f"{value:.1e}"
    text = f"{value:.3f}"
    return "0.000" if text == "-0.000" else text


def signed(value: Any) -> str:
    text = decimals(value)
    return f"({text})" if text.startswith("-") else text


def sum_of_products(one: Tensor, other: Tensor) -> str:
    return " + ".join(f"{signed(a)}·{signed(b)}" for a, b in zip(one, other, strict=True))
