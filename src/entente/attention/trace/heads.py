"""The story of a Transformer's attention, of one layer and head, and of what stands around it in its block.

Shapes: B sentences, T queries, S keys, D width of the model, H heads, K width of a head (d_k), HK of all heads together.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from entente.attention.record import KIND_NAMES
from entente.attention.trace.capture import Operation, Seen
from entente.attention.trace.steps import Kind, Labels, Step, Table, Trace, decimals, shape_of, signed, sum_of_products
from entente.attention.trace.story import ROUNDED, SMALL, Story
from entente.models import Transformer
from entente.models.attention import AdditiveScore, BilinearScore, DotProductScore, MultiHeadAttention
from entente.models.seq2seq import Residual

EQUATION = (
    "From Q, K and V to here it is equation 1 of Vaswani et al. 2017, softmax(Q K^T / sqrt(d_k)) V: it has no weights to "
    "learn. W_q, W_k, W_v and W_o belong to the layer around it."
)


class Heads(Story):
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

    @property
    def plain(self) -> bool:
        """As published."""
        score = self.attention.score
        return self.normal and isinstance(score, DotProductScore) and score.scale == "d_k"

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
        preface.append(ROUNDED)
        if self.n > 1:
            preface.append("Sentence 2 is shorter and padded. It is shown where that matters; elsewhere sentence 1.")
        steps = [
            self.entering(),
            self.projections(),
            self.projected(),
            *self.scoring(),
            self.masking(self.about_mask()),
            self.softmaxing(),
            self.averaging("weights x V", "V", "B H T K", [EQUATION] if self.plain else []),
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
            sentences.insert(
                1,
                "LayerNorm takes from each row its mean, divides by its standard deviation, and has a gain and a bias to "
                "learn. Here it stands in front of the attention (pre-norm, Xiong et al. 2020).",
            )
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
                "memory is what the encoder's last layer gave, after its final norm.",
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
            products = sum_of_products(row, layer.weight[j].detach().cpu())
            result = self.part(self.q, "B H T K", 0)[r, 0]
            worked = f"Q[{rows['Q'][r]}, 1] = {products} + {signed(layer.bias[j])} = {decimals(result)}"
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
            terms = sum_of_products(left, self.part(self.k, "B H S K", 0)[0])
            worked = f"({name})[{self.queries(0)[r]}, {self.keys(0)[0]}] = {terms} = {decimals(tables[0].tensor[r, 0])}"
        if bilinear:
            moved = self.table("Q M", products.inputs[0], "B H T K", self.queries(0))
            return [Step("The scores", "(Q M) K^T", [moved, *tables], sentences, worked), self._scale(name, scaled)]
        return [Step("The scores", name, tables, sentences, worked), self._scale(name, scaled)]

    def _scale(self, name: str, scaled: Operation) -> Step:
        k, by = self.q.size(-1), scaled.inputs[1]
        scale = self.attention.score.scale
        tables = [self.table("scaled scores", scaled.output, "B H T S", self.queries(0), self.keys(0))]
        width = (
            f"What is d_k? The width of one head's queries and keys, K = {k}. Each score is a sum of so many products, "
            "whatever the number of tokens."
        )
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
            tables.append(Table("v", shape_of(vectors, "H K"), "", v, ["v"], [str(i + 1) for i in range(v.size(-1))]))
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
                "Why add x? The row that asked, from which the query was made, keeps its own token and place; the attention's "
                "output alone would say only what was found, not who asked."
            )
            sentences = [why]
            if self.kind == "cross":
                sentences.append("In cross-attention, without it the row would be made only of source vectors.")
            if isinstance(self.before, nn.LayerNorm):
                sentences.append("What is kept is x, before the norm; h is read by the attention alone.")
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
