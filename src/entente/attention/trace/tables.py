"""The numbers of one attention: of a Transformer's layer and head, and of a BiRNN's target step. The templates transformer.j2
and birnn.j2 say what they are.

Shapes: B sentences, T queries, S keys. Of the Transformer: D width of the model, H heads, K width of a head (d_k), HK of all
heads together. Of the BiRNN: Q width of the decoder's state, M of the encoder's output, A of the additive comparison.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from entente.attention.record import KIND_NAMES, Call
from entente.attention.trace.steps import Kind, Labels, Trace, decimals, fill_template, signed, sum_of_products
from entente.attention.trace.view import SMALL, View, numbers
from entente.models import BiRNN, Transformer
from entente.models.attention import PROJECTIONS, AdditiveAttention, AdditiveScore, BilinearAttention, BilinearScore

Calls = Mapping[str, Sequence[Call]]


def trace_head(
    model: Transformer, calls: Calls, labels: Sequence[Labels], kind: Kind, layer: int, head: int, paths: Mapping[str, str]
) -> Trace:
    """layer, head: from 0. paths: of the attention, and of what is before it, the residual connection and what is after it."""
    decoder = [[f"{r} → {p}" for r, p in zip(label.read, label.produced, strict=True)] for label in labels]
    queries = [label.source for label in labels] if kind == "encoder" else decoder
    keys = [label.read if kind == "decoder" else label.source for label in labels]
    view = View(calls, paths["attention"], queries, keys, head, model.n_heads)
    before, residual, after = (calls[paths[part]][0] for part in ("before", "residual", "after"))
    x, h, attention = before.inputs[0], before.output, calls[paths["attention"]][0].module
    norms = [isinstance(call.module, nn.LayerNorm) for call in (before, after)]
    q, k, _ = view.call("score").inputs  # (B, H, T, K), (B, H, S, K)
    out = view.call("out")
    width = q.size(-1)
    columns = slice(head * width, (head + 1) * width)
    projected = [name for name in PROJECTIONS if isinstance(getattr(attention, name), nn.Linear)]
    own = f"head {head + 1}" if model.n_heads > 1 else ""

    view.add("x", x, "B T D")
    if norms[0]:
        view.add("h", h, "B T D")
    if kind == "cross":
        view.add("memory", view.call("key").inputs[0], "B S D")
    for name in projected:
        layer_of = getattr(attention, name)
        if layer_of.in_features <= SMALL:
            rows = [*numbers(layer_of.in_features), "b"]
            both = torch.cat([layer_of.weight[columns].T, layer_of.bias[None, columns]])
            view.add_matrix(f"W_{name[0]}, b", both, rows, where=own)
    worked = ""
    if "query" in projected and x.size(-1) <= SMALL:
        weight, bias = attention.query.weight[columns.start].detach().cpu(), attention.query.bias[columns.start]
        terms = sum_of_products(view.part(h, "B T D")[view.row], weight)
        result = decimals(view.part(q, "B H T K")[view.row, 0])
        worked = f"Q[{queries[0][view.row]}, 1] = {terms} + {signed(bias)} = {result}"
    view.add("Q", q, "B H T K", worked=worked)
    view.add("K", k, "B H S K")
    view.add("V", view.values, "B H S K")
    score, factor = _add_head_scores(view, q, k)
    view.add_weights()
    view.add_sum("weights x V", "B H T K")
    if model.n_heads > 1:
        view.add("all heads", out.inputs[0], "B T HK")
    if max(out.module.weight.shape) <= SMALL:
        rows = [*numbers(out.module.in_features), "b"]
        view.add_matrix("W_o, b", torch.cat([out.module.weight.T, out.module.bias[None]]), rows)
    view.add("out", out.output, "B T D")
    view.add("after the residual", residual.output, "B T D")
    if norms[1]:
        view.add("after the norm", after.output, "B T D")

    facts = {
        **view.facts(),
        **{"model": model, "attention": attention, "label": labels[0], "residual": residual.module},
        **{"title": KIND_NAMES[kind].capitalize(), "kind": kind, "layer": layer + 1, "head": head + 1},
        **{"projected": projected, "score": score, "factor": factor},
        "norm": "pre" if norms[0] else "post" if norms[1] else "none",
        **{"D": x.size(-1), "H": model.n_heads, "K": width, "HK": out.module.in_features},
    }
    return fill_template("transformer.j2", view.tables, facts)


def _add_head_scores(view: View, q: Tensor, k: Tensor) -> tuple[str, float | Tensor]:
    """Adds how queries are compared with keys; returns the score's name and the factor that scales it."""
    score = view.call("score").module
    if isinstance(score, AdditiveScore):
        view.add("q + k", view.operation("score", "add").output, "B H T S K")
        view.add("tanh(q + k)", view.operation("score", "tanh").output, "B H T S K")
        heads, width = score.weight.shape
        view.add_matrix("v", score.weight[view.head][None], ["v"], f"H {heads}, K {width}")
        view.add_scores("v^T tanh(q + k)", view.scores, range(len(view.keys)))
        return "additive", 1.0
    bilinear = isinstance(score, BilinearScore)
    product, scaled = view.operation("score", "matmul", 1 if bilinear else 0), view.operation("score", "mul")
    left, factor = product.inputs[0], scaled.inputs[1]
    if bilinear:
        view.add("Q M", left, "B H T K")
    few = q.size(-1) <= SMALL
    worked = sum_of_products(view.part(left, "B H T K")[view.row], view.part(k, "B H S K")[0]) if few else ""
    view.add_scores("Q M K^T" if bilinear else "Q K^T", product.output, view.shown, worked)
    if isinstance(factor, Tensor) and factor.dim() in (2, 4):  # 1 / sqrt(keys that the query may see)
        view.add("factor", factor, "T 1" if factor.dim() == 2 else "B 1 T 1" if factor.size(-2) > 1 else "B 1 1 1")
    view.add_scores("scaled scores", scaled.output, range(1))
    return "bilinear" if bilinear else "dot", factor


def trace_step(model: BiRNN, calls: Calls, labels: Sequence[Labels], step: int) -> Trace:
    """step: from 0."""
    queries = [[f"s_{step} → {label.produced[step]}"] for label in labels]
    view = View(calls, "attention", queries, [label.source for label in labels], step=step)
    attention = calls["attention"][step]
    query, key = attention.inputs[0], attention.inputs[1].key  # (B, 1, Q), (B, S, A or Q)
    view.add("query", query, "B T Q")
    view.add("h", view.values, "B S M")
    score, factor = _add_step_scores(view, query, key)
    view.add_weights()
    view.add_sum("context", "B T M")
    if step + 1 < len(calls["attention"]):
        following = calls["attention"][step + 1].inputs[0]
        view.add(f"s_{step + 1}, the next query", following, "B T Q", rows=[f"s_{step + 1}"])
    if not model.maxout:
        brought = calls["residual"][0].output[:, step : step + 1]
        view.add("s_i + U c_i" if model.residual.keep else "U c_i", brought, "B T Q")
    facts = {
        **view.facts(),
        **{"model": model, "label": labels[0], "title": KIND_NAMES["alignment"].capitalize(), "i": step + 1},
        **{"score": score, "factor": factor, "cell": "LSTM" if isinstance(model.cell, nn.LSTMCell) else "GRU"},
        **{"Q": query.size(-1), "M": view.values.size(-1), "A": key.size(-1)},
    }
    return fill_template("birnn.j2", view.tables, facts)


def _add_step_scores(view: View, query: Tensor, key: Tensor) -> tuple[str, float]:
    """Adds how the query is compared with the keys; returns the score's name and the factor that scales it."""
    attention = view.calls["attention"][view.step].module
    if isinstance(attention, AdditiveAttention):
        tanh, v = view.operation("", "tanh").output, attention.score.weight
        view.add_matrix("W", attention.query.weight.T)
        view.add_matrix("U", attention.key.weight.T)
        view.add("W q", view.call("query").output, "B T A")
        view.add("U k", key, "B S A")
        view.add("W q + U k", view.operation("", "add").output, "B T S A")
        view.add("tanh(W q + U k)", tanh, "B T S A")
        view.add_matrix("v", v, ["v"], f"A {v.size(-1)}")
        few = v.size(-1) <= SMALL
        worked = sum_of_products(v[0].detach().cpu(), view.part(tanh, "B T S A")[0]) if few else ""
        view.add_scores("e", view.scores, range(len(view.keys)), worked)
        return "additive", 1.0
    product, scaled = view.operation("", "matmul"), view.operation("", "mul")
    view.add("k", key, "B S Q")
    few = key.size(-1) <= SMALL
    worked = sum_of_products(view.part(query, "B T Q")[0], view.part(key, "B S Q")[0]) if few else ""
    view.add_scores("q . k", product.output, range(len(view.keys)), worked)
    view.add_scores("scores", scaled.output, range(len(view.keys)))
    return "bilinear" if isinstance(attention, BilinearAttention) else "dot-product", scaled.inputs[1]
