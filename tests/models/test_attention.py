"""Tests that attention weights are distributions over visible tokens, and that layers equal independent implementations."""

import math

import pytest
import torch
from torch import Tensor, nn

from conftest import T, small
from entente.models.attention import AttentionWeights, MultiHeadAttention
from entente.models.transformer import DecoderBlock, EncoderBlock, sinusoids
from entente.settings import SoftmaxOver
from numerics import FUTURE, REAL, B, S, close, normal, recorded, small_layer


def assert_distributions(weights: Tensor, allowed: Tensor) -> None:
    allowed = allowed.expand_as(weights)
    close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert bool((weights[~allowed] == 0).all())
    assert bool((weights[allowed] > 0).all())


# Attention weights


def test_each_attention_sees_real_tokens_and_the_past_only(name: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.3)
    with recorded(model) as weights:
        model(src, tgt)
    real = REAL[:, None, None, :]
    kinds = {"encoder.{}.self": (S, S, real), "decoder.{}.self": (T, T, ~FUTURE), "decoder.{}.cross": (T, S, real)}
    expected = {f"{kind.format(i)}_attention.weights": shape for kind, shape in kinds.items() for i in range(2)}
    if name == "birnn":
        assert len(weights["attention.weights"]) == T, "one alignment for each target token"
        weights["attention.weights"] = [torch.stack(weights["attention.weights"], 2)]
        expected = {"attention.weights": (T, S, real)}
    assert weights.keys() == expected.keys()
    for path, (queries, keys, allowed) in expected.items():
        [of_module] = weights[path]
        assert of_module.shape == (B, 3 if name == "transformer" else 1, queries, keys)
        assert_distributions(of_module, allowed)


def test_weights_are_recorded_before_dropout() -> None:
    attention = small_layer(MultiHeadAttention, attention_dropout=0.5).train()
    x = normal(B, S, 21)
    dropped: list[Tensor] = []
    attention.dropout.register_forward_pre_hook(lambda _, inputs: dropped.extend(inputs))
    with recorded(attention) as outputs:
        first, second = (attention(x, attention.project(x), REAL[:, None, None, :]) for _ in range(2))
    assert not torch.allclose(first, second)
    assert len(dropped) == 2 and all(map(torch.equal, dropped, outputs["weights"]))
    for weights in outputs["weights"]:
        assert_distributions(weights, REAL[:, None, None, :])


@pytest.mark.parametrize("softmax", ["keys", "queries", "batch"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mask_value", [-1e9, -1e300])
def test_a_mask_value_out_of_range_hides_like_minus_infinity(
    mask_value: float, dtype: torch.dtype, softmax: SoftmaxOver
) -> None:
    scores = 3 * normal(B, 3, T, S).to(dtype)
    mask = REAL[:, None, None, :]
    weights = AttentionWeights(softmax, mask_value)(scores, mask)
    assert weights.dtype == dtype
    assert torch.equal(weights, AttentionWeights(softmax)(scores, mask))


# Independent implementations


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    parts = [ours.query, ours.key, ours.value]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("d_model", [1, 7, 12])
def test_positions_equal_the_formula_of_section_3_5(d_model: int, start: int) -> None:
    actual = sinusoids(start, 23, d_model, like=normal(1))
    for position in range(start, start + 23):
        for i in range(d_model):
            angle = position / 10_000 ** ((i - i % 2) / d_model)  # even dimensions are sines, odd ones are cosines
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert actual[position - start, i].item() == pytest.approx(expected, abs=1e-10)


def copy_block(theirs: nn.Module, ours: EncoderBlock | DecoderBlock, norm: str) -> None:
    """Copies the weights of the self-attention, the feed-forward network and the norms from our block to torch's layer."""
    norms = ours.before if norm == "pre" else ours.after
    copy_attention(theirs.get_submodule("self_attn"), ours.self_attention)  # type: ignore[arg-type]
    for i, module in enumerate(norms.values(), start=1):
        theirs.get_submodule(f"norm{i}").load_state_dict(module.state_dict())
    theirs.get_submodule("linear1").load_state_dict(ours.ff[0].state_dict())
    theirs.get_submodule("linear2").load_state_dict(ours.ff[2].state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_blocks_equal_torchs(norm: str) -> None:
    pre, x, source = norm == "pre", normal(B, T, 21, seed=1), normal(B, S, 21, seed=2)
    encoder, decoder = small_layer(EncoderBlock, norm=norm), small_layer(DecoderBlock, norm=norm)
    of_encoder = nn.TransformerEncoderLayer(21, 3, 29, dropout=0.0, batch_first=True, norm_first=pre).double()
    copy_block(of_encoder, encoder, norm)
    close(encoder(source, REAL[:, None, None, :])[REAL], of_encoder(source, src_key_padding_mask=~REAL)[REAL])
    of_decoder = nn.TransformerDecoderLayer(21, 3, 29, dropout=0.0, batch_first=True, norm_first=pre).double()
    copy_block(of_decoder, decoder, norm)
    copy_attention(of_decoder.multihead_attn, decoder.cross_attention)
    nothing, memory = decoder.self_attention.project(x[:, :0]), decoder.cross_attention.project(source)
    actual, past = decoder(x, nothing, memory, ~FUTURE, REAL[:, None, None, :])
    close(actual, of_decoder(x, source, tgt_mask=FUTURE, memory_key_padding_mask=~REAL))
    assert past.key.shape == past.value.shape == (B, 3, T, 7)
