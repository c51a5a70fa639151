"""Tests laws that every model obeys, regardless of its layers. Equalities hold up to 1e-10 in float64."""

import math
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import BOS, EOS, PAD, SETTINGS, SIZES, TGT_VOCAB, T, real_ids, small, sources
from entente.decoding.search import search
from entente.models.birnn import BiRNN
from entente.models.build import build
from entente.models.seq2seq import Seq2Seq, Sizes, pad, parameter_count
from entente.models.transformer import Transformer
from entente.settings import SearchSettings
from numerics import logits, loss_of, tensors

# Decoding


def test_decoding_does_not_change_the_state_it_starts_from(model: Seq2Seq, src: Tensor, tgt: Tensor) -> None:
    _, state = model.decode(tgt[:, :5], model.encode(src))
    copies = [tensor.clone() for tensor in tensors(state)]
    first, _ = model.decode(tgt[:, 5:], state)
    second, _ = model.decode(tgt[:, 5:], state)
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(tensors(state), copies, strict=True))


# Causality


def test_changing_a_target_token_changes_every_position_from_it_on_and_none_before(
    model: Seq2Seq, src: Tensor, tgt: Tensor
) -> None:
    original = logits(model, src, tgt)
    for t in range(T):
        changed = tgt.clone()
        changed[:, t] = (tgt[:, t] + 5) % TGT_VOCAB
        result = logits(model, src, changed)
        assert torch.equal(result[:, :t], original[:, :t])
        assert bool(((result - original)[:, t:].abs().amax(-1) > 1e-9).all())


# Learning


def sentences(rows: int, vocabulary: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns random sources, the targets that the decoder reads (starting with BOS), and the targets that it must produce
    (ending with EOS)."""
    lengths = [length - i % 3 for i in range(rows)]
    src = sources(seed, vocabulary, lengths)
    words = [[max(4, word) for word in real_ids([n], vocabulary, seed + i).tolist()] for i, n in enumerate(lengths[::-1])]
    return src, pad([[BOS, *row] for row in words], PAD), pad([[*row, EOS] for row in words], PAD)


def test_each_model_memorises_one_batch_and_translates_it(name: str) -> None:
    src, read, produced = sentences(rows=7, vocabulary=TGT_VOCAB, length=9, seed=3)
    model = small(name, src_vocab=TGT_VOCAB, dropout=0.0).float().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(80):
        optimiser.zero_grad()
        loss = loss_of(model, src, read, produced)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    assert loss.item() < 0.01
    model.eval()
    expected = [[token for token in row if token not in (PAD, EOS)] for row in produced.tolist()]
    for settings in [SearchSettings(), SearchSettings(beam=3)]:
        assert [n_best[0].tokens for n_best in search(model, src, settings, BOS, EOS)] == expected


@pytest.mark.parametrize(("tied", "shared"), [(True, True), (True, False), (False, False)], ids=["shared", "tied", "untied"])
@pytest.mark.parametrize("width", ["default", "small"])
def test_an_untrained_model_knows_nothing(name: str, width: str, tied: bool, shared: bool) -> None:
    vocabulary = 499
    src, read, produced = sentences(rows=23, vocabulary=vocabulary, length=17, seed=4)
    sizes = SIZES[name] if width == "small" else {}
    model = build(SETTINGS[name](tied=tied, **sizes), Sizes(vocabulary, vocabulary, shared, PAD, seed=1)).eval()
    with torch.no_grad():
        assert loss_of(model, src, read, produced).item() == pytest.approx(math.log(vocabulary), rel=0.1)


def test_dropout_acts_in_training_only(name: str, src: Tensor, tgt: Tensor) -> None:
    model, without = small(name, spread=0.3, dropout=0.4), small(name, spread=0.3, dropout=0.0).train()
    assert torch.equal(model(src, tgt), without(src, tgt))
    model.train()
    state, other = model.encode(src), model.encode(src)
    assert not torch.allclose(model.decode(tgt, state)[0], model.decode(tgt, state)[0])
    for a, b in zip(tensors(state), tensors(other), strict=True):
        assert a.dtype == torch.bool or a.numel() == 0 or not torch.allclose(a, b)


def test_each_dropout_is_called_once_per_place_and_its_output_is_used(name: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.3, dropout=0.4, **({"attention_dropout": 0.2} if name == "transformer" else {}))
    calls: list[str] = []
    doubled = -1  # index of the call whose output is doubled, or -1 for none

    def hook(path: str, output: Tensor) -> Tensor:
        calls.append(path)
        return 2 * output if len(calls) - 1 == doubled else output

    for path, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p:
            assert module.p == (0.2 if path.endswith("attention.dropout") else 0.4)
            module.register_forward_hook(lambda _, __, output, path=path: hook(path, output))
    outputs = [logits(model, src, tgt)]
    places = Counter(calls)
    # On the embeddings of both sides, and on the BiRNN's memory and readout.
    assert places.pop("dropout") == (4 if name == "birnn" else 2)
    # After each sublayer, and on each attention's weights: 2 + 1 in each encoder block, and 3 + 2 in each decoder block.
    assert [*places.values()] == [1] * (0 if name == "birnn" else 2 * (3 + 5))
    for place in range(len(calls)):
        doubled = place
        calls.clear()
        outputs.append(logits(model, src, tgt))
    assert not any(torch.allclose(output, other) for output, other in combinations(outputs, 2))


def test_only_words_that_occur_teach_the_embedding_and_padding_never_does(name: str, src: Tensor, tgt: Tensor) -> None:
    """The embedding of padding receives no gradient, even if attention does not mask the padding."""
    changes = {"mask_future": False} if name == "transformer" else {}
    model = small(name, spread=0.3, tied=False, mask_padding=False, **changes).train()
    src, tgt = F.pad(src, (0, 2), value=PAD), F.pad(tgt, (0, 2), value=PAD)
    logits(model, src, tgt).square().sum().backward()
    for side, ids in (("src", src), ("tgt", tgt)):
        weight = model.get_submodule(f"{side}_embedding").weight
        occurs = torch.zeros(len(weight), dtype=torch.bool).index_fill(0, ids.flatten(), True)
        occurs[PAD] = False
        assert torch.equal((weight.grad != 0).any(-1), occurs)  # type: ignore[union-attr]


# Equal start


def test_another_seed_gives_another_start_and_no_two_parameters_start_equal(name: str) -> None:
    first, second = dict(small(name, tied=False).named_parameters()), dict(small(name, tied=False, seed=6).named_parameters())
    matrices = {path: parameter for path, parameter in first.items() if parameter.dim() > 1}
    assert len(matrices) > 5
    for path, parameter in matrices.items():
        assert not torch.equal(parameter, second[path])
        for other, value in matrices.items():
            assert path == other or parameter.shape != value.shape or not torch.equal(parameter, value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer", {"d_model": 256, "n_heads": 4, "score": "bilinear"}),
        *(("birnn", {"cell": cell, "d_embedding": 128, "d_hidden": 256, "d_attention": 256}) for cell in ("gru", "lstm")),
        ("birnn", {"cell": "lstm", "forget_bias": 0.0, "d_embedding": 128, "d_hidden": 256, "d_attention": 256}),
    ],
    ids=str,
)
def test_each_kind_of_parameter_starts_from_its_distribution(name: str, changes: dict[str, Any]) -> None:
    """Each gate and each head starts as a matrix of its own (Glorot & Bengio 2010, equation 16), although one parameter stacks
    the gates of a cell or the heads of a bilinear score."""
    model = small(name, src_vocab=499, tgt_vocab=499, tied=False, **changes)
    gates = 4 if changes.get("cell") == "lstm" else 3
    kinds = set()
    for path, parameter in model.named_parameters():
        owner, value = model.get_submodule(path.rpartition(".")[0]), parameter.detach()
        kinds.add(type(owner))
        if value.dim() == 1:
            expected = torch.full_like(value, isinstance(owner, nn.LayerNorm) and path.endswith("weight"))
            if gates == 4 and "bias_ih" in path:
                expected[256:512] = changes.get("forget_bias", 1)  # the forget gate remembers at first (Jozefowicz et al. 2015)
            assert torch.equal(value, expected), path
        elif isinstance(owner, nn.Embedding):
            std = {"transformer": 512**-0.5, "birnn": 0.02}[name]
            assert value.std().item() == pytest.approx(std, rel=0.05), path
            assert abs(value.mean().item()) < 0.05 * std, path
        elif "weight_hh" in path:
            matrices = value.unflatten(0, (gates, -1))
            for matrix in matrices:  # drawn in float32, and orthogonal only up to float32 rounding
                torch.testing.assert_close(matrix @ matrix.T, torch.eye(256, dtype=torch.float64), rtol=0, atol=1e-5)
            assert not torch.allclose(matrices[0], matrices[1])
        else:
            for matrix in value.unbind() if value.dim() == 3 else value.chunk(gates if "weight_ih" in path else 1):
                bound = math.sqrt(6 / sum(matrix.shape))
                assert matrix.abs().max().item() <= bound * (1 + 1e-6), path
                assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1), path
    assert len(kinds) == 4


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)], ids=str)
def test_a_model_in_a_narrow_type_computes_nearly_the_same(name: str, dtype: torch.dtype, rounding: float) -> None:
    """In bfloat16 and float16 (`trainer.precision=bf16-true` and `16-true`), the relative error of the outputs is less than 5
    times the relative rounding error of the type, even for long sentences."""
    asked: dict[str, Any] = {"mask_value": -1e9} if name == "transformer" else {}
    model, narrow = small(name, spread=0.05, **asked), small(name, spread=0.05, **asked).to(dtype)
    src, tgt = sources(lengths=(307, 5, 101)), real_ids([3, 211], TGT_VOCAB, seed=2)
    expected, actual = model(src, tgt), narrow(src, tgt)
    assert actual.dtype == dtype
    assert ((actual.double() - expected).norm(dim=-1) / expected.norm(dim=-1)).max().item() < 5 * rounding


# Parts that can be removed or shared


@pytest.mark.parametrize(
    ("tied", "shared", "matrices"), [(True, True, 1), (True, False, 2), (False, True, 3), (False, False, 3)], ids=str
)
def test_tied_embeddings_are_one_matrix(name: str, tied: bool, shared: bool, matrices: int) -> None:
    model = small(name, src_vocab=TGT_VOCAB, tied=tied, shared_vocab=shared)
    assert isinstance(model, Transformer | BiRNN)
    weights = [model.output.weight, model.tgt_embedding.weight, model.src_embedding.weight]
    assert len({weight.data_ptr() for weight in weights}) == matrices
    rest = sum(p.numel() for p in model.parameters() if all(p is not weight for weight in weights))
    assert parameter_count(model) == rest + matrices * model.output.weight.numel()
