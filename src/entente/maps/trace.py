"""One attention, step by step, with its numbers and shapes: from what enters the layer to what leaves it.

Nothing is computed again for showing: one teacher-forced pass in evaluation mode is watched, modules by hooks and what happens
between them (Q K^T before the scale, the tanh of the additive score, weights times values) by a `TorchFunctionMode`. What was
expected and not seen is an error. Nothing stays in the model.

Shapes: B sentences, T queries, S keys, H heads, D width of the Transformer, K width of a head (d_k); of the BiRNN: Q width of
the decoder's state, M of the encoder's output, A of the additive score.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import torch
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table as Grid
from rich.text import Text
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from entente.errors import InputError
from entente.maps.record import KIND_NAMES
from entente.models import BiRNN, Seq2Seq, Transformer
from entente.models.attention import (
    AdditiveAttention,
    AdditiveScore,
    BilinearAttention,
    BilinearScore,
    DotProductAttention,
    MultiHeadAttention,
    NoAttention,
)
from entente.models.seq2seq import Residual, evaluating, pad
from entente.models.transformer import Block

Kind = Literal["encoder", "decoder", "cross", "alignment"]
SMALL = 8  # a width up to which matrices are shown whole and numbers are worked out by hand
FEW = 5  # keys of a row whose softmax is written out
LONGEST = 40  # rows of a table, and columns that are tokens
WIDEST = 100  # characters of a line of text
GAP = 2  # characters between columns


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


# What the model does, seen.


class Call(NamedTuple):
    """Of a module."""

    inputs: tuple[Any, ...]
    output: Any


class Operation(NamedTuple):
    """Of torch, by the module at `path` itself."""

    path: str
    name: str
    inputs: tuple[Any, ...]
    output: Any


class Seen(TorchFunctionMode):
    """Every call of the watched modules, and the operations inside one call of the attention (`call`, counted from 0: a
    recurrent decoder calls its attention once a step)."""

    def __init__(self, attention: str, call: int) -> None:
        super().__init__()
        self.attention, self.call = attention, call
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        self._operations: list[Operation] = []
        self._inside: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self._inside and len(self._calls[self.attention]) == self.call and self._inside[0] == self.attention:
            name = getattr(func, "__name__", "").strip("_")  # of an operator too: __matmul__
            self._operations.append(Operation(self._inside[-1], name, args, output))
        return output

    def enter(self, path: str) -> Callable[..., None]:
        return lambda module, inputs: self._inside.append(path)

    def leave(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self._inside.pop()
            self._calls[path].append(Call(inputs, output))

        return hook

    def calls(self, path: str) -> list[Call]:
        if not self._calls[path]:
            raise RuntimeError(f"{path} was not seen: the pass did not call it, or it is compiled")
        return self._calls[path]

    def module(self, path: str) -> Call:
        """The call of a module that is part of the attention's call, or its only one."""
        calls = self.calls(path)
        if len(calls) != 1 and len(calls) <= self.call:
            raise RuntimeError(f"{path} was seen {len(calls)} times, and the attention is wanted at its call {self.call + 1}")
        return calls[self.call if len(calls) > 1 else 0]

    def operations(self, path: str, name: str) -> list[Operation]:
        return [operation for operation in self._operations if (operation.path, operation.name) == (path, name)]

    def operation(self, path: str, name: str, which: int = 0) -> Operation:
        found = self.operations(path, name)
        if not -len(found) <= which < len(found):
            raise RuntimeError(f"{name} was not seen in {path}: it computes in another way than is described here")
        return found[which]


@contextmanager
def _watched(model: nn.Module, paths: Sequence[str], seen: Seen) -> Iterator[None]:
    handles: list[Any] = []
    try:
        for path, module in model.named_modules(remove_duplicate=False):
            if any(path == wanted or path.startswith(f"{wanted}.") for wanted in paths):
                handles.append(module.register_forward_pre_hook(seen.enter(path)))
                handles.append(module.register_forward_hook(seen.leave(path)))
        with seen:
            yield
    finally:
        for handle in handles:
            handle.remove()


def kinds(model: Seq2Seq) -> list[Kind]:
    """The attentions that a model has."""
    if isinstance(model, Transformer):
        return ["encoder", "decoder", "cross"] if "cross" in cast(Block, model.decoder[0]).residual else ["encoder", "decoder"]
    return ["alignment"] if isinstance(model, BiRNN) and not isinstance(model.attention, NoAttention) else []


def trace(
    model: Seq2Seq,
    src: Tensor,
    tgt: Tensor,
    labels: Sequence[Labels],
    kind: Kind | None = None,
    layer: int | None = None,
    head: int | None = None,
    step: int | None = None,
) -> Trace:
    """src (B, S) and tgt (B, T), as the decoder reads it: token ids, padded on the right. kind: null is the attention to the
    source. layer, head, step: from 1. Modes, gradients and random numbers stay as they were. InputError where the model has no
    such attention, RuntimeError where one was not seen."""
    plain: Seq2Seq = getattr(model, "_orig_mod", model)  # hooks see nothing inside a compiled module
    there = kinds(plain)
    if not there:
        raise InputError("checkpoint: this model has no attention; give another checkpoint")
    chosen: Kind = kind or ("cross" if isinstance(plain, Transformer) else "alignment")
    if chosen not in there:
        raise InputError(f"kind={chosen}: this model has no such attention; choose from {', '.join(there)}")
    if isinstance(plain, Transformer):
        if step is not None:
            raise InputError(f"step={step}: a Transformer takes all target steps at once; leave it null")
        stack = plain.encoder if chosen == "encoder" else plain.decoder
        most = {"layer": (layer, len(stack)), "head": (head, plain.n_heads)}
    else:
        most = {"layer": (layer, 1), "head": (head, 1), "step": (step, tgt.size(1))}
    for name, (number, last) in most.items():
        if number is not None and not 1 <= number <= last:
            raise InputError(f"{name}={number}: choose from 1 to {last}")
    layer_index, head_index, i = ((number or 1) - 1 for number in (layer, head, step))
    if isinstance(plain, Transformer):
        side = "encoder" if chosen == "encoder" else "decoder"
        sublayer = "cross" if chosen == "cross" else "self"
        block = f"{side}.{layer_index}"
        attention = f"{block}.{sublayer}_attention"
        around = {part: f"{block}.{part}.{sublayer}" for part in ("before", "residual", "after")}
        seen = Seen(attention, 0)
        _pass(plain, src, tgt, [attention, *around.values()], seen)
        return _Heads(plain, seen, labels, chosen, layer_index, head_index, around).told()
    seen = Seen("attention", i)
    _pass(plain, src, tgt, ["attention", *(["residual"] if hasattr(plain, "residual") else [])], seen)
    return _Alignment(cast(BiRNN, plain), seen, labels, i).told()


def _pass(model: Seq2Seq, src: Tensor, tgt: Tensor, paths: Sequence[str], seen: Seen) -> None:
    device = model.output.weight.device
    with evaluating(model), torch.no_grad(), torch.autocast(device.type, enabled=False), _watched(model, paths, seen):
        model(src.to(device), tgt.to(device))


# What is said of it.

BATCH = (
    "Is there a loop over the batch? No. The first dimension of each tensor is the batch, here B = {B}. Each step below is one "
    "operation on all of it, and each sentence is computed by itself{but}."
)
SINGLE = "a distribution over the keys: no weight is negative, and they sum to 1"
WEIGHT_MEANS = (
    "A weight says how much of a value goes into the sum. It is not the probability that the model is right, and not by itself "
    "an explanation of what the model says."
)
INFINITE = (
    "A hidden score becomes -inf before the softmax, so that its weight is exactly 0 and the other weights of its row still "
    "sum to 1. Weights set to 0 after the softmax would leave a sum below 1."
)


class _Story:
    """What both models' attentions have in common."""

    def __init__(self, seen: Seen, labels: Sequence[Labels], head: int, n_heads: int) -> None:
        self.seen, self.labels, self.head, self.n_heads = seen, labels, head, n_heads
        self.weights_path = f"{seen.attention}.weights"
        call = seen.module(self.weights_path)
        self.scores: Tensor = call.inputs[0]  # (B, [H,] T, S)
        self.mask: Tensor | None = call.inputs[1]
        self.weights: Tensor = call.output
        self.values: Tensor = seen.operation(seen.attention, "matmul", -1).inputs[1]
        self.summed: Tensor = seen.operation(seen.attention, "matmul", -1).output
        if not torch.equal(seen.operation(seen.attention, "matmul", -1).inputs[0], self.weights):
            raise RuntimeError(f"{seen.attention}: what the values were multiplied by are not the weights seen")
        self.n = len(labels)

    def queries(self, n: int) -> list[str]:
        raise NotImplementedError("an abstract story")

    def keys(self, n: int) -> list[str]:
        raise NotImplementedError("an abstract story")

    def part(self, tensor: Tensor, letters: str, n: int) -> Tensor:
        """A tensor cut to its last two dimensions: sentence n, the chosen head, elsewhere the first."""
        for letter in letters.split()[:-2]:
            tensor = tensor[{"B": n, "H": self.head}.get(letter, 0)]
        return tensor.detach().cpu().clone()

    def table(
        self,
        name: str,
        tensor: Tensor,
        letters: str,
        rows: list[str],
        columns: list[str] | None = None,
        n: int = 0,
        **more: Any,
    ) -> Table:
        """letters: one for each dimension, as "B H T K". columns: tokens, or None for numbers from 1."""
        words = [
            f"sentence {n + 1}" if "B" in letters.split() and self.n > 1 else "",
            f"head {self.head + 1}" if "H" in letters.split() and self.n_heads > 1 else "",
        ]
        names = columns or [str(i + 1) for i in range(tensor.size(-1))]
        part = self.part(tensor, letters, n)
        if (len(rows), len(names)) != tuple(part.shape):
            raise RuntimeError(f"{name}: {tuple(part.shape)} where labels are {len(rows)} x {len(names)}")
        where = ", ".join(word for word in words if word)
        return Table(name, _shape(tensor, letters), where, part, rows, names, columns is not None, **more)

    def all(self, name: str, tensor: Tensor, letters: str, **more: Any) -> list[Table]:
        """Queries by keys, of every sentence."""
        return [
            self.table(name, tensor, letters, self.queries(n), self.keys(n), n, **{k: v[n] for k, v in more.items()})
            for n in range(self.n)
        ]

    def hidden(self) -> list[Tensor | None]:
        """Of every sentence, which scores are masked."""
        if self.mask is None:
            return [None] * self.n
        letters = "B H T S" if self.scores.dim() == 4 else "B T S"
        return [~self.part(self.mask.expand(self.scores.shape), letters, n) for n in range(self.n)]

    @property
    def shown(self) -> range:
        """The sentences whose scores and mask are shown: a causal mask is one for all."""
        return range(1 if self.mask is not None and self.mask.dim() == 2 else self.n)

    @property
    def letters(self) -> str:
        return "B H T S" if self.scores.dim() == 4 else "B T S"

    @property
    def row(self) -> int:
        """The query that is worked out by hand: the first of a causal mask sees one key only."""
        return min(1, len(self.queries(0)) - 1)

    @property
    def normal(self) -> bool:
        return bool(self.softmax.softmax == "keys")

    @property
    def softmax(self) -> Any:
        raise NotImplementedError("an abstract story")

    @property
    def batch(self) -> str:
        but = "" if self.softmax.softmax != "batch" else ", but for the softmax of this model, which runs over the batch"
        return BATCH.format(B=self.n, but=but)

    def masking(self, sentences: list[str]) -> Step:
        """What is hidden, and what hiding does."""
        if self.mask is None:
            return Step("The mask", "no mask", [], sentences)
        masked = self.seen.operation(self.weights_path, "masked_fill").output
        letters = {2: "T S", 3: "B 1 S", 4: "B 1 1 S"}[self.mask.dim()]
        tables = []
        for n in self.shown:
            rows = ["every query"] if "1" in letters.split() else self.queries(n)
            tables.append(self.table("mask", self.mask, letters, rows, self.keys(n), n))
        tables += self.all("masked scores", masked, self.letters, hidden=self.hidden())[: len(self.shown)]
        value = self.softmax.mask_value
        formula = "score where the mask is 1, else " + ("-inf" if value == -torch.inf else f"{value:g}")
        effect = INFINITE
        if not self.normal:
            formula = "score where the mask is 1, else the lowest finite number"
            effect = (
                "A column can be hidden whole, and a softmax over nothing but -inf is undefined. So hidden scores are the "
                "lowest finite number here, and their weights are set to 0 after the softmax."
            )
            if value != -torch.inf:
                formula = f"score where the mask is 1, else {value:g}"
                effect = (
                    f"A hidden score becomes {value:g} in this model (mask_value); its weight is set to 0 after the softmax."
                )
        elif value != -torch.inf:
            effect = (
                f"A hidden score becomes {value:g} in this model (mask_value), not -inf: its weight is small at best, not 0, "
                "and what should be hidden leaks through."
            )
        return Step("The mask", formula, tables, [*sentences, effect, "In brackets: what is hidden."])

    def softmaxing(self) -> Step:
        """Scores to weights."""
        name = self.softmax.softmax
        tables = self.all("weights", self.weights, self.letters, hidden=self.hidden(), sums=[True] * self.n)
        if name == "keys":
            sentences = [
                "Over which axis does the softmax run? Over the keys: each query's row by itself.",
                f"Is a row a probability? It is {SINGLE}. A column need not sum to 1: many queries may look at one key, or "
                "none.",
                WEIGHT_MEANS,
            ]
            return Step("The softmax", "weights = softmax(scores) along each row", tables, sentences, self._softmax_by_hand())
        if name == "queries":
            sentences = [
                "The softmax of this model runs over the queries (softmax: queries), a mistake to study: each column that is "
                "not hidden sums to 1, the rows do not. A row is no distribution: one query may receive much more than another."
            ]
            return Step("The softmax", "weights = softmax(scores) along each column", tables, sentences)
        alone = " There is one sentence only, so each weight that is not hidden is 1." if self.n == 1 else ""
        sentences = [
            "The softmax of this model runs over the batch (softmax: batch), a mistake to study: the weights at one place of "
            f"all sentences sum to 1, and a sentence's weights depend on its neighbours in the batch. Rows do not sum to "
            f"1.{alone}"
        ]
        return Step("The softmax", "weights = softmax(scores) across the sentences", tables, sentences)

    def _softmax_by_hand(self) -> str:
        r = self.row
        weights = self.part(self.weights, self.letters, 0)[r]
        scores = self.part(self.seen.operation(self.weights_path, "softmax").inputs[0], self.letters, 0)[r]
        if len(scores) > FEW:
            return ""
        sum_ = " + ".join(f"exp({_number(s)})" for s in scores)
        return f"weight[{self.queries(0)[r]}, {self.keys(0)[0]}] = exp({_number(scores[0])}) / ({sum_}) = {_number(weights[0])}"

    def averaging(self, name: str, values: str, letters: str, sentences: list[str]) -> Step:
        """Weights times values."""
        r = self.row
        tables = [self.table(name, self.summed, letters, self.queries(0))]
        weights, result = self.part(self.weights, self.letters, 0)[r], self.part(self.summed, letters, 0)[r]
        column = self.part(self.values, letters, 0)[:, 0]
        worked = ""
        if len(weights) <= FEW:
            worked = f"({name})[{self.queries(0)[r]}, 1] = {_products(weights, column)} = {_number(result[0])}"
        if self.normal:
            mean = f"Each row is an average of the rows of {values}, weighted by the query's row of weights."
        else:
            mean = (
                f"Each row is a sum of the rows of {values}, weighted by the query's row of weights: no average, since the "
                "weights do not sum to 1."
            )
        return Step("The weighted sum", f"weights x {values}", tables, [mean, *sentences], worked)


class _Heads(_Story):
    """An attention of the Transformer, and what stands around it in its block."""

    def __init__(
        self,
        model: Transformer,
        seen: Seen,
        labels: Sequence[Labels],
        kind: Kind,
        layer: int,
        head: int,
        around: dict[str, str],
    ) -> None:
        self.model, self.kind, self.layer = model, kind, layer
        super().__init__(seen, labels, head, model.n_heads)
        self.attention = cast(MultiHeadAttention, model.get_submodule(seen.attention))
        self.before, self.residual, self.after = (model.get_submodule(around[k]) for k in ("before", "residual", "after"))
        self.around = around
        self.side = "encoder" if kind == "encoder" else "decoder"
        self.q: Tensor = seen.module(f"{seen.attention}.score").inputs[0]  # (B, H, T, K)
        self.k: Tensor = seen.module(f"{seen.attention}.score").inputs[1]  # (B, H, S, K)
        self.x: Tensor = seen.module(around["before"]).inputs[0]  # (B, T, D)
        self.h: Tensor = seen.module(around["before"]).output
        self.source: Tensor = seen.module(f"{seen.attention}.key").inputs[0]  # (B, S, D): h, or the encoder's output

    @property
    def softmax(self) -> Any:
        return self.attention.weights

    def queries(self, n: int) -> list[str]:
        label = self.labels[n]
        if self.kind == "encoder":
            return label.source
        return [f"{read} → {produced}" for read, produced in zip(label.read, label.produced, strict=True)]

    def keys(self, n: int) -> list[str]:
        return self.labels[n].read if self.kind == "decoder" else self.labels[n].source

    def is_projected(self, name: str) -> bool:
        return isinstance(getattr(self.attention, name), nn.Linear)

    def told(self) -> Trace:
        d, k, h = self.x.size(-1), self.q.size(-1), self.n_heads
        t, s = self.scores.shape[-2:]
        which = f"{self.side} layer {self.layer + 1} of {len(getattr(self.model, self.side))}, head {self.head + 1} of {h}"
        letters = (
            f"B {self.n}: sentences. T {t}: queries. S {s}: keys. D {d}: width of the model. H {h}: heads. K {k}: width of a "
            "head, d_k."
        )
        preface = ["A Transformer in evaluation mode (dropout does nothing), all target tokens read in one pass.", letters]
        if self.kind != "encoder":
            preface.append(
                f'A row "{self.queries(0)[-1]}" of the decoder is the position that reads "{self.labels[0].read[-1]}" and has '
                f'to produce "{self.labels[0].produced[-1]}".'
            )
        if self.n > 1:
            preface.append(
                "Sentence 2 is shorter and padded; what differs by sentence is shown of both, the rest of sentence 1."
            )
        steps = [
            self.entering(),
            self.projections(),
            self.projected(),
            *self.scoring(),
            self.masking(self.about_mask()),
            self.softmaxing(),
            self.averaging("weights x V", "V", "B H T K", []),
            self.leaving(),
            self.adding(),
            self.normed(),
        ]
        return Trace(f"{KIND_NAMES[self.kind].capitalize()}, {which}", preface, steps)

    def entering(self) -> Step:
        """The layer's input."""
        below = f"what {self.side} layer {self.layer} gave"
        if self.layer == 0:
            place = "" if self.model.positions == "none" else " and its position"
            below = f"each token's embedding{place}"
        if self.kind == "cross":
            below = "the decoder's rows as its self-attention left them"
        tables = [self.table("x", self.x, "B T D", self.queries(0))]
        formula = "x"
        sentences = [f"x is {below}: one row for each token, D numbers wide.", self.batch]
        if isinstance(self.before, nn.LayerNorm):
            tables.append(self.table("h", self.h, "B T D", self.queries(0)))
            formula = "h = LayerNorm(x)"
            sentences.insert(1, "The norm stands in front of the attention (pre-norm, Xiong et al. 2020), not behind it.")
        else:
            sentences.insert(1, "No norm stands in front of the attention, so h below is x itself.")
        if self.kind == "cross":
            tables.append(self.table("memory", self.source, "B S D", self.keys(0)))
            formula += ", memory = the encoder's output"
        return Step("The input", formula, tables, sentences)

    def projections(self) -> Step:
        """The weights' shapes, and the weights where they are small."""
        tables = []
        k = self.q.size(-1)
        learned = []
        for name in ("query", "key", "value"):
            module = getattr(self.attention, name)
            if isinstance(module, nn.Linear):
                learned.append(f"W_{name[0]} ({module.in_features} x {module.out_features})")
                if module.in_features <= SMALL:
                    part = slice(self.head * k, (self.head + 1) * k)
                    tables.append(self._weights(f"W_{name[0]}", module.weight[part], module.bias[part]))
        absent = [f"W_{name[0]}" for name in ("query", "key", "value") if not self.is_projected(name)]
        sentences = [
            "Where do W_q, W_k and W_v sit? Not in equation 1 of Vaswani et al. 2017, which takes Q, K and V as given and has "
            "no parameters, but in the multi-head layer around it (section 3.2.2): the layer makes Q, K and V inside."
        ]
        if absent:
            sentences = [f"This model has no {', '.join(absent)} (projections): what enters is taken as it is."]
        if self.n_heads > 1:
            sentences.append(
                f"All heads lie side by side in one matrix, {self.n_heads} x {k} columns wide; head {self.head + 1} has "
                f"columns {self.head * k + 1} to {(self.head + 1) * k}."
            )
        shapes = ", ".join(learned) or "none"
        return Step("The projections' weights", f"{shapes}, W_o ({self._width()} x {self.x.size(-1)})", tables, sentences)

    def _width(self) -> int:
        return self.attention.out.in_features

    def _weights(self, name: str, weight: Tensor, bias: Tensor) -> Table:
        """As it stands in x W + b: torch keeps its transpose."""
        both = torch.cat([weight.T, bias[None]]).detach().cpu()
        head = f"head {self.head + 1}" if self.n_heads > 1 and name != "W_o" else ""
        return Table(
            f"{name}, b", "", head, both, [*map(str, range(1, len(both))), "b"], [str(i + 1) for i in range(both.size(1))]
        )

    def projected(self) -> Step:
        """Q, K, V."""
        rows = {"Q": self.queries(0), "K": self.keys(0), "V": self.keys(0)}
        letters = {"Q": "B H T K", "K": "B H S K", "V": "B H S K"}
        tensors = {"Q": self.q, "K": self.k, "V": self.values}
        tables = [self.table(name, tensors[name], letters[name], rows[name]) for name in tensors]
        over = {"Q": "h", "K": "memory" if self.kind == "cross" else "h", "V": "memory" if self.kind == "cross" else "h"}
        terms = []
        for name, module in (("Q", "query"), ("K", "key"), ("V", "value")):
            small = module[0]
            terms.append(
                f"{name} = {over[name]} W_{small} + b_{small}" if self.is_projected(module) else f"{name} = {over[name]}"
            )
        t, s, k = *self.scores.shape[-2:], self.q.size(-1)
        if self.kind == "cross":
            sentences = [
                'Is the encoder\'s output, handed over as "key", already K? No. What is handed over is the memory; K = memory '
                "W_k and V = memory W_v are made inside this layer, in each decoder layer by its own matrices.",
                f"T = {t} queries and S = {s} keys may differ in number. Keys and values must have the same S, query and key "
                f"the same width d_k = {k}.",
            ]
            if not (self.is_projected("key") and self.is_projected("value")):
                sentences[0] = "What is handed over as key and value is the encoder's output, the memory."
        else:
            sentences = [
                "Why do Q, K and V differ, though their input is one? Three different learned matrices multiply it. So the "
                "scores need not be symmetric, and a token need not find itself most similar."
            ]
            if not self.is_projected("query") and not self.is_projected("key"):
                sentences = ["Q and K are the same rows here, with no matrix between: nothing tells asking from being asked."]
            elif not all(map(self.is_projected, ("query", "key", "value"))):
                sentences = ["Q, K and V differ where a learned matrix makes them; what has none is the input itself."]
        worked = ""
        if self.is_projected("query") and self.x.size(-1) <= SMALL:
            r, j = self.row, self.head * self.q.size(-1)
            layer = cast(nn.Linear, self.attention.query)
            row = self.part(self.h, "B T D", 0)[r]
            products = _products(row, layer.weight[j].detach().cpu())
            result = self.part(self.q, "B H T K", 0)[r, 0]
            worked = f"Q[{rows['Q'][r]}, 1] = {products} + {_signed(layer.bias[j])} = {_number(result)}"
        return Step("Queries, keys and values", ", ".join(terms), tables, sentences, worked)

    def scoring(self) -> list[Step]:
        """How a query is compared with a key."""
        path = f"{self.seen.attention}.score"
        score = self.attention.score
        if isinstance(score, AdditiveScore):
            return self._additive(path)
        bilinear = isinstance(score, BilinearScore)
        products = self.seen.operation(path, "matmul", 1 if bilinear else 0)
        scaled = self.seen.operation(path, "mul")
        sentences = [
            "One dot product for each query (row) and each key (column). All sentences and heads are one batched matrix "
            "product."
        ]
        if bilinear:
            sentences.append(
                "This model compares by q^T M k, with a learned matrix M for each head (Luong et al. 2015, general), where "
                "Vaswani et al. 2017 have the plain dot product."
            )
        name = "Q M K^T" if bilinear else "Q K^T"
        tables = self.all(name, products.output, "B H T S")[: len(self.shown)]
        worked = ""
        r, k = self.row, self.q.size(-1)
        left = self.part(products.inputs[0], "B H T K", 0)[r]
        if k <= SMALL:
            terms = _products(left, self.part(self.k, "B H S K", 0)[0])
            worked = f"({name})[{self.queries(0)[r]}, {self.keys(0)[0]}] = {terms} = {_number(tables[0].tensor[r, 0])}"
        if bilinear:
            moved = self.table("Q M", products.inputs[0], "B H T K", self.queries(0))
            return [Step("The scores", "(Q M) K^T", [moved, *tables], sentences, worked), self._scale(name, scaled)]
        return [Step("The scores", name, tables, sentences, worked), self._scale(name, scaled)]

    def _scale(self, name: str, scaled: Operation) -> Step:
        k, by = self.q.size(-1), scaled.inputs[1]
        scale = self.attention.score.scale
        tables = [self.table("scaled scores", scaled.output, "B H T S", self.queries(0), self.keys(0))]
        width = f"What is d_k? The width of one head's queries and keys, K = {k}, not the number of tokens."
        if scale == "d_k":
            formula = f"{name} / sqrt(d_k) = {name} x {by:.3f}, with d_k = {k}"
            why = (
                "Why its root? If the terms of q and k are independent, of mean 0 and variance 1, their dot product has "
                "variance d_k (Vaswani et al. 2017, footnote 4). Divided by sqrt(d_k), it has variance 1, whatever the width; "
                "scores that are large drive the softmax to where its gradients are small."
            )
            return Step("The scale", formula, tables, [width, why])
        if scale == "none":
            why = (
                f"This model does not scale (scale: none): the scores go on as they are. {width} Vaswani et al. 2017 divide by "
                "its root, since the variance of a dot product of d_k terms of variance 1 is d_k (footnote 4)."
            )
            return Step("The scale", f"none: {name} x {by:g}", tables, [why])
        letters = (
            {2: "T 1", 4: "B 1 1 1" if by.dim() == 4 and by.size(-2) == 1 else "B 1 T 1"} if isinstance(by, Tensor) else {}
        )
        if letters and by.dim() in letters:
            rows = self.queries(0) if by.size(-2) > 1 or letters[by.dim()] == "T 1" else ["every query"]
            tables.insert(0, self.table("factor", by, letters[by.dim()], rows))
        why = (
            "This model divides by the root of the number of keys that a query may see (scale: n_keys), a misreading of d_k. "
            f"{width} The variance of a dot product grows with that width (Vaswani et al. 2017, footnote 4), not with the "
            "sentence."
        )
        return Step("The scale", f"{name} / sqrt(number of keys to be seen)", tables, [why])

    def _additive(self, path: str) -> list[Step]:
        added, tanh = self.seen.operation(path, "add"), self.seen.operation(path, "tanh")
        rows = self.keys(0)
        first = self.queries(0)[0]
        tables = [
            replace(self.table(name, tensor, "B H T S K", rows), where=self._first(first))
            for name, tensor in (("q + k", added.output), ("tanh(q + k)", tanh.output))
        ]
        vectors = cast(AdditiveScore, self.attention.score).weight
        v = vectors[self.head][None].detach().cpu()
        if v.size(-1) <= SMALL:
            tables.append(Table("v", _shape(vectors, "H K"), "", v, ["v"], [str(i + 1) for i in range(v.size(-1))]))
        scores = self.all("v^T tanh(q + k)", self.scores, "B H T S")
        return [
            Step(
                "The scores",
                "v^T tanh(q + k)",
                [*tables, *scores],
                [
                    "This model compares by a small network (score: additive; Bahdanau et al. 2015) where Vaswani et al. 2017 "
                    "have the dot product: q and k are added, tanh bounds each term between -1 and 1, and v weighs the terms.",
                    "It costs T S K tanh for each head, where Q K^T is one matrix product.",
                ],
            ),
            Step("The scale", "none", [], ["The additive score needs no scale: tanh bounds each term, whatever the width."]),
        ]

    def _first(self, query: str) -> str:
        where = [f"query {query}"]
        if self.n > 1:
            where.insert(0, "sentence 1")
        if self.n_heads > 1:
            where.append(f"head {self.head + 1}")
        return ", ".join(where)

    def about_mask(self) -> list[str]:
        """Which mask does what."""
        if self.kind == "decoder":
            if self.mask is None:
                return [
                    "This model has no causal mask (mask_future: false): each position sees the tokens that it has to predict, "
                    "and those behind it. Padding of the target is not hidden either."
                ]
            return [
                "Which mask is it? The causal mask: a position may look at itself and at what stands before it. What comes "
                "later is known in training but not when translating.",
                "Why is the target's padding not masked? It need not be: padding stands on the right, so it is in the future "
                "of every real token, which the causal mask hides. Rows of padding are computed all the same, and the loss "
                "ignores them.",
            ]
        if not self.model.mask_padding:
            return ["This model does not hide the source's padding (mask_padding: false): the mask is 1 everywhere."]
        return [
            "Which mask is it? The source's padding mask, in the encoder and in cross-attention: every query may look at every "
            "real source token, and none at <pad>. It is one row, the same for all queries.",
            *(
                ["A row of padding is computed too; no real token ever looks at it."]
                if self.kind == "encoder" and self.n > 1
                else []
            ),
        ]

    def leaving(self) -> Step:
        """The heads together, and W_o."""
        path = f"{self.seen.attention}.out"
        call = self.seen.module(path)
        layer = self.attention.out
        tables, sentences = [], []
        if self.n_heads > 1:
            tables.append(self.table("all heads", call.inputs[0], "B T HK", self.queries(0)))
            sentences.append(
                f"The {self.n_heads} heads stand side by side again, HK = {layer.in_features} wide, and W_o mixes what they "
                "found."
            )
        else:
            sentences.append("With several heads, they would stand side by side here, and W_o would mix what they found.")
        if max(layer.in_features, layer.out_features) <= SMALL:
            tables.append(self._weights("W_o", layer.weight, layer.bias))
        tables.append(self.table("out", call.output, "B T D", self.queries(0)))
        name = "all heads" if self.n_heads > 1 else "(weights x V)"
        return Step("The output projection", f"out = {name} W_o + b_o", tables, sentences)

    def adding(self) -> Step:
        """The residual connection, or what stands in its place."""
        call = self.seen.module(self.around["residual"])
        after = self.table("after the residual", call.output, "B T D", self.queries(0))
        if cast(Residual, self.residual).keep:
            why = (
                "Why x +? So the row keeps what it was: its own token and place, the query. Values alone would say only what "
                "was looked at, not who looked."
            )
            sentences = [why]
            if self.kind == "cross":
                sentences.append("In cross-attention, without it the row would be made only of source vectors.")
            if isinstance(self.before, nn.LayerNorm):
                sentences.append("It is x as it came in that is kept, not h: this norm is only for what the attention reads.")
            return Step("The residual connection", "x + out", [after], sentences)
        lost = "Only out goes on, and the row forgets its own token and place but for what attention found there."
        if self.kind == "cross":
            lost = "Only out goes on: the row is made only of source vectors, and of what asked only the weights are left."
        return Step(
            "The residual connection",
            "none: out alone",
            [after],
            [f"This sublayer has no residual connection (residual). {lost}"],
        )

    def normed(self) -> Step:
        """The norm behind, where there is one."""
        call = self.seen.module(self.around["after"])
        inner = "x + out" if cast(Residual, self.residual).keep else "out"
        if isinstance(self.after, nn.LayerNorm):
            table = self.table("after the norm", call.output, "B T D", self.queries(0))
            return Step(
                "The norm",
                f"LayerNorm({inner})",
                [table],
                ["The norm stands behind the residual (post-norm), as in Vaswani et al. 2017: it touches the row itself."],
            )
        if isinstance(self.before, nn.LayerNorm):
            return Step(
                "The norm",
                f"none here: {inner} goes on",
                [],
                [
                    "In a pre-norm model nothing is normed behind the residual: the next sublayer norms its own input, as in "
                    "step 1, and one norm more stands behind the last layer."
                ],
            )
        return Step("The norm", f"none: {inner} goes on", [], ["This model has no norm at all (norm: none)."])


class _Alignment(_Story):
    """The attention of the BiRNN at one target step."""

    def __init__(self, model: BiRNN, seen: Seen, labels: Sequence[Labels], step: int) -> None:
        self.model, self.step = model, step
        super().__init__(seen, labels, head=0, n_heads=1)
        self.attention = model.attention
        self.query: Tensor = seen.module("attention").inputs[0]  # (B, 1, Q)
        self.key: Tensor = seen.module("attention").inputs[1].key  # (B, S, A), or as wide as the query

    @property
    def softmax(self) -> Any:
        return cast(AdditiveAttention, self.attention).weights

    def queries(self, n: int) -> list[str]:
        return [f"s_{self.step} → {self.labels[n].produced[self.step]}"]

    def keys(self, n: int) -> list[str]:
        return self.labels[n].source

    def told(self) -> Trace:
        q, m, s = self.query.size(-1), self.values.size(-1), self.values.size(-2)
        steps = len(self.labels[0].read)
        a = f" A {self.key.size(-1)}: width of the comparison." if isinstance(self.attention, AdditiveAttention) else ""
        i = self.step + 1
        preface = [
            f"A BiRNN in evaluation mode (dropout does nothing). Target step {i} of {steps}, which has to produce "
            f'"{self.labels[0].produced[self.step]}".',
            f"B {self.n}: sentences. T 1: queries, one at each step. S {s}: keys. Q {q}: width of the decoder's state. M {m}: "
            f"width of the encoder's output.{a}",
        ]
        if self.n > 1:
            preface.append(
                "Sentence 2 is shorter and padded; what differs by sentence is shown of both, the rest of sentence 1."
            )
        made = [
            self.entering(),
            *self.scoring(),
            self.masking(self.about_mask()),
            self.softmaxing(),
            self.averaging(
                "context",
                "h",
                "B T M",
                ["There is no W_v: the values are the encoder's output itself, both directions side by side."]
                if self.model.encoder.bidirectional
                else ["There is no W_v: the values are the encoder's output itself."],
            ),
            self.going_on(),
        ]
        score = {AdditiveAttention: "additive", BilinearAttention: "bilinear", DotProductAttention: "dot-product"}[
            type(self.attention)
        ]
        return Trace(f"{KIND_NAMES['alignment'].capitalize()} by {score} attention, target step {i} of {steps}", preface, made)

    def entering(self) -> Step:
        i = self.step
        state = (
            "the decoder's first state, made from what the encoder's backward direction read last"
            if i == 0
            else f"the state after step {i}"
        )
        tables = [
            self.table("query", self.query, "B T Q", self.queries(0)),
            self.table("h", self.values, "B S M", self.keys(0)),
        ]
        sentences = [
            f"The query is s_{i}, {state}: the token read at step {i + 1} is not in it yet (Bahdanau et al. 2015, section "
            "3.1).",
            "h is the encoder's output, one row for each source token; keys are made from it, and it is the values itself.",
            "Why one query at a time? Each state needs the context of the step before it, so target steps follow one another.",
            self.batch,
        ]
        return Step("The input", f"query = s_{i}, h = the encoder's output", tables, sentences)

    def scoring(self) -> list[Step]:
        if isinstance(self.attention, AdditiveAttention):
            return self._additive(self.attention)
        path = self.seen.attention
        product, scaled = self.seen.operation(path, "matmul"), self.seen.operation(path, "mul")
        keys = self.table("k", self.key, "B S Q", self.keys(0))
        tables = self.all("q . k", product.output, "B T S")
        worked = ""
        if self.key.size(-1) <= SMALL:
            terms = _products(self.part(self.query, "B T Q", 0)[0], self.part(self.key, "B S Q", 0)[0])
            worked = f"(q . k)[{self.queries(0)[0]}, {self.keys(0)[0]}] = {terms} = {_number(tables[0].tensor[0, 0])}"
        if isinstance(self.attention, BilinearAttention):
            formula, how = (
                "k = W h",
                "A learned matrix W brings h to the query's width (Luong et al. 2015, general); W h is computed once a "
                "sentence.",
            )
        elif self.values.size(-1) == self.key.size(-1):
            formula, how = (
                "k = h",
                "The key is h itself (Luong et al. 2015, dot): nothing is learned here, so query and key must have one width.",
            )
        else:
            formula = "k = sum of both directions of h"
            how = (
                "The key is the sum of both directions (Luong et al. 2015, dot): nothing is learned here, so query and key "
                "must have one width."
            )
        by = scaled.inputs[1]
        return [
            Step("The keys", formula, [keys], [how]),
            Step(
                "The scores",
                "q . k",
                tables,
                ["One dot product for each key, of all sentences in one batched matrix product."],
                worked,
            ),
            Step(
                "The scale",
                f"none: q . k x {by:g}",
                self.all("scores", scaled.output, "B T S"),
                ["This score is not scaled, as in Luong et al. 2015."],
            ),
        ]

    def _additive(self, attention: AdditiveAttention) -> list[Step]:
        path = self.seen.attention
        asked = self.seen.module(f"{path}.query").output
        added, tanh = self.seen.operation(path, "add").output, self.seen.operation(path, "tanh").output
        a = attention.query.out_features
        where = {"where": ", ".join(["sentence 1"] * (self.n > 1) + [f"query {self.queries(0)[0]}"])}
        between = [
            replace(self.table(name, tensor, "B T S A", self.keys(0)), **where)  # type: ignore[arg-type]
            for name, tensor in (("W q + U k", added), ("tanh(W q + U k)", tanh))
        ]
        shapes = ", ".join(f"{name} ({m.in_features} x {a})" for name, m in (("W", attention.query), ("U", attention.key)))
        weights = [
            Table(
                name,
                "",
                "",
                m.weight.T.detach().cpu(),
                [str(i + 1) for i in range(m.in_features)],
                [str(i + 1) for i in range(m.out_features)],
            )
            for name, m in (("W", attention.query), ("U", attention.key))
            if max(m.in_features, m.out_features) <= SMALL
        ]
        v = attention.score.weight.detach().cpu()
        scores = self.all("e", self.scores, "B T S")
        vector = [Table("v", f"A {a}", "", v, ["v"], [str(i + 1) for i in range(a)])] if a <= SMALL else []
        worked = ""
        if a <= SMALL:
            terms = _products(v[0], self.part(tanh, "B T S A", 0)[0])
            worked = f"e[{self.queries(0)[0]}, {self.keys(0)[0]}] = {terms} = {_number(scores[0].tensor[0, 0])}"
        return [
            Step(
                "The projections",
                f"W q, U k with {shapes}",
                [
                    *weights,
                    self.table("W q", asked, "B T A", self.queries(0)),
                    self.table("U k", self.key, "B S A", self.keys(0)),
                ],
                [
                    f"Query and key may differ in width, here Q = {self.query.size(-1)} and M = {self.values.size(-1)}: W and "
                    f"U bring both to A = {a}. For a dot product they would have to be equal.",
                    "U k does not depend on the step: it is computed once a sentence, W q at each step.",
                ],
            ),
            Step(
                "The comparison",
                "tanh(W q + U k)",
                between,
                [
                    "The query is added to every key, and tanh is the hidden layer of a small network that learns what to "
                    "compare (Bahdanau et al. 2015, A.1.2).",
                    "What does it cost? A numbers for each pair of query and key, T S A in all, where dot products are one "
                    "matrix product.",
                ],
            ),
            Step(
                "The scores",
                "e = v^T tanh(W q + U k)",
                [*vector, *scores],
                ["v weighs the A terms: one number for each key."],
                worked,
            ),
            Step(
                "The scale",
                "none",
                [],
                ["The additive score needs no scale: tanh keeps each term between -1 and 1, whatever the width."],
            ),
        ]

    def about_mask(self) -> list[str]:
        if not self.model.mask_padding:
            return [
                "This model does not hide the source's padding from attention (mask_padding: false): the mask is 1 everywhere."
            ]
        return [
            "Which mask is it? The source's padding mask, as in cross-attention. No causal mask is needed: a recurrent decoder "
            "has not read what comes later."
        ]

    def going_on(self) -> Step:
        """What becomes of the context."""
        i = self.step + 1
        calls = self.seen.calls("attention")
        cell = "LSTM" if isinstance(self.model.cell, nn.LSTMCell) else "GRU"
        tables = []
        if i < len(calls):
            tables.append(replace(self.table("s_i", calls[i].inputs[0], "B T Q", [f"s_{i}"]), name=f"s_{i}, the next query"))
        sentences = [
            f"Around this attention there is no output projection, no residual connection and no norm. The context c_{i} goes "
            f"into the {cell} beside the token read, and the new state is made from s_{i - 1} too: so what asked is not lost."
        ]
        if self.model.maxout:
            sentences.append(
                f"It goes into the readout as well: t_{i} = maxout(W [s_{i}; y_{i - 1}; c_{i}]) (Bahdanau et al. 2015, A.2.2)."
            )
        else:
            call = self.seen.calls("residual")[0]
            after = call.output[:, self.step : self.step + 1]
            name = "s_i + U c_i" if self.model.residual.keep else "U c_i"
            tables.append(replace(self.table(name, after, "B T Q", self.queries(0)), shape=_shape(call.output, "B T Q")))
            what = (
                f"The readout is W (s_{i} + U c_{i}) here (readout: residual): the state is added to what attention brought."
                if self.model.residual.keep
                else f"The readout is W U c_{i} here (readout: context): without the state, only what attention brought."
            )
            sentences.append(what)
        return Step("Where the context goes", f"s_{i} = {cell}([y_{i - 1}; c_{i}], s_{i - 1})", tables, sentences)


def _shape(tensor: Tensor, letters: str) -> str:
    return ", ".join(
        letter if letter == "1" else f"{letter} {size}" for letter, size in zip(letters.split(), tensor.shape, strict=True)
    )


def _number(value: Any) -> str:
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


def _signed(value: Any) -> str:
    text = _number(value)
    return f"({text})" if text.startswith("-") else text


def _products(one: Tensor, other: Tensor) -> str:
    return " + ".join(f"{_signed(a)}·{_signed(b)}" for a, b in zip(one, other, strict=True))


# The smallest sizes that show it all.


def example(name: str) -> tuple[Seq2Seq, Tensor, Tensor, list[Labels]]:
    """A model whose parameters are round and not small, and two sentences, the second padded: 3 source tokens, 5 target tokens,
    width 4."""
    source = ["<pad>", "le", "chat", "il", "dort"]
    target = ["<pad>", "<s>", "</s>", "the", "cat", "he", "is", "sleeping", "sleeps"]
    src = [["le", "chat", "dort"], ["il", "dort"]]
    tgt = [["<s>", "the", "cat", "is", "sleeping", "</s>"], ["<s>", "he", "sleeps", "</s>"]]
    labels = []
    for s, t in zip(src, tgt, strict=True):
        lengths = ((s, len(src[0])), (t[:-1], len(tgt[0]) - 1), (t[1:], len(tgt[0]) - 1))
        labels.append(Labels(*(tokens + ["<pad>"] * (length - len(tokens)) for tokens, length in lengths)))
    common = {"src_vocab": len(source), "tgt_vocab": len(target), "shared_vocab": False, "pad_id": 0, "seed": 1, "dropout": 0.0}
    model: Seq2Seq
    if name == "transformer":
        model = Transformer(**common, d_model=4, n_heads=1, n_layers=1, d_ff=7)  # type: ignore[arg-type]
    else:
        model = BiRNN(**common, d_embedding=4, d_hidden=4, d_attention=3)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(199)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "before" in path or "norm" in path:
                continue  # a gain of 1 and a bias of 0 can be followed by hand
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator)).mul_(10).round_().div_(10)
        for embedding in (model.src_embedding, model.tgt_embedding):
            embedding.weight[0] = 0  # as training leaves it
    ids = pad([[source.index(token) for token in s] for s in src], 0)
    read = pad([[target.index(token) for token in t[:-1]] for t in tgt], 0)
    return model.eval(), ids, read, labels


def examples(
    name: str, kind: Kind | None = None, layer: int | None = None, head: int | None = None, step: int | None = None
) -> list[Trace]:
    """Of the example, that kind of attention; null: all, and what was said once is not said again."""
    model, src, tgt, labels = example(name)
    traces = [trace(model, src, tgt, labels, one, layer, head, step) for one in ([kind] if kind else kinds(model))]
    said: set[str] = set()
    found = []
    for one in traces:
        steps = [replace(s, sentences=[text for text in s.sentences if text not in said]) for s in one.steps]
        preface = [text for text in one.preface if text not in said]
        found.append(replace(one, steps=steps, preface=preface))
        said |= {text for s in one.steps for text in s.sentences} | {*one.preface}
    return found


# Showing.


def cells(table: Table, columns: int | None) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as text, the first column its labels. A last column or row says how many more there are than are
    shown; sums are of all."""
    wide = LONGEST if table.tokens else columns or table.tensor.size(1)
    tensor = table.tensor[:LONGEST, :wide]
    more, below = table.tensor.size(1) - tensor.size(1), table.tensor.size(0) - tensor.size(0)
    head = ["", *table.columns[: tensor.size(1)]]
    rows = []
    for r, values in enumerate(tensor):
        hidden = [False] * len(values) if table.hidden is None else table.hidden[r].tolist()
        texts = [_number(value) for value in values]
        rows.append([table.rows[r], *(f"({text})" if masked else text for text, masked in zip(texts, hidden, strict=False))])
    if more:
        head.append(f"+{more}")
        rows = [[*row, "…"] for row in rows]
    if table.sums:
        head.append("sum")
        rows = [[*row, _number(total)] for row, total in zip(rows, table.tensor.sum(1), strict=False)]
    if below:
        rows.append([f"+{below}", *["…"] * (len(head) - 1)])
    if table.sums and table.tensor.size(0) > 1:
        totals = [_number(total) for total in table.tensor.sum(0)[: tensor.size(1)]]
        rows.append(["sum", *totals, *[""] * (len(head) - 1 - len(totals))])
    return head, rows


def show(found: Trace, console: Console, columns: int | None) -> None:
    """On a terminal: small tables side by side, wide ones in pieces."""
    width = min(console.width, WIDEST)

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), width=width)

    say(found.title, "bold underline")
    for text in found.preface:
        say(text)
    for number, step in enumerate(found.steps, start=1):
        console.print()
        say(f"{number}. {step.title}:  {step.formula}", "bold")
        if step.shapes:
            say(f"Shapes: {step.shapes}", "dim")
        grids = [grid for table in step.tables for grid in _grids(table, columns, console.width)]
        if grids:
            console.print(*_packed(grids, console.width))
        if step.worked:
            say(f"By hand: {step.worked}", "cyan")
        for text in step.sentences:
            say(text)
    console.print()


def _grids(table: Table, columns: int | None, width: int) -> Iterator[tuple[int, Group]]:
    """One table, and how wide it is. Of dimensions as many columns are shown as fit; what shall be whole comes in pieces, each
    with the labels of the rows."""
    while True:
        head, rows = cells(table, columns)
        widths = [max(cell_len(row[i]) for row in [head, *rows]) + GAP for i in range(len(head))]
        if table.tokens or columns is None or columns == 1 or sum(widths) <= width + GAP:
            break
        columns = min(columns, table.tensor.size(1)) - 1
    start = 1
    while start < len(head):
        end = start + 1
        while end < len(head) and widths[0] + sum(widths[start : end + 1]) <= width:
            end += 1
        grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        grid.add_column(no_wrap=True)
        for name in head[start:end]:
            grid.add_column(Text(name), justify="right", no_wrap=True)
        for row in rows:
            shown = [Text(cell, "dim" if cell.startswith("(") else "") for cell in row[start:end]]
            grid.add_row(Text(row[0], "bold"), *shown)
        yield (
            max(widths[0] + sum(widths[start:end]), cell_len(table.title)),
            Group(Text(table.title, "dim", no_wrap=True), grid),
        )
        start = end


def _packed(grids: Iterable[tuple[int, Group]], width: int) -> Iterator[Grid]:
    """Side by side as many as fit."""
    lines: list[list[tuple[int, Group]]] = [[]]
    for grid in grids:
        if lines[-1] and sum(wide + GAP for wide, _ in [*lines[-1], grid]) > width:
            lines.append([])
        lines[-1].append(grid)
    for line in lines:
        both = Grid.grid(padding=(0, GAP, 0, 0))
        for wide, _ in line:
            both.add_column(no_wrap=True, min_width=wide)
        both.add_row(*(group for _, group in line))
        yield both


def markdown(found: Sequence[Trace], columns: int | None) -> str:
    """The same as Markdown, with pipe tables."""
    lines: list[str] = []
    for one in found:
        lines += [f"# {_prose(one.title)}", "", *(f"{_prose(text)}\n" for text in one.preface)]
        for number, step in enumerate(one.steps, start=1):
            lines += [f"## {number}. {_prose(step.title)}", "", f"`{step.formula}`", ""]
            if step.shapes:
                lines += [f"Shapes: {_prose(step.shapes)}", ""]
            for table in step.tables:
                head, rows = cells(table, columns)
                lines += [f"{_prose(table.title)}", "", _row(head), _row(["---", *["--:"] * (len(head) - 1)], escape=False)]
                lines += [*(_row(row) for row in rows), ""]
            if step.worked:
                lines += [f"By hand: {_prose(step.worked)}", ""]
            lines += [f"{_prose(text)}\n" for text in step.sentences]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(texts: Sequence[str], escape: bool = True) -> str:
    """Every cell is shown as it is: what Markdown or HTML would take for a sign of its own is written as its number."""
    shown = [re.sub(r"[\\`*_\[\]<>&|~]", lambda sign: f"&#{ord(sign[0])};", " ".join(text.split())) for text in texts]
    return f"| {' | '.join(shown if escape else texts)} |"


def _prose(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|~&#])", r"\\\1", " ".join(text.split()))
