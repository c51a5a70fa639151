"""The story of the BiRNN's attention at one target step, and of where its context goes.

Shapes: B sentences, T queries (one), S keys; of widths, Q the decoder's state, M the encoder's output, A the additive score.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from entente.attention.record import KIND_NAMES
from entente.attention.trace.capture import Seen
from entente.attention.trace.steps import Labels, Step, Table, Trace, decimals, shape_of, sum_of_products
from entente.attention.trace.story import ROUNDED, SMALL, Story
from entente.models import BiRNN
from entente.models.attention import AdditiveAttention, BilinearAttention, DotProductAttention


class Alignment(Story):
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
        preface.append(ROUNDED)
        if self.n > 1:
            preface.append("Sentence 2 is shorter and padded. It is shown where that matters; elsewhere sentence 1.")
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
            "h is the encoder's output, one row for each source token; it is both the keys k and the values.",
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
            terms = sum_of_products(self.part(self.query, "B T Q", 0)[0], self.part(self.key, "B S Q", 0)[0])
            worked = f"(q . k)[{self.queries(0)[0]}, {self.keys(0)[0]}] = {terms} = {decimals(tables[0].tensor[0, 0])}"
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
            terms = sum_of_products(v[0], self.part(tanh, "B T S A", 0)[0])
            worked = f"e[{self.queries(0)[0]}, {self.keys(0)[0]}] = {terms} = {decimals(scores[0].tensor[0, 0])}"
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
                    "W q is the paper's way, with column vectors; W and U are printed as they stand in q W and k U; k is h.",
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
                    "What does it cost? Dot products multiply about as often. But here A numbers are made, kept and put "
                    "through a tanh for each pair of query and key, T S A in all; Q K^T makes T S numbers in one product.",
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
                [
                    "No scale is used. Each tanh lies between -1 and 1, so a score is at most the sum of v's sizes, however "
                    "wide query and key are; and v is learned."
                ],
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
            f"into the {cell} beside y_{i - 1}, the embedding of the token read, and the "
            f"new state is made from s_{i - 1} too: so what asked is not lost."
        ]
        if self.model.maxout:
            sentences.append(
                f"It goes into the readout as well: t_{i} = maxout(W_t [s_{i}; y_{i - 1}; c_{i}]), with a matrix W_t of "
                "its own (Bahdanau et al. 2015, A.2.2)."
            )
        else:
            call = self.seen.calls("residual")[0]
            after = call.output[:, self.step : self.step + 1]
            name = "s_i + U c_i" if self.model.residual.keep else "U c_i"
            tables.append(replace(self.table(name, after, "B T Q", self.queries(0)), shape=shape_of(call.output, "B T Q")))
            what = (
                f"The readout is W (s_{i} + U c_{i}) here (readout: residual): the state is added to what attention brought."
                if self.model.residual.keep
                else f"The readout is W U c_{i} here (readout: context): without the state, only what attention brought."
            )
            sentences.append(what)
        return Step("Where the context goes", f"s_{i} = {cell}([y_{i - 1}; c_{i}], s_{i - 1})", tables, sentences)
