"""Tests that the fast implementations compute the same results as the plain ones."""

import math
import threading
import time
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import entente.fast.attach as fast
from conftest import SIZES, small, small_settings
from entente.decoding.search import GROUP_SIZE, largest
from entente.decoding.translate import parallel_map
from entente.fast.attach import LOSS_ROWS, STANDARD, attach, loss, packed
from entente.models.attention import MultiHeadAttention
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Loss, Seq2Seq, causal_mask
from entente.settings import TransformerSettings
from numerics import close, tensors


def plain_and_fast(model: Any) -> Iterator[Any]:
    """Yields the model as it was built, then the same model with its fast implementations."""
    yield model
    yield attach(model)


# The loss


def projected_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> Loss:
    """Returns the fast loss of a model whose output projection has this weight and no bias."""
    model: Any = SimpleNamespace(output=SimpleNamespace(weight=weight, bias=None))
    return loss(model, hidden, target, label_smoothing)


def loss_inputs(n: int, pieces: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Returns hidden (n, 11), the weight of an output projection (pieces, 11), and targets (n,)."""
    generator = torch.Generator().manual_seed(n)
    hidden, weight = (torch.randn(rows, 11, generator=generator).to(dtype).requires_grad_() for rows in (n, pieces))
    return hidden, weight, torch.randint(pieces, (n,), generator=generator)


@pytest.mark.parametrize("n", [1, 7, LOSS_ROWS, 2 * LOSS_ROWS + 13])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_projection_and_loss_in_blocks_equal_torchs_loss_of_all_logits(n: int, label_smoothing: float) -> None:
    hidden, weight, target = loss_inputs(n, 101)
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, target, label_smoothing=label_smoothing)
    gradients = torch.autograd.grad(3 * expected, (hidden, weight))
    actual = projected_cross_entropy(hidden, weight, target, label_smoothing)
    close(actual.smoothed, expected)
    close(actual.nll, F.cross_entropy(logits, target))
    assert not actual.nll.requires_grad
    for gradient, plain in zip(torch.autograd.grad(3 * actual.smoothed, (hidden, weight)), gradients, strict=True):
        close(gradient, plain)
    with torch.no_grad():
        assert projected_cross_entropy(hidden, weight, target, label_smoothing) == (actual.smoothed, actual.nll)


def test_an_output_projection_with_a_bias_has_the_plain_loss(model: Seq2Seq) -> None:
    model.output = torch.nn.Linear(model.output.in_features, model.output.out_features).double()
    hidden, target = torch.randn(7, model.output.in_features, dtype=torch.float64), torch.arange(7)
    close(loss(model, hidden, target).nll, F.cross_entropy(model.output(hidden), target))


def test_gradients_that_underflow_in_float16_are_computed_with_the_loss_scale() -> None:
    hidden, weight, target = loss_inputs(2 * LOSS_ROWS + 13, 1009, torch.float32)
    expected = torch.autograd.grad(F.cross_entropy(hidden @ weight.T, target, label_smoothing=0.1), (hidden, weight))
    with torch.autocast("cpu", torch.float16):
        actual = projected_cross_entropy(hidden, weight, target, 0.1)
    scale = 2.0**16
    for gradient, plain in zip(torch.autograd.grad(scale * actual.smoothed, (hidden, weight)), expected, strict=True):
        assert (gradient / scale - plain).norm() < 2e-3 * plain.norm()


def test_the_loss_stays_finite_when_probabilities_underflow() -> None:
    hidden, weight = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[0.0], [500.0], [-500.0]])
    actual = projected_cross_entropy(hidden, weight, torch.tensor([2]), 0.0)
    assert actual.smoothed.item() == 1000
    assert torch.autograd.grad(actual.smoothed, hidden)[0].item() == 1000


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "no autocast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_products_keep_their_precision_and_the_loss_is_summed_in_float32(dtype: torch.dtype, autocast: bool) -> None:
    hidden, weight, target = loss_inputs(LOSS_ROWS + 13, 101, torch.float32 if autocast else dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        actual = projected_cross_entropy(hidden, weight, target, 0.1)
        expected = F.cross_entropy((hidden @ weight.T).float(), target, label_smoothing=0.1)
    assert actual.smoothed.dtype == actual.nll.dtype == torch.float32
    torch.testing.assert_close(actual.smoothed, expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(actual.smoothed, (hidden, weight))
    for gradient, plain in zip(gradients, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        assert gradient.dtype == hidden.dtype
        torch.testing.assert_close(gradient, plain, rtol=0.05, atol=2e-3)


# Dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.9])
@pytest.mark.parametrize("shape", [(1009, 101), (503, 3, 67)], ids=str)
def test_dropout_drops_the_asked_share_and_keeps_the_mean(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(7)
    x = torch.full(shape, 2.0, requires_grad=True)
    y = attach(nn.Dropout(p))(x)
    dropped, n = (y == 0).double(), x.numel()
    assert abs(dropped.mean().item() - p) < 5 * math.sqrt(p * (1 - p) / n)
    torch.testing.assert_close(y[y != 0].unique(), torch.tensor([2 / (1 - round(p * 65536) / 65536)]))
    for lag in (1, 2, 3, 4, 101):  # neighbouring elements use parts of one random number, but must be independent
        flat = dropped.flatten() - dropped.mean()
        assert abs((flat[lag:] * flat[:-lag]).mean().item()) < 5 * p * (1 - p) / math.sqrt(n)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach() / 2)


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


def attention(rotary: bool = False, **changes: Any) -> MultiHeadAttention:
    return MultiHeadAttention(small_settings("transformer", **changes), rotary)


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Makes training on a CPU use the fused kernel too, and returns a list of the keyword arguments of each call to it."""
    calls: list[dict[str, Any]] = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(fast, "UNFUSED_DEVICES", set())
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(k) or kernel(*a, **k))
    return calls


@pytest.mark.parametrize(("d_model", "n_heads", "d_k"), [(12, 3, None), (12, 3, 5), (12, 1, None), (35, 5, None)])
@pytest.mark.parametrize("kind", ["padding", "causal", None])
def test_the_fused_attention_of_training_equals_the_steps(
    kind: str | None, d_model: int, n_heads: int, d_k: int | None, fused_calls: list[dict[str, Any]]
) -> None:
    layer = attention(d_model=d_model, n_heads=n_heads, d_k=d_k).double()
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
    attach(layer)
    assert not fused_calls
    for actual, expected in zip(results(), plain, strict=True):
        close(actual, expected)
    assert len(fused_calls) == 1
    close(layer.eval()(x, layer.project(y), mask), plain[0])
    assert len(fused_calls) == 1  # evaluation does not use the fused kernel


# Values of a layer's settings, other than the defaults, that the fused kernel does not support.
NOT_FUSED: dict[str, list[Any]] = {
    "score": ["additive", "bilinear", "cosine"],
    "scale": ["none", "n_keys"],
    "projections": [[], ["query", "value"]],
    "softmax": ["queries", "batch"],
    "mask_value": [-9.0, -1e9],
}


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        *(({name: value}, []) for name, values in NOT_FUSED.items() for value in values),
        *(({"attention_dropout": 0.25, "rotary": rotary}, [{"dropout_p": 0.25}]) for rotary in (False, True)),
    ],
    ids=str,
)
def test_only_standard_attention_is_fused_with_its_dropout(
    arguments: dict[str, Any], calls: list[dict[str, Any]], fused_calls: list[dict[str, Any]]
) -> None:
    layer, x = attach(attention(**arguments)), torch.randn(5, 7, 21)
    layer(x, layer.project(x), causal_mask(7, 0, x.device))
    assert fused_calls == calls


def test_a_new_setting_is_declared_fused_or_not() -> None:
    fused = {"d_model", "n_heads", "n_layers", "d_ff", "d_k", "dropout", "attention_dropout", "residual", "norm", "activation"}
    fused |= {"zero_init", "tied", "positions", "sublayers", "mask_padding", "mask_future", "embedding_scale"}
    fused |= {"output_projection", "sliced_heads", "equal_heads"}
    assert TransformerSettings.model_fields.keys() - {"name"} == NOT_FUSED.keys() | fused
    assert NOT_FUSED.keys() == STANDARD


# Whole models


# Every loop of a BiRNN. With mask_padding=False, what the encoder returns at padding counts.
LOOPS = [
    ("birnn", {"cell": cell, "bidirectional": bidirectional, "score": score, "mask_padding": False})
    for cell, bidirectional, score in product(("gru", "lstm"), (True, False), ("additive", "none"))
]


@pytest.mark.parametrize(
    ("name", "changes"), [*product(sorted(SIZES), ({}, {"tied": False}, {"softmax": "batch"})), *LOOPS], ids=str
)
def test_a_model_with_its_fast_implementations_equals_the_plain_one(
    name: str, changes: dict[str, Any], src: Tensor, tgt: Tensor
) -> None:
    model = small(name, spread=0.3, dropout=0.0, **changes).train()
    parameters = {path: id(parameter) for path, parameter in model.named_parameters()}
    results = []
    for version in plain_and_fast(model):
        hidden, state = version.decode(tgt[:, :-1], version.encode(src))
        loss = version.loss(hidden.flatten(0, 1), tgt[:, 1:].flatten(), 0.1)
        results.append((*loss, *tensors(state.written), *torch.autograd.grad(loss.smoothed, [*model.parameters()])))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)
    assert {path: id(parameter) for path, parameter in model.named_parameters()} == parameters


def test_attaching_replaces_each_method_once(name: str, src: Tensor, tgt: Tensor) -> None:
    model = small(name, spread=0.3)
    plain = model(src, tgt)
    assert attach(attach(model)) is model
    methods = ("forward", "attend", "read", "write", "loss")
    replaced = {(path, method) for path, module in model.named_modules() for method in methods if method in vars(module)}
    expected = {(path, "forward") for path, module in model.named_modules() if isinstance(module, nn.Dropout)}
    expected |= {(path, "attend") for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    expected |= {("", "read"), ("", "write")} if isinstance(model, BiRNN) else set()
    assert replaced == expected | {("", "loss")}
    close(model(src, tgt), plain)


# Search


@pytest.mark.parametrize("columns", [5, GROUP_SIZE, 7 * GROUP_SIZE, 11 * GROUP_SIZE + 1, 13 * GROUP_SIZE - 1])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_largest_values_equal_those_of_a_sort(columns: int, k: int) -> None:
    values = torch.randperm(17 * columns).view(17, columns).float()
    values[3] = -torch.inf
    values[3, -2:] = torch.tensor([7.0, 3.0])  # row 3 has only two finite values, fewer than k = 5
    values[5, 0], values[5, -1] = 1e6, 1e5  # the two largest are in the first and the last group; the last may be shorter
    top, places = largest(values, k)
    torch.testing.assert_close(top, values.sort(dim=1, descending=True).values[:, :k])
    torch.testing.assert_close(values.gather(1, places), top)


# Packed weights


@pytest.fixture
def packs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entente.fast.attach.PACKED_SIZE", 1)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch was built without oneDNN")
@pytest.mark.usefixtures("packs_all")
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


class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.usefixtures("packs_all")
def test_packed_layers_have_gradients_and_others_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(17, 31), nn.Linear(31, 13).double(), Twice(17, 31))
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


def test_only_large_layers_are_packed() -> None:
    model = nn.Sequential(nn.Linear(997, 1003), nn.Linear(1003, 1009))
    with packed(model):
        assert ["forward" in vars(layer) for layer in model] == [False, True]


# Workers


@pytest.fixture
def two_threads() -> None:
    torch.set_num_threads(2)


def test_workers_run_in_parallel_and_their_results_come_in_order_as_soon_as_possible(two_threads: None) -> None:
    sixth_started, first_reported = threading.Event(), threading.Event()

    def report(results: Iterator[Any]) -> Iterator[Any]:
        for result in results:
            first_reported.set()
            yield result

    def work(i: int) -> tuple[int, bool, int]:
        if i == 5:
            sixth_started.set()
        event = {0: sixth_started, 9: first_reported}.get(i)
        return i, event is None or event.wait(timeout=10), torch.get_num_threads()

    assert parallel_map(range(10), work, nn.Linear(2, 3), report) == [(i, True, 1) for i in range(10)]
    assert torch.get_num_threads() == 2


def test_no_work_is_started_after_an_interruption(two_threads: None) -> None:
    started: list[int] = []

    def report(results: Iterator[Any]) -> Iterator[Any]:
        yield next(results)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(range(99), lambda i: started.append(i) or time.sleep(0.1 * bool(i)), nn.Linear(2, 3), report)
    assert 0 < len(started) < 9


@pytest.mark.usefixtures("packs_all")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", ["item", "work"])
def test_an_error_is_raised_and_threads_and_layers_are_restored(two_threads: None, threads: int, place: str) -> None:
    model = nn.Linear(2, 3)
    torch.set_num_threads(threads)

    def items() -> Iterator[int]:
        assert torch.get_num_threads() == 1 and "forward" in vars(model)
        yield from range(11)
        yield 1 // (place != "item")

    with pytest.raises(ZeroDivisionError):
        parallel_map(items(), lambda i: i // (i - 1 if place == "work" else 1), model)
    assert torch.get_num_threads() == threads and "forward" not in vars(model)


def test_off_the_cpu_and_under_autocast_the_caller_does_the_work(two_threads: None) -> None:
    def worker(_: int) -> threading.Thread:
        return threading.current_thread()

    assert parallel_map([1], worker, nn.Linear(2, 3, device="meta")) == [threading.current_thread()]
    with torch.autocast("cpu", torch.bfloat16):
        assert parallel_map([1], worker, nn.Linear(2, 3)) == [threading.current_thread()]
