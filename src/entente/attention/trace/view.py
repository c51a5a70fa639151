"""The captured calls of one attention as tables, each of one sentence and head.

Shapes: B sentences, T queries, S keys, H heads (none in the BiRNN).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from entente.attention.record import Call, Operation
from entente.attention.trace.steps import Table, decimals, shape_of, sum_of_products

SMALL = 8  # a width up to which matrices are shown whole and sums of products are written out
FEW = 5  # keys of a row whose softmax is written out


class View:
    """calls: by module path, the attention's and those of what surrounds it. path: of the attention. queries, keys: the labels
    of each sentence. head, step: from 0; a recurrent decoder calls its attention once per step."""

    def __init__(
        self,
        calls: Mapping[str, Sequence[Call]],
        path: str,
        queries: Sequence[list[str]],
        keys: Sequence[list[str]],
        head: int = 0,
        n_heads: int = 1,
        step: int = 0,
    ) -> None:
        self.calls, self.path, self.queries, self.keys = calls, path, queries, keys
        self.head, self.n_heads, self.step = head, n_heads, step
        self.tables: dict[str, list[Table]] = {}
        weighting = self.call("weights")
        self.scores: Tensor = weighting.inputs[0]  # (B, [H,] T, S)
        self.mask: Tensor | None = weighting.inputs[1]
        self.weights: Tensor = weighting.output
        self.letters = "B H T S" if self.scores.dim() == 4 else "B T S"
        product = self.operation("", "matmul", -1)
        self.values: Tensor = product.inputs[1]
        self.summed: Tensor = product.output
        if not torch.equal(product.inputs[0], self.weights):
            raise RuntimeError(f"{path}: the values were multiplied by something else than the weights that were captured")
        # A causal mask is one for all sentences, and then the first shows it.
        self.shown = range(1 if self.mask is not None and self.mask.dim() == 2 else len(keys))
        self.row = min(1, len(queries[0]) - 1)  # worked out by hand; the first row of a causal mask sees one key only

    def call(self, part: str) -> Call:
        """The call of a submodule at this step; one that is called once per sentence has no other."""
        calls = self.calls[f"{self.path}.{part}"]
        return calls[self.step if len(calls) > 1 else 0]

    def operation(self, part: str, name: str, which: int = 0) -> Operation:
        """What the attention itself (part "") or a submodule computed by a torch function."""
        made = self.call(part).operations if part else self.calls[self.path][self.step].operations
        found = [operation for operation in made if operation.name == name]
        if not -len(found) <= which < len(found):
            raise RuntimeError(f"{name} was not seen in {self.path}.{part}: it computes in another way than is described here")
        return found[which]

    def part(self, tensor: Tensor, letters: str, n: int = 0) -> Tensor:
        """A tensor cut to its last two dimensions: sentence n, the chosen head, elsewhere the first."""
        for letter in letters.split()[:-2]:
            tensor = tensor[{"B": n, "H": self.head}.get(letter, 0)]
        return tensor.detach().cpu().clone()

    def add(self, name: str, tensor: Tensor, letters: str, n: int = 0, rows: list[str] | None = None, **more: Any) -> None:
        """Adds the table of sentence n. letters: one for each dimension, as "B H T K"; rows T are queries, rows and columns S
        are keys, other columns are numbered from 1."""
        *before, row, column = letters.split()
        rows = rows or {"T": self.queries[n], "S": self.keys[n], "1": ["every query"]}[row]
        columns = self.keys[n] if column == "S" else numbers(tensor.size(-1))
        where = [f"sentence {n + 1}"] if "B" in letters.split() and len(self.keys) > 1 else []
        where += [f"query {self.queries[n][0]}"] if "T" in before else []
        where += [f"head {self.head + 1}"] if "H" in before and self.n_heads > 1 else []
        part = self.part(tensor, letters, n)
        if (len(rows), len(columns)) != tuple(part.shape):
            raise RuntimeError(f"{name}: {tuple(part.shape)} where labels are {len(rows)} x {len(columns)}")
        table = Table(name, shape_of(tensor, letters), ", ".join(where), part, rows, columns, column == "S", **more)
        self.tables.setdefault(name, []).append(table)

    def add_matrix(self, name: str, matrix: Tensor, rows: list[str] | None = None, shape: str = "", where: str = "") -> None:
        """Adds a parameter (rows, columns), if it is small."""
        if max(matrix.shape) <= SMALL + ("b" in (rows or ())):  # a bias is one more row
            values = matrix.detach().cpu()
            labels = rows or numbers(len(matrix))
            self.tables[name] = [Table(name, shape, where, values, labels, numbers(matrix.size(1)))]

    def add_scores(self, name: str, scores: Tensor, sentences: range, worked: str = "") -> None:
        """Adds a table of queries by keys for each of the sentences. worked: the sum that the first entry of the row is."""
        entry = decimals(self.part(scores, self.letters)[self.row, 0])
        short = f"({name})" if " " in name else name
        line = f"{short}[{self.queries[0][self.row]}, {self.keys[0][0]}] = {worked} = {entry}" if worked else ""
        for n in sentences:
            self.add(name, scores, self.letters, n, worked="" if n else line)

    def add_weights(self) -> None:
        """Adds what follows the scores: the mask, the masked scores and the weights."""
        hidden: dict[int, Tensor] = {}
        if self.mask is not None:
            masked = self.operation("weights", "masked_fill").output
            letters = {2: "T S", 3: "B 1 S", 4: "B 1 1 S"}[self.mask.dim()]
            everywhere = self.mask.expand(self.scores.shape)
            hidden = {n: ~self.part(everywhere, self.letters, n) for n in range(len(self.keys))}
            for n in self.shown:
                self.add("mask", self.mask, letters, n)
                self.add("masked scores", masked, self.letters, n, hidden=hidden[n])
        worked = ""
        if len(self.keys[0]) <= FEW and self.call("weights").module.softmax == "keys":
            scores = self.part(self.operation("weights", "softmax").inputs[0], self.letters)[self.row]
            terms, weight = [f"exp({decimals(s)})" for s in scores], self.part(self.weights, self.letters)[self.row, 0]
            entry = f"weight[{self.queries[0][self.row]}, {self.keys[0][0]}]"
            worked = f"{entry} = {terms[0]} / ({' + '.join(terms)}) = {decimals(weight)}"
        for n in range(len(self.keys)):
            self.add("weights", self.weights, self.letters, n, hidden=hidden.get(n), sums=True, worked="" if n else worked)

    def add_sum(self, name: str, letters: str) -> None:
        """Adds the weights times the values."""
        weights = self.part(self.weights, self.letters)[self.row]
        values, result = self.part(self.values, letters)[:, 0], self.part(self.summed, letters)[self.row, 0]
        worked = ""
        if len(weights) <= FEW:
            worked = f"({name})[{self.queries[0][self.row]}, 1] = {sum_of_products(weights, values)} = {decimals(result)}"
        self.add(name, self.summed, letters, worked=worked)

    def facts(self) -> dict[str, Any]:
        """What the templates say of every attention."""
        weighting = self.call("weights").module
        facts = {"softmax": weighting.softmax, "mask_value": weighting.mask_value}
        return {**facts, "B": len(self.keys), "T": self.scores.size(-2), "S": self.scores.size(-1)}


def numbers(n: int) -> list[str]:
    return [str(i + 1) for i in range(n)]
