"""Each ablation computes what its definition says, and breaks exactly the laws that broken_laws.py lists for it."""

import cmath
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional as F

from broken_laws import ABLATION_FILES, BROKEN, COMMANDS, model_settings
from conftest import LENGTHS, PAD, TGT_VOCAB, T, real_ids, small, sources
from entente.models.attention import AXIS, AttentionWeights, CosineScore, MultiHeadAttention, rotate
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Seq2Seq, select
from entente.models.transformer import LEARNED_POSITIONS, DecoderBlock, EncoderBlock, Transformer, sinusoids
from entente.settings import SoftmaxOver, TransformerSettings
from numerics import FUTURE, REAL, B, S, close, logits, logits_in_chunks, loss_of, normal, recorded, small_layer, tensors

PROJECTIONS = TransformerSettings().projections

each_variant = pytest.mark.parametrize(("name", "variant"), sorted(BROKEN))


def test_every_ablation_is_global_and_every_law_in_the_table_is_of_one() -> None:
    assert all(text.startswith("# @package _global_\n") for text in ABLATION_FILES.values() if yaml.safe_load(text))
    assert len(BROKEN) == sum(text.count("model=birnn)") + 1 for text in COMMANDS.values()), "BREAKS names another pair"


def test_the_modern_model_is_the_sum_of_its_parts() -> None:
    modern = yaml.safe_load((Path(__file__).parents[2] / "configs" / "model" / "modern.yaml").read_text())
    parts = [model_settings(part) for part in ("rms_norm", "swiglu", "rotary", "cosine_score", "zero_init")]
    together = {key: value for part in parts for key, value in part.items()}
    assert together == model_settings("modern") == {key: value for key, value in modern.items() if key != "defaults"}


# Laws. Each function returns by how much a model violates the law in the function's docstring


def max_difference(actual: Tensor, expected: Tensor) -> float:
    return (actual - expected).abs().max().item()


def chunks(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """Decoding in chunks equals decoding at once."""
    return max(max_difference(logits_in_chunks(model, src, tgt, sizes), logits(model, src, tgt)) for sizes in ([1] * T, [5, 8]))


def source_padding(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """More padding after the source does not change the logits."""
    return max_difference(logits(model, F.pad(src, (0, 7), value=PAD), tgt), logits(model, src, tgt))


def target_padding(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """Padding after the target does not change the logits of the target."""
    return max_difference(logits(model, src, F.pad(tgt, (0, 5), value=PAD))[:, :T], logits(model, src, tgt))


def alone(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """A sentence gets the same logits alone as in a batch."""
    each = [logits(model, src[b, None, :n], tgt[b, None]) for b, n in enumerate(LENGTHS)]
    return max_difference(torch.cat(each), logits(model, src, tgt))


def neighbours(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """The logits of a sentence do not depend on the words of the other sentences in the batch."""
    other_src, other_tgt = sources(seed=9), real_ids([B, T], TGT_VOCAB, seed=8)
    other_src[1], other_tgt[1] = src[1], tgt[1]
    return max_difference(logits(model, other_src, other_tgt)[1], logits(model, src, tgt)[1])


def causality(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """Changing a target token does not change the logits before its position."""
    changed = tgt.clone()
    changed[:, 7] = (tgt[:, 7] + 5) % TGT_VOCAB
    return max_difference(logits(model, src, changed)[:, :7], logits(model, src, tgt)[:, :7])


def attention(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """A query's weights sum to 1 over the real source tokens or, in decoder self-attention, over the target up to the query."""
    with recorded(model) as weights:
        model(src, tgt)
    violations = [0.0]
    for module, calls in weights.items():
        of_decoder = module.startswith("decoder") and "self_attention" in module
        allowed = ~FUTURE if of_decoder else REAL[:, None, None]
        violations += [((w.view(B, -1, *w.shape[-2:]) * allowed).sum(-1) - 1).abs().max().item() for w in calls]
    return max(violations)


def source_words(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """Every source word affects the logits. Returns 0 if so, else 1."""
    original = logits(model, src, tgt)
    reach = []
    for s in range(S):
        changed = torch.where(REAL & (torch.arange(S) == s), torch.where(src == 4, 5, 4), src)
        result = logits(model, changed, tgt)
        reach += [max_difference(result[b], original[b]) for b, length in enumerate(LENGTHS) if s < length]
    return float(min(reach) < 1e-6)


def source_order(model: Seq2Seq, src: Tensor, tgt: Tensor) -> float:
    """Reversing the source changes the logits. Returns 0 if so, else 1."""
    return float(max_difference(logits(model, src[:1].flip(1), tgt[:1]), logits(model, src[:1], tgt[:1])) < 1e-6)


LAWS: dict[str, Callable[[Seq2Seq, Tensor, Tensor], float]] = {
    law.__name__.replace("_", " "): law
    for law in (chunks, source_padding, target_padding, alone, neighbours, causality, attention, source_words, source_order)
}


@each_variant
def test_each_variant_breaks_exactly_the_expected_laws(name: str, variant: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.1, **model_settings(variant))
    with torch.no_grad():
        distance = {law: measure(model, src, tgt) for law, measure in LAWS.items()}
    assert {law for law, off in distance.items() if not off <= 1e-10} == BROKEN[name, variant], distance
    assert all(distance[law] > 1e-6 for law in BROKEN[name, variant]), distance


@each_variant
def test_the_rows_of_every_variants_state_can_be_selected(name: str, variant: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.1, **model_settings(variant))
    # With a softmax over the batch, the weights depend on which rows there are.
    selections = [] if variant == "softmax_batch" else [[1, 1, 3, 0, 0, 0, 1], [2]]
    for read, rows in product((0, 5), ([3, 0, 4, 2, 1], *selections)):
        order = torch.tensor(rows)
        state = model.decode(tgt[:, :read], model.encode(src))[1] if read else model.encode(src)
        assert {tensor.size(0) for tensor in tensors(state)} == {B}
        close(model.decode(tgt[order, read:], select(state, order))[0], model.decode(tgt[:, read:], state)[0][order])


# Equal start


# In evaluation, these variants equal the baseline: they change nothing, or only dropout, the loss or the learning rate.
SAME_MODEL = {"baseline", "no_dropout", "no_label_smoothing", "no_warmup"}
OTHER_START = {  # settings with which parameters start with other values than the baseline's, and the ends of their names
    ("zero_init", True): ["out.weight", "ff.2.weight"],
    ("equal_heads", True): [f"attention.{part}.weight" for part in ("query", "key", "value", "out")],
    ("embedding_scale", "initial"): ["embedding.weight"],
}


@each_variant
def test_every_variant_starts_from_the_baseline_and_computes_something_else(
    name: str, variant: str, src: Tensor, tgt: Tensor
) -> None:
    sizes, settings = {"n_layers": 3} if name == "transformer" else {}, model_settings(variant)
    baseline, model = small(name, **sizes), small(name, **{**sizes, **settings})
    theirs, ours = dict(baseline.named_parameters()), dict(model.named_parameters())
    common = [path for path in ours if path in theirs and ours[path].shape == theirs[path].shape]
    assert len(common) > 0.4 * len(ours) and any(ours[path].dim() > 1 for path in common)  # lstm has the fewest: 9 of 21
    other = {path for path in common if not torch.equal(ours[path], theirs[path])}
    expected = [ending for change, endings in OTHER_START.items() if change in settings.items() for ending in endings]
    assert other == {path for path in common if path.endswith(tuple(expected))}
    distance = max_difference(logits(model, src, tgt), logits(baseline, src, tgt))
    assert distance == 0 if variant in SAME_MODEL else distance > 1e-6


# Gradients


def has_no_effect(name: str, variant: str, path: str) -> bool:
    """Returns whether a parameter cannot change the loss. This is true of the source embedding and the encoder in a model
    without cross-attention, and of parameters that add the same constant to all inputs of a softmax:

    - over keys: the bias of the key projection, unless keys are rotated by position, which gives each key a different bias;
    - over queries: the biases of the query projection and of the norm before cross-attention.

    A softmax over the batch, additive or cosine scores, and a finite mask value leave no such parameters. The BiRNN has none,
    since its projections have no biases."""
    if variant == "no_cross_attention" and path.startswith(("src_", "encoder")):
        return True
    all_matter = {"additive_score", "cosine_score", "modern", "multiplied_mask", "softmax_batch", "weak_mask"}
    if name == "birnn" or variant in all_matter:
        return False
    if variant == "softmax_queries":
        return path.endswith(("attention.query.bias", "before.cross.bias"))
    if variant == "rotary":
        return path.endswith("cross_attention.key.bias")
    return path.endswith("attention.key.bias")


@each_variant
def test_the_gradient_reaches_exactly_the_parameters_in_use(name: str, variant: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.1, **model_settings(variant))
    loss_of(model, src, tgt[:, :-1], tgt[:, 1:]).backward()
    # Without residuals, attention makes positions ever more alike (Dong et al. 2021), so queries and keys get tiny gradients.
    bound = 0.0 if model_settings(variant).get("residual") == [] else 1e-9
    for path, parameter in model.named_parameters():
        gradient = torch.zeros(1) if parameter.grad is None else parameter.grad
        assert bool(gradient.isfinite().all()), path
        size = gradient.abs().max().item()
        assert size < 1e-12 if has_no_effect(name, variant, path) else size > bound, path


# Multi-head attention


SCORES: dict[str, Callable[[Any, list[float], list[float]], float]] = {  # functions of a head's parameters, a query and a key
    "additive": lambda v, q, k: sum(v[i] * math.tanh(q[i] + k[i]) for i in range(len(q))),
    "bilinear": lambda m, q, k: sum(q[i] * m[i][j] * k[j] for i in range(len(q)) for j in range(len(k))),
    "dot": lambda _, q, k: sum(q[i] * k[i] for i in range(len(q))),
    "cosine": lambda f, q, k: f * sum(q[i] * k[i] for i in range(len(q))) * len(q) / math.hypot(*q) / math.hypot(*k),
}
MASKS: dict[str, tuple[int, int, Tensor | None]] = {  # the numbers of queries and keys, and the mask
    "none": (2, 5, None),
    "padded": (2, 5, (torch.arange(5) < torch.tensor([[5], [3]]))[:, None, None, :]),
    "past": (5, 5, torch.ones(5, 5, dtype=torch.bool).tril()),
    "later": (2, 5, torch.ones(2, 5, dtype=torch.bool).tril(3)),
}


@pytest.mark.parametrize(
    ("score", "scale", "d_k", "mask"),
    [
        *((score, scale, 5, "padded") for score in SCORES for scale in ("d_k", "none")),
        *((score, "n_keys", None, mask) for score in ("additive", "dot") for mask in MASKS),
    ],
)
def test_each_score_and_scale_equals_its_scalars_head_by_head(score: Any, scale: Any, d_k: int | None, mask: str) -> None:
    queries, keys, allowed = MASKS[mask]
    layer = small_layer(MultiHeadAttention, d_k=d_k, score=score, scale=scale)
    width = d_k or 7
    assert {layer.get_submodule(projection).weight.shape for projection in PROJECTIONS} == {(3 * width, 21)}
    x, source = normal(2, queries, 21, seed=1), normal(2, keys, 21, seed=2)
    actual = layer(x, layer.project(source), allowed)
    visible = torch.ones(2, 1, queries, keys, dtype=torch.bool) if allowed is None else allowed.expand(2, 1, queries, keys)
    learned = [None] * 3 if score == "dot" else next(layer.score.parameters()).tolist() * (3 if score == "cosine" else 1)
    q, k, v = (part.unflatten(-1, (3, width)) for part in (layer.query(x), layer.key(source), layer.value(source)))
    for b in range(2):
        for t in range(queries):
            s = visible[b, 0, t].nonzero()[:, 0]
            factor = {"d_k": width**-0.5, "none": 1.0, "n_keys": len(s) ** -0.5}[scale] if score != "additive" else 1.0
            heads = []
            for h in range(3):
                e = [SCORES[score](learned[h], q[b, t, h].tolist(), k[b, j, h].tolist()) * factor for j in s]
                alpha = [math.exp(e_j) / sum(map(math.exp, e)) for e_j in e]
                heads.append(sum(a * v[b, j, h] for a, j in zip(alpha, s, strict=True)))
            close(actual[b, t], layer.out(torch.cat(heads)))


@pytest.mark.parametrize("identity", [PROJECTIONS, ["key", "value"], ["query"], ["out"]], ids=str)
def test_a_projection_that_is_not_learned_is_the_identity(identity: Any) -> None:
    learned = [name for name in PROJECTIONS if name not in identity]
    ours = small_layer(MultiHeadAttention, projections=learned, output_projection="out" not in identity)
    full = small_layer(MultiHeadAttention)
    full.load_state_dict(ours.state_dict(), strict=False)
    for name in identity:
        assert not any(parameter.startswith(name) for parameter in ours.state_dict())
        nn.init.eye_(full.get_submodule(name).weight)
        nn.init.zeros_(full.get_submodule(name).bias)
    query, source, mask = normal(B, T, 21, seed=1), normal(B, S, 21, seed=2), REAL[:, None, None, :]
    close(ours(query, ours.project(source), mask), full(query, full.project(source), mask))


def test_a_sliced_projection_equals_a_block_diagonal_matrix() -> None:
    ours, full = small_layer(MultiHeadAttention, sliced_heads=True), small_layer(MultiHeadAttention)
    full.load_state_dict({name: value for name, value in ours.state_dict().items() if value.shape[-1] == 21}, strict=False)
    for projection in PROJECTIONS:
        blocks = ours.get_submodule(projection).weight.detach().split(7)  # 3 heads of width 7
        full.get_submodule(projection).weight.data = torch.block_diag(*blocks)
    query, source, mask = normal(B, T, 21, seed=1), normal(B, S, 21, seed=2), REAL[:, None, None, :]
    close(ours(query, ours.project(source), mask), full(query, full.project(source), mask))


@pytest.mark.parametrize("score", SCORES)
def test_heads_that_start_equal_stay_equal(score: str, src: Tensor, tgt: Tensor) -> None:
    model = small("transformer", equal_heads=True, score=score)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model, src, tgt[:, :-1], tgt[:, 1:]).backward()
        optimizer.step()
    for layer in (module for module in model.modules() if isinstance(module, MultiHeadAttention)):
        heads = layer.query(normal(B, T, layer.out.out_features)).unflatten(-1, (layer.n_heads, -1))
        assert (heads - heads[..., :1, :]).abs().max() < 1e-9 < heads.std()


@pytest.mark.parametrize("scale", ["none", "initial"])
def test_unmultiplied_embeddings_equal_multiplied_ones_with_other_values(scale: Any, src: Tensor, tgt: Tensor) -> None:
    """In a model whose output is not tied. Initial values are drawn in float32, so those of `initial` are equal to 1e-7."""
    ours, baseline = small("transformer", tied=False, embedding_scale=scale), small("transformer", tied=False)
    width, weights = baseline.get_submodule("tgt_embedding").weight.size(1), baseline.state_dict()
    for side in ("src", "tgt"):
        if scale == "none":
            weights[f"{side}_embedding.weight"] /= math.sqrt(width)
    baseline.load_state_dict(weights)
    assert max_difference(logits(ours, src, tgt), logits(baseline, src, tgt)) < (1e-10 if scale == "none" else 1e-6)


# Masks


@pytest.mark.parametrize("hidden", ["padding", "future", "both"])
@pytest.mark.parametrize("softmax", ["queries", "batch"])
def test_columns_sum_to_1_over_the_visible_queries_and_to_0_without_any(softmax: SoftmaxOver, hidden: str) -> None:
    real = (torch.arange(T) < torch.tensor(LENGTHS)[:, None])[:, None, None, :]  # the last two tokens are padding in every row
    mask = {"padding": real, "future": ~FUTURE, "both": real & ~FUTURE}[hidden]
    scores = (3 * normal(B, 2, T, T)).requires_grad_()
    weights = AttentionWeights(softmax)(scores, mask)
    shares = scores.exp() * mask
    total = shares.sum(AXIS[softmax], keepdim=True)
    assert bool((total == 0).any()) != (softmax == "queries" and hidden == "future")  # the last query sees all keys
    close(weights, shares / total.where(total > 0, 1.0))
    (gradient,) = torch.autograd.grad((weights * normal(B, 2, T, T, seed=1)).sum(), scores)
    masked = ~mask.expand_as(weights)
    assert not weights[masked].any() and not gradient[masked].any() and gradient.isfinite().all()


@pytest.mark.parametrize("mask_value", [0.0, -2.0, -1e9])
@pytest.mark.parametrize("softmax", ["keys", "queries", "batch"])
def test_a_finite_mask_value_takes_its_share_of_the_softmax(softmax: SoftmaxOver, mask_value: float) -> None:
    scores, mask = normal(5, 3, T, T), ~FUTURE
    expected = scores.masked_fill(FUTURE, mask_value).softmax(AXIS[softmax])
    close(AttentionWeights(softmax, mask_value)(scores, mask), expected if softmax == "keys" else expected * mask)


# The Transformer's other parts


def decode_by_blocks(model: Transformer, x: Tensor, y: Tensor, src_mask: Tensor | None, causal: Tensor | None) -> Tensor:
    """Returns the hidden vectors of the decoder, computed block by block from the embedded source x and target y."""
    for block in model.encoder:
        x = block(x, src_mask)
    memory = model.encoder_norm(x)
    for block in model.decoder:
        assert isinstance(block, DecoderBlock)
        y, _ = block(y, block.self_attention.project(y[:, :0]), block.project(memory), causal, src_mask)
    return model.decoder_norm(y)


def test_learned_positions_are_rows_of_a_table_and_its_last_row_beyond_its_end() -> None:
    model = small("transformer", spread=0.3, n_layers=1, positions="learned")
    assert isinstance(model, Transformer)
    long = LEARNED_POSITIONS + 7
    src, tgt = sources(lengths=(long, long - 11)), real_ids([2, long], TGT_VOCAB, seed=2)
    row = [*range(LEARNED_POSITIONS), *[LEARNED_POSITIONS - 1] * 7]
    x = (model.src_embedding(src) + model.src_position.weight[row]) * math.sqrt(21)
    y = (model.tgt_embedding(tgt) + model.tgt_position.weight[row]) * math.sqrt(21)
    with torch.no_grad():
        src_mask, causal = (src != PAD)[:, None, None, :], torch.ones(long, long, dtype=torch.bool).tril()
        expected = decode_by_blocks(model, x, y, src_mask, causal)
        close(model(src, tgt), expected)
        close(logits_in_chunks(model, src, tgt, [LEARNED_POSITIONS - 2, 1, 1, 1, 6]), model.output(expected))


def test_without_positions_the_embeddings_are_all_that_blocks_read() -> None:
    model: Any = small("transformer", spread=0.3, positions="none")
    src, tgt = sources(lengths=(7, 7)), real_ids([2, T], TGT_VOCAB, seed=2)
    x, y = model.src_embedding(src) * math.sqrt(21), model.tgt_embedding(tgt) * math.sqrt(21)
    close(model(src, tgt), decode_by_blocks(model, x, y, None, ~FUTURE))


@pytest.mark.parametrize("width", [1, 2, 7, 12])
def test_rotated_vectors_equal_points_turned_in_the_complex_plane(width: int) -> None:
    x, half = normal(2, 3, 11, width), width // 2
    actual = rotate(x, start=5)
    for t in range(11):
        for i in range(half):
            turned = torch.complex(x[..., t, i], x[..., t, i + half]) * cmath.exp(1j * (5 + t) / 10_000 ** (i / half))
            close(torch.view_as_real(turned), torch.stack([actual[..., t, i], actual[..., t, i + half]], -1))
    close(actual[..., 2 * half :], x[..., 2 * half :])
    close(actual.norm(dim=-1), x.norm(dim=-1))


def test_rotary_positions_are_in_self_attention_alone() -> None:
    model: Any = small("transformer", positions="rotary")
    rotary = {name.split(".")[-1] for name, module in model.named_modules() if getattr(module, "rotary", False)}
    value = model.encode(torch.full((1, 4), 5)).source.kv[0].value
    assert rotary == {"self_attention"}
    close(value[:, :, 1:], value[:, :, :-1])


def test_the_factor_of_cosine_scores_starts_at_1() -> None:
    model = small("transformer", score="cosine")
    assert {module.factor.item() for module in model.modules() if isinstance(module, CosineScore)} == {1.0}


def test_swiglu_is_the_product_of_a_linear_layer_and_a_gate() -> None:
    block = small_layer(EncoderBlock, activation="swiglu")
    assert block.ff[2].in_features == 19  # 3 * 21 * 19 weights, nearly the 2 * 21 * 29 of ReLU
    x = normal(2, 5, 21)
    (v, c), (w, b) = zip(block.ff[0].weight.chunk(2), block.ff[0].bias.chunk(2), strict=True)
    gate = x @ w.T + b
    close(block.ff(x), (x @ v.T + c) * gate / (1 + torch.exp(-gate)) @ block.ff[2].weight.T + block.ff[2].bias)


def test_with_zero_init_every_block_starts_as_the_identity(src: Tensor, tgt: Tensor) -> None:
    model: Any = small("transformer", zero_init=True)
    value = model.decoder[0].cross_attention.project(model.encoder_norm(model._embed("src", src, start=0))).value
    close(model.encode(src).source.kv[0].value, value)
    close(model(src, tgt), model.decoder_norm(model._embed("tgt", tgt, start=0)))
    assert {name for name, p in model.named_parameters() if p.dim() > 1 and not p.any()} == {
        name for name, _ in model.named_parameters() if name.endswith(("out.weight", "ff.2.weight"))
    }


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("future", [True, False])
def test_a_transformer_equals_its_blocks_whatever_its_masks(src: Tensor, tgt: Tensor, padding: bool, future: bool) -> None:
    model = small("transformer", spread=0.3, mask_padding=padding, mask_future=future)
    assert isinstance(model, Transformer)
    tgt[1:, 5:] = PAD
    x = model.src_embedding(src) * math.sqrt(21) + sinusoids(0, S, 21, like=normal(1))
    y = model.tgt_embedding(tgt) * math.sqrt(21) + sinusoids(0, T, 21, like=normal(1))
    src_mask, causal = REAL[:, None, None, :] if padding else None, ~FUTURE if future else None
    close(model(src, tgt), decode_by_blocks(model, x, y, src_mask, causal))
    assert isinstance(model.encoder_norm, nn.LayerNorm) and isinstance(model.decoder_norm, nn.LayerNorm)


@pytest.mark.parametrize(
    ("norm", "residual", "sublayers"),
    [
        *(("pre", ["self", "cross", "ff"], names) for names in (["self"], ["self", "ff"], ["cross", "self"])),
        *((norm, residual, ["self", "cross", "ff"]) for norm in ("pre", "post", "none") for residual in ([], ["cross"])),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_a_block_applies_its_sublayers_with_their_norms_and_residuals_one_after_the_other(
    kind: type[EncoderBlock | DecoderBlock], norm: str, residual: Any, sublayers: Any
) -> None:
    block: Any = small_layer(kind, residual=residual, norm=norm, sublayers=sublayers)
    names = [name for name in ("self", "cross", "ff") if name in sublayers and name in kind.names]
    layers = {name: block.get_submodule("ff" if name == "ff" else f"{name}_attention") for name in names}
    assert sum(isinstance(module, nn.LayerNorm) for module in block.modules()) == (0 if norm == "none" else len(names))
    x, memory, mask = normal(B, T, 21, seed=1), normal(B, S, 21, seed=2), REAL[:, None, None, :]
    expected = x
    for name, layer in layers.items():
        h = block.before[name](expected)
        sources = {"self": (layer.project(h), ~FUTURE), "cross": (layer.project(memory), mask)}[name] if name != "ff" else ()
        expected = block.after[name](layer(h, *sources) + (expected if name in residual else 0))
    if kind is EncoderBlock:
        close(block(x, ~FUTURE), expected)
    else:
        close(block(x, block.self_attention.project(x[:, :0]), block.project(memory), ~FUTURE, mask)[0], expected)


# The BiRNN


def encode_by_cell(model: BiRNN, words: Tensor, suffix: str) -> tuple[list[Tensor], Tensor]:
    """Runs one direction of the encoder with torch's GRUCell or LSTMCell: backward if suffix is `_reverse`, else forward.
    Returns the states, each (D), in the order of the words, and the last state that was computed."""
    cell: nn.Module = nn.LSTMCell(17, 19) if isinstance(model.encoder, nn.LSTM) else nn.GRUCell(17, 19)
    weights = model.encoder.state_dict()
    cell.double().load_state_dict({n: weights[f"{n}_l0{suffix}"] for n in cell.state_dict()})
    states: list[Tensor] = []
    state = None
    for word in words.flip(0) if suffix else words:
        state = cell(model.src_embedding(word), state)
        states.append(state[0] if isinstance(state, tuple) else state)
    return states[::-1] if suffix else states, states[-1]


@pytest.mark.parametrize(("cell", "readout"), [("gru", "maxout"), ("lstm", "residual"), ("gru", "context")])
@pytest.mark.parametrize("bidirectional", [True, False], ids=["both directions", "one direction"])
@pytest.mark.parametrize("score", ["additive", "dot", "bilinear", "none"])
def test_every_birnn_equals_torchs_cells_run_step_by_step(score: str, cell: str, bidirectional: bool, readout: str) -> None:
    model = small("birnn", spread=0.3, score=score, cell=cell, bidirectional=bidirectional, readout=readout)
    assert isinstance(model, BiRNN)
    assert any(isinstance(m, AttentionWeights) for m in model.modules()) == (score != "none")
    src, tgt = sources(lengths=(5, 1, 3)), real_ids([3, 7], TGT_VOCAB, seed=2)
    actual = model(src, tgt)
    at = model.attention
    for b, length in enumerate([5, 1, 3]):
        right, last = encode_by_cell(model, src[b, :length], "")
        lasts, h = [last], [[state] for state in right]
        if bidirectional:
            left, last = encode_by_cell(model, src[b, :length], "_reverse")
            lasts, h = [*lasts, last], [[*states] for states in zip(right, left, strict=True)]
        s = torch.tanh(model.first_hidden(last))
        c = torch.zeros_like(s)
        for t, word in enumerate(tgt[b]):
            if score == "none":
                context = torch.cat(lasts)
            else:
                e = []
                for parts in h:
                    h_j = torch.cat(parts)
                    if score == "dot":
                        e.append(sum((s * part).sum() for part in parts))
                    elif score == "bilinear":
                        e.append((s[:, None] * at.key.weight * h_j).sum())
                    else:
                        e.append((at.score.weight[0] * torch.tanh(at.query.weight @ s + at.key.weight @ h_j)).sum())
                total = sum(e_j.exp() for e_j in e)
                context = sum(e_j.exp() / total * torch.cat(parts) for e_j, parts in zip(e, h, strict=True))
            y = model.tgt_embedding(word)
            if cell == "lstm":
                s, c = model.cell(torch.cat([y, context]), (s, c))
            else:
                s = model.cell(torch.cat([y, context]), s)
            if readout == "maxout":
                expected = model.readout(torch.cat([s, y, context])).view(17, 2).max(-1).values
            else:
                expected = model.readout(model.context(context) + (s if readout == "residual" else 0))
            close(actual[b, t], expected)
