"""Tests that the fast implementations compute the same results as the plain ones."""

import ctypes
import inspect
import math
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn import functional as F

import entente.fast.attach as fast
from conftest import PAD, SIZES, small
from entente import process
from entente.checkpoint import build
from entente.data import tokenizer
from entente.decoding.search import GROUP_SIZE, Search, largest
from entente.decoding.translate import parallel_map, translate
from entente.fast import recurrent
from entente.fast.attach import LOSS_ROWS, attach, is_standard, loss, packed
from entente.models import BiRNN, Seq2Seq, Transformer, attention
from entente.models.attention import PROJECTIONS, MultiHeadAttention
from entente.models.seq2seq import Loss, State, causal_mask, select
from numerics import B, close
from tiny import write_corpus


def plain_and_fast(model: Any) -> Iterator[Any]:
    """Yields the model as it was built, then the same model with its fast implementations."""
    yield model
    yield attach(model)


# The loss


def projected_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> Loss:
    """Returns the fast loss of a model whose output projection has this weight and no bias."""
    model: Any = SimpleNamespace(output=SimpleNamespace(weight=weight, bias=None))
    return loss(model, hidden, target, label_smoothing)


@pytest.mark.parametrize("n", [1, 7, LOSS_ROWS, 2 * LOSS_ROWS + 13])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_projection_and_loss_in_blocks_equal_torchs_loss_of_all_logits(n: int, label_smoothing: float) -> None:
    generator = torch.Generator().manual_seed(n)
    hidden, weight = (torch.randn(rows, 11, generator=generator, dtype=torch.float64).requires_grad_() for rows in (n, 101))
    target = torch.randint(101, (n,), generator=generator)
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, target, label_smoothing=label_smoothing)
    gradients = torch.autograd.grad(3 * expected, (hidden, weight))
    found = projected_cross_entropy(hidden, weight, target, label_smoothing)
    close(found.smoothed, expected)
    close(found.nll, F.cross_entropy(logits, target))
    assert not found.nll.requires_grad
    for actual, plain in zip(torch.autograd.grad(3 * found.smoothed, (hidden, weight)), gradients, strict=True):
        close(actual, plain)
    with torch.no_grad():
        assert projected_cross_entropy(hidden, weight, target, label_smoothing) == (found.smoothed, found.nll)


def test_an_output_projection_with_a_bias_has_the_plain_loss(model: Seq2Seq) -> None:
    model.output = torch.nn.Linear(model.output.in_features, model.output.out_features).double()
    hidden, target = torch.randn(7, model.output.in_features, dtype=torch.float64), torch.arange(7)
    close(loss(model, hidden, target).nll, F.cross_entropy(model.output(hidden), target))


def test_gradients_that_underflow_in_float16_are_computed_with_the_loss_scale() -> None:
    generator = torch.Generator().manual_seed(7)
    hidden, weight = (torch.randn(rows, 11, generator=generator).requires_grad_() for rows in (2 * LOSS_ROWS + 13, 1009))
    target = torch.randint(1009, (len(hidden),), generator=generator)
    expected = torch.autograd.grad(F.cross_entropy(hidden @ weight.T, target, label_smoothing=0.1), (hidden, weight))
    with torch.autocast("cpu", torch.float16):
        found = projected_cross_entropy(hidden, weight, target, 0.1)
    scale = 2.0**16
    for actual, plain in zip(torch.autograd.grad(scale * found.smoothed, (hidden, weight)), expected, strict=True):
        assert (actual / scale - plain).norm() < 2e-3 * plain.norm()


def test_the_loss_stays_finite_when_probabilities_underflow() -> None:
    hidden, weight = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[0.0], [500.0], [-500.0]])
    found = projected_cross_entropy(hidden, weight, torch.tensor([2]), 0.0)
    assert found.smoothed.item() == 1000
    assert torch.autograd.grad(found.smoothed, hidden)[0].item() == 1000


def test_under_autocast_the_loss_is_computed_in_float32() -> None:
    hidden, weight = torch.randn(23, 11, requires_grad=True), torch.randn(101, 11, requires_grad=True)
    target = torch.randint(101, (23,))
    with torch.autocast("cpu", torch.bfloat16):
        found = projected_cross_entropy(hidden, weight, target, 0.1)
        expected = F.cross_entropy((hidden @ weight.T).float(), target, label_smoothing=0.1)
    assert found.smoothed.dtype == torch.float32
    torch.testing.assert_close(found.smoothed, expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(found.smoothed, (hidden, weight))
    for actual, plain in zip(gradients, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, plain, rtol=0.05, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_without_autocast_products_keep_their_precision_and_the_loss_is_summed_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    hidden, weight = (torch.randn(rows, 11, generator=generator).to(dtype).requires_grad_() for rows in (LOSS_ROWS + 13, 101))
    target = torch.randint(101, (len(hidden),), generator=generator)
    found = projected_cross_entropy(hidden, weight, target, 0.1)
    assert found.smoothed.dtype == found.nll.dtype == torch.float32
    expected = F.cross_entropy((hidden @ weight.T).float(), target, label_smoothing=0.1)
    torch.testing.assert_close(found.smoothed, expected, rtol=1e-5, atol=1e-5)


# Dropout


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("p", [0.1, 0.25, 0.9])
@pytest.mark.parametrize("shape", [(1009, 101), (503, 3, 67)], ids=str)
def test_dropout_drops_the_asked_share_and_keeps_the_mean(p: float, shape: tuple[int, ...], fast: bool) -> None:
    torch.manual_seed(7)
    x = torch.full(shape, 2.0, requires_grad=True)
    y = attach(nn.Dropout(p))(x) if fast else nn.Dropout(p)(x)
    dropped = (y == 0).double()
    n = x.numel()
    assert abs(dropped.mean().item() - p) < 5 * math.sqrt(p * (1 - p) / n)
    rounded = round(p * 65536) / 65536 if fast else p
    torch.testing.assert_close(y[y != 0].unique(), torch.tensor([2 / (1 - rounded)]))
    for lag in (1, 2, 3, 4, 101):  # neighbouring elements use parts of one random number, but must be independent
        flat = dropped.flatten() - dropped.mean()
        assert abs((flat[lag:] * flat[:-lag]).mean().item()) < 5 * p * (1 - p) / math.sqrt(n)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach() / 2)


def test_extreme_rates_of_dropout_are_exact() -> None:
    torch.manual_seed(7)
    x = torch.ones(64 * 65536)
    for p, count in [(2**-16, lambda y: (y == 0).sum()), (1 - 2**-16, lambda y: (y != 0).sum())]:
        assert abs(int(count(attach(nn.Dropout(p))(x))) - 64) < 5 * 8
    assert bool(attach(nn.Dropout(1 - 1e-9))(x).isfinite().all())


def test_dropout_is_a_function_of_the_random_state_and_leaves_evaluation_alone() -> None:
    layer, x = attach(nn.Dropout(0.3)), torch.randn(5, 7, 11, dtype=torch.float64)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first) and not torch.equal(first, second)
    state = torch.get_rng_state()
    assert layer.eval()(x) is x and attach(nn.Dropout(0.0))(x) is x
    assert torch.equal(torch.get_rng_state(), state)


# Attention


@pytest.mark.parametrize(("d_model", "n_heads"), [(12, 3), (12, 1), (35, 5)])
@pytest.mark.parametrize("kind", ["padding", "causal", None])
def test_the_fused_attention_of_training_equals_the_steps(
    kind: str | None, d_model: int, n_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = MultiHeadAttention(d_model, n_heads, projections=[*PROJECTIONS]).double()  # a list, as in a configuration
    attach(layer)
    nn.init.normal_(layer.query.bias)
    x, y = (torch.randn(5, n, d_model, dtype=torch.float64, requires_grad=True) for n in (7, 11))
    mask = {"padding": torch.rand(5, 1, 1, 11) < 0.7, "causal": causal_mask(7, 4, x.device), None: None}[kind]
    if mask is not None:
        mask[..., 0] = True
    inputs = (x, y, *layer.parameters())

    def results() -> tuple[Tensor, ...]:
        out = layer(x, layer.project(y), mask)
        return out, *torch.autograd.grad(out.square().sum(), inputs)

    plain = results()
    called: list[Any] = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(fast, "UNFUSED_DEVICES", set())
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: called.append(a) or kernel(*a, **k))
    for actual, expected in zip(results(), plain, strict=True):
        close(actual, expected)
    assert called
    called.clear()
    close(layer.eval()(x, layer.project(y), mask), plain[0])
    assert not called  # evaluation does not use the fused kernel


# Values of MultiHeadAttention's arguments, other than the defaults, that the fused kernel does not support.
NOT_FUSED: dict[str, list[Any]] = {
    "d_k": [3, 5],  # not 4, because the default, None, means 4 in this layer
    "score": ["additive", "bilinear", "cosine"],
    "scale": ["none", "n_keys"],
    "projections": [[], ["query", "value"]],
    "softmax": ["queries", "batch"],
    "mask_value": [-9.0, -1e9],
}


def fused_calls(layer: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls the layer in training mode with fusion enabled on CPU, and returns the keyword arguments of the kernel's calls."""
    calls: list[dict[str, Any]] = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(fast, "UNFUSED_DEVICES", set())
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(k) or kernel(*a, **k))
    attach(layer)
    x = torch.randn(5, 7, 12)
    layer(x, layer.project(x), causal_mask(7, 0, x.device))
    return calls


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NOT_FUSED.items() for value in values], ids=str)
def test_attention_other_than_the_standard_one_is_never_fused(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not fused_calls(MultiHeadAttention(12, 3, **{name: value}), monkeypatch)


def test_every_argument_of_attention_is_passed_to_the_kernel_or_prevents_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = inspect.signature(MultiHeadAttention).parameters
    assert set(arguments) == {"d_model", "n_heads", "dropout", "rotary", *NOT_FUSED}
    assert all(arguments[name].default not in values for name, values in NOT_FUSED.items())
    assert fused_calls(MultiHeadAttention(12, 3, dropout=0.25), monkeypatch) == [{"dropout_p": 0.25}]
    assert fused_calls(MultiHeadAttention(12, 3, dropout=0.25, rotary=True), monkeypatch) == [{"dropout_p": 0.25}]


@pytest.mark.parametrize(
    "kept",
    [
        "self._tomorrow = tomorrow",
        "self.weights.tomorrow = tomorrow",
        "self.bias = nn.Parameter(torch.zeros(round(10 * tomorrow)))",
        "self.out = nn.Linear(d_model, d_model, bias=tomorrow < 0.6)",
    ],
)
def test_an_argument_added_later_prevents_fusion(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new argument of MultiHeadAttention prevents fusion if its value is not the default, even if the layer keeps the value
    only in a submodule, or in the number or the shape of its parameters."""
    source = inspect.getsource(MultiHeadAttention)
    names = vars(attention)
    monkeypatch.setitem(names, "MultiHeadAttention", MultiHeadAttention)
    for place, added in [
        ("mask_value: float | None = None,\n", "        tomorrow: float = 0.5,\n"),
        ("self.out = nn.Linear(n_heads * width, d_model)  # W_o\n", f"        {kept}\n"),
    ]:
        assert source.count(place) == 1
        source = source.replace(place, place + added)
    exec(source, names)
    extended: Any = attention.MultiHeadAttention
    assert extended is not MultiHeadAttention
    monkeypatch.setattr(fast, "MultiHeadAttention", extended)
    assert is_standard(extended(12, 3)) and is_standard(extended(12, 3, tomorrow=0.5))
    assert not is_standard(extended(12, 3, tomorrow=0.7))


def test_a_subclass_or_a_changed_layer_is_not_fused() -> None:
    class Doubled(MultiHeadAttention):
        pass

    assert is_standard(MultiHeadAttention(12, 3)) and not is_standard(Doubled(12, 3))
    narrower = MultiHeadAttention(12, 3)
    narrower.key = nn.Linear(7, 12)
    assert not is_standard(narrower)


# The BiRNN's loops


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False], ids=["both directions", "one direction"])
@pytest.mark.parametrize("devices", [{"cpu"}, set()], ids=["for CPUs", "for GPUs"])  # each also runs on a CPU
def test_the_fast_encoder_equals_torchs_network_on_packed_sentences(
    devices: set[str], cell: str, bidirectional: bool, src: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "STEP_DEVICES", devices)
    model: Any = small("birnn", spread=0.3, cell=cell, bidirectional=bidirectional)
    embedded = torch.randn(*src.shape, SIZES["birnn"]["d_embedding"], dtype=torch.float64, requires_grad=True)
    mask = src != PAD
    inputs = (embedded, *model.encoder.parameters())
    results = []
    for one in plain_and_fast(model):
        outputs, last = one.read(embedded, mask)
        results.append((outputs, last, *torch.autograd.grad(outputs.square().sum() + last.sum(), inputs)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)
    assert bool((results[1][0][~mask] == 0).all())


@pytest.mark.parametrize("score", ["additive", "none"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_fast_decoder_equals_torchs_cell(cell: str, score: str, src: Tensor, tgt: Tensor) -> None:
    model: Any = small("birnn", spread=0.3, cell=cell, score=score)
    state = model.encode(src)
    embedded = model.tgt_embedding(tgt).detach().requires_grad_()
    inputs = (embedded, *model.cell.parameters())
    results = []
    for one in plain_and_fast(model):
        hidden, context, recurrent = one.write(embedded, state)
        loss = hidden.square().sum() + context.sum()
        results.append((hidden, context, *recurrent, *torch.autograd.grad(loss, inputs, retain_graph=True)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


# Whole models


@pytest.mark.parametrize("asked", [{}, {"tied": False}, {"softmax": "batch"}], ids=str)
def test_a_model_with_its_fast_implementations_equals_the_plain_one(
    name: str, asked: dict[str, Any], src: Tensor, tgt: Tensor
) -> None:
    model = small(name, spread=0.3, dropout=0.0, **asked).train()
    before = {path: id(parameter) for path, parameter in model.named_parameters()}
    results = []
    for one in plain_and_fast(model):
        loss = one.loss(one(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), 0.1)
        results.append((*loss, *torch.autograd.grad(loss.smoothed, [*model.parameters()])))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)
    assert {path: id(parameter) for path, parameter in model.named_parameters()} == before


def replaced_methods(model: nn.Module) -> set[tuple[str, str]]:
    """Returns a pair (path of the module, name of the method) for each method that `attach` has replaced."""
    methods = ("forward", "attend", "read", "write", "loss")
    return {(path, method) for path, module in model.named_modules() for method in methods if method in vars(module)}


def test_attaching_twice_changes_nothing(name: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.3)
    plain = model(src, tgt)
    assert not replaced_methods(model)
    assert attach(model) is model
    once = replaced_methods(model)
    dropouts = {(path, "forward") for path, module in model.named_modules() if isinstance(module, nn.Dropout)}
    attentions = {(path, "attend") for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    loops = {("", "read"), ("", "write")} if isinstance(model, BiRNN) else set()
    assert once == dropouts | attentions | loops | {("", "loss")}
    attach(model)
    assert replaced_methods(model) == once
    close(model(src, tgt), plain)


def test_every_model_built_from_a_configuration_has_its_fast_implementations(name: str, tmp_path: Path) -> None:
    words = Dataset.from_dict({"src": ["un mot", "deux mots"], "tgt": ["one word", "two words"]})
    vocabulary = tokenizer.Vocabulary.train(words, 300, "bpe", True, tmp_path)
    assert {("", "loss")} <= replaced_methods(build({"name": name, **SIZES[name]}, vocabulary, seed=1))


# Search


def test_hypotheses_may_share_a_source_row(model: Seq2Seq, src: Tensor, tgt: Tensor) -> None:
    state = model.encode(src)
    repeated = torch.arange(B).repeat_interleave(3)
    written, tokens = select(state.written, repeated), tgt[torch.arange(3 * B) % B]
    shared, own = State(written, state.source), select(state, repeated)
    for step in range(4):
        hidden, shared = model.decode(tokens[:, [step]], shared)
        expected, own = model.decode(tokens[:, [step]], own)
        close(hidden, expected)


@pytest.mark.parametrize("columns", [5, GROUP_SIZE, 7 * GROUP_SIZE, 11 * GROUP_SIZE + 1, 13 * GROUP_SIZE - 1])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_largest_values_equal_those_of_a_sort(columns: int, k: int) -> None:
    values = torch.randperm(17 * columns).view(17, columns).float()
    values[3] = -torch.inf
    values[3, -2:] = torch.tensor([7.0, 3.0])  # row 3 has only two finite values, fewer than k = 5
    values[5, 0], values[5, -1] = 1e6, 1e5  # the two largest are in the first and the last group; the last may be shorter
    found, at = largest(values, k)
    torch.testing.assert_close(found, values.sort(dim=1, descending=True).values[:, :k])
    torch.testing.assert_close(values.gather(1, at), found)


# Packed weights


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch was built without oneDNN")
@pytest.mark.parametrize("rows", [1, 2, 300])
def test_packed_layers_equal_plain_ones(rows: int) -> None:
    model = nn.Sequential(nn.Linear(17, 31), nn.Tanh(), nn.Linear(31, 13, bias=False))
    nn.init.normal_(model[0].bias)
    x = torch.randn(rows, 3, 17)
    with torch.no_grad():
        expected = model(x)
        with packed(model):
            assert {"forward"} <= vars(model[0]).keys() & vars(model[2]).keys()  # both linear layers are packed
            torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-5)
        model[2].weight.mul_(2)
        torch.testing.assert_close(model(x), 2 * expected)  # the packed copy is no longer used


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_packed_layers_have_gradients_and_others_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(17, 31), nn.Linear(31, 13).double(), Doubled(17, 31))
    with packed(model):
        assert "forward" not in vars(model[1]) and "forward" not in vars(model[2])
        for layer in (model[0], model[0].eval()):
            layer.zero_grad()
            layer(torch.randn(2, 17)).sum().backward()
            assert layer.weight.grad is not None
    with torch.autocast("cpu", torch.bfloat16), packed(model):
        assert "forward" not in vars(model[0])
    with packed(model), packed(model):
        pass
    with pytest.raises(ZeroDivisionError), packed(model):
        raise ZeroDivisionError
    assert "forward" not in vars(model[0])


# Workers


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_workers_run_in_parallel_and_return_results_in_order(two_threads: None) -> None:
    together = threading.Barrier(2, timeout=30)

    def work(i: int) -> tuple[int, int]:
        if i < 2:
            together.wait()  # returns only if two workers wait at the same time
        else:
            time.sleep(0.01 * (7 - i))
        return i, torch.get_num_threads()

    assert parallel_map(range(7), work, nn.Linear(2, 3)) == [(i, 1) for i in range(7)]
    assert torch.get_num_threads() == 2


def test_slow_work_does_not_block_the_other_workers(two_threads: None) -> None:
    others_done = threading.Event()

    def work(i: int) -> bool:
        if i == 5:
            others_done.set()
        return i > 0 or others_done.wait(timeout=10)

    assert parallel_map(range(6), work, nn.Linear(2, 3)) == [True] * 6


def test_results_are_reported_as_they_come(two_threads: None) -> None:
    first_reported = threading.Event()

    def report(results: Iterator[bool]) -> Iterator[bool]:
        for result in results:
            first_reported.set()
            yield result

    def work(i: int) -> bool:
        return i == 0 or first_reported.wait(timeout=10)

    assert parallel_map(range(5), work, nn.Linear(2, 3), report) == [True] * 5


def test_no_work_is_started_after_an_interruption(two_threads: None) -> None:
    started = []

    def report(results: Iterator[int]) -> Iterator[int]:
        yield next(results)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(range(99), lambda i: started.append(i) or time.sleep(0.01 * i), nn.Linear(2, 3), report)
    assert 0 < len(started) < 9


def test_an_interruption_restores_threads_and_layers(two_threads: None) -> None:
    model = nn.Linear(2, 3)

    def items() -> Iterator[int]:
        yield 1
        assert torch.get_num_threads() == 1 and "forward" in vars(model)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(items(), lambda i: i, model)
    assert torch.get_num_threads() == 2 and "forward" not in vars(model)


@pytest.mark.parametrize("how", [Search(length_factor=0.5), Search(beam=3, n_best=2, length_factor=0.5)], ids=str)
def test_two_workers_translate_as_one_does(two_threads: None, tmp_path: Path, how: Search) -> None:
    """Two workers with batches of different sizes give the same translations as one worker with one sentence at a time."""
    write_corpus(tmp_path)
    lines = [(tmp_path / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("fr", "en")]
    vocabulary = tokenizer.Vocabulary.train(Dataset.from_dict({"src": lines[0], "tgt": lines[1]}), 340, "bpe", True, tmp_path)
    size = len(vocabulary.tgt)
    model = Transformer(size, size, True, tokenizer.PAD, 3, d_model=24, n_heads=2, n_layers=2, d_ff=32, tied=False)
    generator = torch.Generator().manual_seed(7)
    for weight in (model.src_embedding.weight, model.tgt_embedding.weight, model.output.weight):
        nn.init.normal_(weight, generator=generator)  # large weights, so that different sentences get different translations
    sentences = [" ".join(lines[0][i : i + 1 + i % 3]) for i in range(23)]
    found = translate(model, vocabulary, sentences, how, max_tokens=60)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    alone = [translate(model, vocabulary, [sentence], how)[0] for sentence in sentences]
    assert len({tuple(n_best[0].tokens) for n_best in found}) > 10
    for one, other in zip(found, alone, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


def test_an_error_in_a_worker_is_raised_and_threads_are_restored(two_threads: None) -> None:
    def work(i: int) -> int:
        return 1 // (i - 1)

    model = nn.Linear(2, 3)
    for threads in (2, 1):
        torch.set_num_threads(threads)
        with pytest.raises(ZeroDivisionError):
            parallel_map(range(11), work, model)
        assert torch.get_num_threads() == threads
        assert "forward" not in vars(model)


def test_off_the_cpu_and_under_autocast_the_caller_does_the_work(two_threads: None) -> None:
    def worker(_: int) -> threading.Thread:
        return threading.current_thread()

    assert parallel_map([1], worker, nn.Linear(2, 3, device="meta")) == [threading.current_thread()]
    with torch.autocast("cpu", torch.bfloat16):
        assert parallel_map([1], worker, nn.Linear(2, 3)) == [threading.current_thread()]


# Memory


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_freed_memory_is_reused_without_new_page_faults() -> None:
    assert process.keep_freed_memory()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(50_000_000 // 4)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    assert faults() < 5 * 50_000_000 / 4096 / 10  # without keep_freed_memory(), each page of 4096 bytes would fault


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not process.keep_freed_memory()
