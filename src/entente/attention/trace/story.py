"""What is to be said of an attention, whichever model has it: its mask, its softmax and its weighted sum.

Shapes: B sentences, T queries, S keys, H heads (none in the BiRNN).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from entente.attention.trace.capture import Seen
from entente.attention.trace.steps import Labels, Step, Table, decimals, shape_of, sum_of_products

SMALL = 8  # a width up to which matrices are shown whole and numbers are worked out by hand
FEW = 5  # keys of a row whose softmax is written out

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


ROUNDED = "Numbers are printed with three decimals and computed with more: a check by hand may differ in the last."


class Story:
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
        return Table(name, shape_of(tensor, letters), where, part, rows, names, columns is not None, **more)

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
        return Step("The mask", formula, tables, [*sentences, effect, "Brackets in these tables mark what is hidden."])

    def softmaxing(self) -> Step:
        """Scores to weights."""
        name = self.softmax.softmax
        tables = self.all("weights", self.weights, self.letters, hidden=self.hidden(), sums=[True] * self.n)
        if name == "keys":
            sentences = [
                "Over which axis does the softmax run? Over the keys: each query's row by itself.",
                f"Is a row a probability? It is {SINGLE}. A column need not sum to 1: over all queries, one key may be looked "
                "at much, and another never.",
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
        sum_ = " + ".join(f"exp({decimals(s)})" for s in scores)
        return (
            f"weight[{self.queries(0)[r]}, {self.keys(0)[0]}] = exp({decimals(scores[0])}) / ({sum_}) = {decimals(weights[0])}"
        )

    def averaging(self, name: str, values: str, letters: str, sentences: list[str]) -> Step:
        """Weights times values."""
        r = self.row
        tables = [self.table(name, self.summed, letters, self.queries(0))]
        weights, result = self.part(self.weights, self.letters, 0)[r], self.part(self.summed, letters, 0)[r]
        column = self.part(self.values, letters, 0)[:, 0]
        worked = ""
        if len(weights) <= FEW:
            worked = f"({name})[{self.queries(0)[r]}, 1] = {sum_of_products(weights, column)} = {decimals(result[0])}"
        if self.normal:
            mean = f"Each row is an average of the rows of {values}, weighted by the query's row of weights."
        else:
            mean = (
                f"Each row is a sum of the rows of {values}, weighted by the query's row of weights: no average, since the "
                "weights do not sum to 1."
            )
        return Step("The weighted sum", f"weights x {values}", tables, [mean, *sentences], worked)
