"""A trace as steps with tables of numbers and sentences; how numbers and shapes are written, and how the templates that hold
all sentences become steps.

A template renders to paragraphs. "# TITLE" opens the trace and "## TITLE: FORMULA" a step; `show(NAME, ...)` puts the tables of
these names, where there are any, at a step; every other paragraph is one of the sentences.

Shapes: T queries, S keys.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor

SHOW = "%show"  # opens the paragraph that names tables
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
    worked: str = ""  # one entry, by hand

    @property
    def title(self) -> str:
        return f"{self.name}, {self.where}" if self.where else self.name


@dataclass(frozen=True)
class Step:
    """formula: what is computed. sentences: what people ask here, answered."""

    title: str
    formula: str
    tables: list[Table] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    @property
    def worked(self) -> list[str]:
        return [table.worked for table in self.tables if table.worked]

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


ENVIRONMENT = Environment(
    loader=PackageLoader("entente.attention", "trace"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.globals["show"] = lambda *names: f"{SHOW} {' | '.join(names)}"
ENVIRONMENT.globals["infinity"] = -torch.inf


def fill_template(template: str, tables: Mapping[str, Sequence[Table]], facts: Mapping[str, Any]) -> Trace:
    """The trace that a template describes, with the tables by name. RuntimeError if it does not show each of them once."""
    found = Trace("", [], [])
    shown: list[str] = []
    for paragraph in re.split(r"\n\s*\n", ENVIRONMENT.get_template(template).render(tables=tables, **facts)):
        text = " ".join(paragraph.split())
        if text.startswith("# "):
            found = Trace(text.removeprefix("# "), [], [])
        elif text.startswith("## "):
            heading, _, formula = text.removeprefix("## ").partition(": ")
            found.steps.append(Step(heading, formula))
        elif text.startswith(SHOW):
            names = [name for name in text.removeprefix(SHOW).strip().split(" | ") if name in tables]
            found.steps[-1].tables.extend(table for name in names for table in tables[name])
            shown += names
        elif text:
            (found.steps[-1].sentences if found.steps else found.preface).append(text)
    if sorted(shown) != sorted(tables):
        raise RuntimeError(f"{template} shows the tables {', '.join(sorted(shown))}, and there are {', '.join(sorted(tables))}")
    return found


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
