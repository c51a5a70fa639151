"""Traces one attention layer step by step from its input to its output, with numbers and shapes.

The inputs and outputs of modules and operations are captured in one teacher-forced pass. A template (transformer.j2, birnn.j2)
shows these tensors in tables, with explanations in prose. The result is Markdown: "# TITLE" starts a trace, and
"## TITLE: FORMULA" a step.

Shapes: B sentences, T queries, S keys, H heads (a BiRNN has no head dimension), K width of one head.
"""

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from torch import Tensor

from entente import escape
from entente.attention.record import KIND_NAMES, Call, Operation, capture, has_attention
from entente.errors import InputError
from entente.models.build import build
from entente.models.seq2seq import Seq2Seq, Sizes
from entente.models.transformer import Transformer
from entente.settings import BiRNNSettings, ModelSettings, TransformerSettings

DECIMALS = 3
COLUMNS = 8  # maximum number of columns that do not stand for tokens
LONGEST = 40  # maximum number of rows in a table, and of columns that stand for tokens
WIDEST = 80  # maximum width of prose on a terminal, in characters
GAP = "  "  # between the columns of a table on a terminal
SMALL = 8  # parameters with a larger dimension are not shown, and longer dot products are not written out
PLACES = {"encoder": ("encoder", "self"), "decoder": ("decoder", "self"), "cross": ("decoder", "cross")}  # (stack, sublayer)
SETTINGS: dict[str, ModelSettings] = {  # of the example models
    "transformer": TransformerSettings(d_model=4, n_heads=1, n_layers=1, d_ff=7),
    "birnn": BiRNNSettings(d_embedding=4, d_hidden=4, d_attention=3),
}


class Labels(NamedTuple):
    """The tokens of one sentence pair, padding included."""

    source: list[str]  # S
    read: list[str]  # T, the tokens that the decoder reads
    produced: list[str]  # T, the token that the decoder should produce after each token in `read`


def decimals(value: float) -> str:
    """Formats a number with DECIMALS decimal places, from 1e6 in scientific notation. An exact 0 and booleans have none."""
    if value == 0 or value is True:
        return str(int(value))
    if 1e6 <= abs(value) < math.inf:
        return f"{value:.1e}"
    return f"{value:z.{DECIMALS}f}"


def table(
    title: str,
    tensor: Tensor,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    hidden: Tensor | None = None,
    sums: bool = False,
) -> str:
    """Returns a title followed by a 2-D tensor as a Markdown table. rows, columns: labels, in Markdown. If `columns` is None,
    columns are numbered, and at most COLUMNS of them are shown. hidden: mask of the numbers to put in parentheses. sums:
    whether to add row and column sums, which include all entries."""
    height, width = tensor.shape
    high, wide = min(LONGEST, height), min(LONGEST if columns else COLUMNS, width)
    title += f", the first {high} of {height} rows" if high < height else ""
    title += f", the first {wide} of {width} columns" if wide < width else ""
    lines = [["", *map(str, (columns or range(1, width + 1))[:wide])]]
    for label, values in zip(rows[:high], tensor[:high, :wide].tolist(), strict=True):
        lines.append([label, *map(decimals, values)])
    for r, c in hidden[:high, :wide].nonzero().tolist() if hidden is not None else []:
        lines[r + 1][c + 1] = f"({lines[r + 1][c + 1]})"
    if sums:
        totals = ["sum", *map(decimals, tensor[:high].sum(1).tolist())]
        lines = [[*line, total] for line, total in zip(lines, totals, strict=True)]
        if height > 1:
            lines.append(["sum", *map(decimals, tensor[:, :wide].sum(0).tolist()), ""])
    head, *body = zip(*(_align(column, left=i == 0) for i, column in enumerate(zip(*lines, strict=True))), strict=True)
    return f"{title}\n\n{escape.table(head, body, left=1)}"


def _align(column: Sequence[str], left: bool) -> list[str]:
    widths = [cell_len(html.unescape(cell)) for cell in column]
    spaces = (" " * (max(widths) - width) for width in widths)
    return [cell + space if left else space + cell for cell, space in zip(column, spaces, strict=True)]


@dataclass
class View:
    """The recorded tensors of one attention layer, and the methods that templates call to show them."""

    calls: Mapping[str, Sequence[Call]]  # of all modules, by path
    path: str  # of the attention
    queries: Sequence[list[str]]  # labels, one list per sentence
    keys: Sequence[list[str]]
    head: int  # counted from 0, as is the step
    step: int

    def __post_init__(self) -> None:
        self.scores, self.mask = self.call("weights").inputs  # (B, [H,] T, S); the mask may be None
        self.letters = "B H T S" if self.scores.dim() == 4 else "B T S"
        self.product = self.operation("matmul", which=-1)  # weights times values
        self.row = min(1, len(self.queries[0]) - 1)  # the row worked out by hand; a causal mask leaves row 0 only one key
        self.all = range(len(self.keys))
        # All sentences share a causal mask, so showing it for the first sentence is enough.
        self.shown = range(1) if self.mask is not None and self.mask.dim() == 2 else self.all

    def call(self, part: str = "") -> Call:
        """Returns the call of the attention, or of its submodule `part`, at the step, or its only call."""
        calls = self.calls[f"{self.path}.{part}" if part else self.path]
        return calls[self.step if len(calls) > 1 else 0]

    def operation(self, name: str, part: str = "", which: int = 0) -> Operation:
        """Returns one of the calls of a torch operation in the attention or its submodule `part`."""
        return [operation for operation in self.call(part).operations if operation.name == name][which]

    def part(self, tensor: Tensor, letters: str, n: int = 0) -> Tensor:
        """Returns the matrix in a tensor's last two dimensions, for sentence n and the chosen head; other indices are 0."""
        return tensor[tuple({"B": n, "H": self.head}.get(letter, 0) for letter in letters.split()[:-2])]

    def show(
        self,
        name: str,
        tensor: Tensor,
        letters: str,
        sentences: Sequence[int] = (0,),
        rows: list[str] | None = None,
        masked: bool = False,
        sums: bool = False,
    ) -> str:
        """Returns a tensor as one table per sentence. letters: one per dimension, as in "B H T K"; T is labelled with the
        queries, S with the keys. masked: whether to put masked entries in parentheses."""
        *outer, row, column = letters.split()
        sizes = zip(letters.split(), tensor.shape, strict=True)
        shape = ", ".join(letter if letter == "1" else f"{letter} {size}" for letter, size in sizes)
        tables = []
        for n in sentences:
            title = [f"{name} ({shape})"]
            title += [f"sentence {n + 1}"] if "B" in outer and len(self.keys) > 1 else []
            title += [f"query {self.queries[n][0]}"] if "T" in outer else []
            title += [f"head {self.head + 1}"] if "H" in outer and tensor.size(1) > 1 else []
            labels = rows or {"T": self.queries[n], "S": self.keys[n], "1": ["every query"]}[row]
            columns = self.keys[n] if column == "S" else None
            hidden = ~self.part(self.mask.expand(self.scores.shape), letters, n) if masked and self.mask is not None else None
            part = self.part(tensor, letters, n)
            tables.append(table(", ".join(title), part, labels, columns, hidden, sums))
        return "\n\n".join(["", *tables, ""])

    def show_parameter(self, name: str, matrix: Tensor, bias: Tensor | None = None, label: str = "") -> str:
        """Returns a table of a matrix, with the bias (if any) as its last row, or "" if a dimension exceeds SMALL."""
        if max(matrix.shape) > SMALL:
            return ""
        rows = [label] if label else [str(i + 1) for i in range(len(matrix))]
        if bias is not None:
            matrix, rows = torch.cat([matrix, bias[None]]), [*rows, "b"]
        return f"\n\n{table(name, matrix, rows)}\n\n"


def operand(value: float) -> str:
    return re.sub("^(-.*)", r"(\1)", decimals(value))  # puts a negative number in parentheses


def products(left: Tensor, right: Tensor) -> str:  # a dot product, written out
    return " + ".join(f"{operand(a)}·{operand(b)}" for a, b in zip(left.tolist(), right.tolist(), strict=True))


def trace(
    model: Seq2Seq, src: Tensor, tgt: Tensor, labels: Sequence[Labels], kind: str | None, numbers: Sequence[int | None]
) -> str:
    """Returns a trace of one attention layer as Markdown. src (B, S), tgt (B, T): token ids of the source and of the decoder's
    input, padded on the right. kind: None means the attention to the source. numbers: those of the layer, the head and the
    step, counted from 1; None means 1. Raises InputError if the model lacks the chosen attention."""
    if not has_attention(model):
        raise InputError("checkpoint: this model has no attention; give another checkpoint")
    if isinstance(model, Transformer):
        kind, limits = kind or "cross", (len(model.encoder), model.n_heads, 1)
        kinds = [kind for kind, (side, sublayer) in PLACES.items() if sublayer in getattr(model, side)[0].present]
    else:
        kind, limits, kinds = kind or "alignment", (1, 1, tgt.size(1)), ["alignment"]
    if kind not in kinds:
        raise InputError(f"kind={kind}: this model has no such attention; choose from {', '.join(kinds)}")
    for name, number, last in zip(("layer", "head", "step"), numbers, limits, strict=True):
        if number is not None and not 1 <= number <= last:
            raise InputError(f"{name}={number}: choose from 1 to {last}")
    layer, head, step = (number or 1 for number in numbers)
    labels = [Labels(*([escape.markdown(escape.line(token)) for token in side] for side in label)) for label in labels]
    keys = [label.read if kind == "decoder" else label.source for label in labels]
    if kind == "alignment":
        path, around = "attention", ["residual"]  # a model with a maxout readout has no residual
        queries = [[f"s_{step - 1} → {label.produced[step - 1]}"] for label in labels]
    else:
        side, sublayer = PLACES[kind]
        path = f"{side}.{layer - 1}.{sublayer}_attention"
        around = [f"{side}.{layer - 1}.{part}.{sublayer}" for part in ("before", "residual", "after")]
        queries = [[f"{read} → {made}" for read, made in zip(label.read, label.produced, strict=True)] for label in labels]
    queries = keys if kind == "encoder" else queries
    calls = capture(model, src, tgt, operations=True)
    view = View(calls, path, queries, keys, head - 1, step - 1)
    template = ENVIRONMENT.get_template("birnn.j2" if kind == "alignment" else "transformer.j2")
    names = {"label": labels[0], "kind": kind, "title": KIND_NAMES[kind].capitalize(), "layer": layer}
    sizes = {"B": len(keys), "T": view.scores.size(-2), "S": view.scores.size(-1)}
    modules = {"model": model, "attention": view.call().module, "around": [calls[part][0] for part in around if part in calls]}
    text = template.render(view=view, **names, **sizes, **modules)
    paragraphs = re.split(r"\n\s*\n", text.strip())
    lines = "\n\n".join(part if part.startswith("|") else " ".join(part.split()) for part in paragraphs)
    steps = count(1)
    return re.sub("^## ", lambda _: f"## {next(steps)}. ", lines, flags=re.MULTILINE)


def examples(name: str, kind: str | None = None, numbers: Sequence[int | None] = (None, None, None)) -> str:
    """Returns traces of an untrained model of width 4 on two sentences. If `kind` is None, all kinds are traced, and prose that
    several traces share appears only in the first. numbers: as for `trace`."""
    source = ["<pad>", "le", "chat", "il", "dort"]
    target = ["<pad>", "<s>", "</s>", "the", "cat", "he", "is", "sleeping", "sleeps"]
    labels = [
        Labels(["le", "chat", "dort"], ["<s>", "the", "cat", "is", "sleeping"], ["the", "cat", "is", "sleeping", "</s>"]),
        Labels(["il", "dort", "<pad>"], ["<s>", "he", "sleeps", "<pad>", "<pad>"], ["he", "sleeps", "</s>", "<pad>", "<pad>"]),
    ]
    model = build(SETTINGS[name], Sizes(len(source), len(target), shared_vocab=False, pad_id=0, seed=1))
    generator = torch.Generator().manual_seed(199)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "before" in path or "norm" in path:
                continue  # keeps gain 1 and bias 0, so that norms are easy to check by hand
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator)).mul_(10).round_().div_(10)
            if "embedding" in path:
                parameter[0] = 0  # the embedding of padding, which torch also initialises to 0
    src = torch.tensor([[source.index(token) for token in label.source] for label in labels])
    tgt = torch.tensor([[target.index(token) for token in label.read] for label in labels])
    kinds = [kind] if kind else list(PLACES) if name == "transformer" else ["alignment"]
    traces = [trace(model, src, tgt, labels, kind, numbers) for kind in kinds]
    paragraphs: list[str] = []
    for paragraph in "\n\n".join(traces).split("\n\n"):
        if not paragraph.endswith(".") or paragraph not in paragraphs:  # prose is shown only once
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def show(text: str, console: Console) -> None:
    """Prints a trace without its Markdown syntax and the borders of tables."""
    for line in text.splitlines():
        style = "bold" if line.startswith("#") else "cyan" if line.startswith("By hand: ") else ""
        if not line.startswith("|"):
            console.print(Text(html.unescape(re.sub("^#+ ", "", line)), style), width=min(console.width, WIDEST))
        elif not line.startswith("| --- |"):
            console.print(Text(html.unescape(line[2:-2].replace(" | ", GAP))))


ENVIRONMENT = Environment(
    loader=PackageLoader("entente.attention", "trace"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.globals.update(decimals=decimals, operand=operand, products=products, SMALL=SMALL)
ENVIRONMENT.filters.update(decimals=decimals)
