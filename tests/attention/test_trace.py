"""A trace shows every value that attention computes, describes ablated models correctly, and leaves the model unchanged."""

import html
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from bad_inputs import run
from conftest import BOS, PAD, SIZES, SRC_VOCAB, TGT_VOCAB, real_ids, small
from entente.attention import trace as package
from entente.attention.record import KIND_NAMES, record
from entente.attention.trace import Labels, examples, trace
from entente.checkpoint import entry, write
from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.errors import InputError
from entente.models import MODELS, Seq2Seq
from entente.models.seq2seq import pad

S, T = 7, 5
LAYER, HEAD, STEP = 2, 2, 3  # counted from 1; there are 2 layers and 3 heads
TRANSFORMER: tuple[str, ...] = ("encoder", "decoder", "cross")
CASES: list[tuple[str, str]] = [*((kind, "transformer") for kind in TRANSFORMER), ("alignment", "birnn")]


class Batch(NamedTuple):
    src: Tensor
    tgt: Tensor
    labels: list[Labels]


@pytest.fixture
def batch() -> Batch:
    """Returns two sentence pairs. The second is shorter on both sides. Labels contain characters that Markdown, HTML and Rich
    would read as markup."""
    src = pad([real_ids([S], SRC_VOCAB, 1).tolist(), real_ids([4], SRC_VOCAB, 2).tolist()], PAD)
    tgt = pad([[BOS, *real_ids([T - 1], TGT_VOCAB, 3).tolist()], [BOS, *real_ids([2], TGT_VOCAB, 4).tolist()]], PAD)
    labels = [
        Labels([f"s{n}|[b]_{i}*" for i in range(S)], [f"r{n}.{i}" for i in range(T)], [f"<p{n}.{i}>" for i in range(T)])
        for n in range(2)
    ]
    return Batch(src, tgt, labels)


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes traces print numbers with enough decimals for tests to compare them."""
    monkeypatch.setattr(package, "DECIMALS", 13)


class Table(NamedTuple):
    """A table in a trace. The parts into which a trace splits a wide table are joined. `title` gives the name and shape of the
    table, and says which sentence, rows or columns it shows."""

    title: str
    grid: list[list[str]]

    @property
    def name(self) -> str:
        return re.split(r" \([A-Z]+ \d|, (?:sentence|query|head|the first) ", self.title)[0]

    @property
    def columns(self) -> list[str]:
        return [label for label in self.grid[0][1:] if label != "sum"]

    @property
    def rows(self) -> list[str]:
        return [row[0] for row in self.grid[1:] if row[0] != "sum"]

    @property
    def cells(self) -> list[list[str]]:
        """Returns the cells that are neither labels nor sums."""
        return [row[1 : len(self.columns) + 1] for row in self.grid[1 : len(self.rows) + 1]]

    @property
    def tensor(self) -> Tensor:
        return torch.tensor([[float(cell.strip("()")) for cell in row] for row in self.cells], dtype=torch.float64)

    @property
    def sums(self) -> list[float]:
        assert self.grid[0][-1] == "sum"
        return [float(row[-1]) for row in self.grid[1 : len(self.rows) + 1]]


class Step(NamedTuple):
    title: str
    formula: str
    tables: list[Table]
    sentences: list[str]


class Trace(NamedTuple):
    title: str
    steps: list[Step]


def read(written: str) -> list[Trace]:
    """Returns the traces that a Markdown text contains."""
    found: list[Trace] = []
    joining = False
    for block in written.split("\n\n"):
        if block.startswith("# "):
            found.append(Trace(html.unescape(block[2:]), []))
            said: list[str] = []  # sentences since the last heading
        elif block.startswith("## "):
            steps = found[-1].steps
            steps.append(Step(*html.unescape(block).removeprefix(f"## {len(steps) + 1}. ").split(": ", 1), [], said := []))
        elif block.startswith("|"):
            lines = [[html.unescape(cell.strip()) for cell in line[1:-1].split("|")] for line in block.splitlines()]
            del lines[1]
            seen = found[-1].steps[-1].tables
            if joining:
                seen[-1].grid[:] = [[*row, *more[1:]] for row, more in zip(seen[-1].grid, lines, strict=True)]
            else:
                seen.append(Table(said.pop(), lines))
        else:
            assert "\n" not in block
            said.append(html.unescape(block))
        joining = block.startswith("|")
    return found


def markdown_of(model: Seq2Seq, batch: Batch, kind: str, columns: int | None = None) -> str:
    if kind == "alignment":
        return trace(model, *batch, step=STEP, columns=columns)
    return trace(model, *batch, kind, LAYER, HEAD, columns=columns)


def trace_of(model: Seq2Seq, batch: Batch, kind: str) -> Trace:
    [found] = read(markdown_of(model, batch, kind))
    return found


def table_names(found: Trace) -> set[str]:
    return {table.name for step in found.steps for table in step.tables}


def table_of(found: Trace, name: str, sentence: int = 0) -> Table:
    """Returns the table called `name` for the sentence at index `sentence`."""
    return [table for step in found.steps for table in step.tables if table.name == name][sentence]


def text(found: Trace, title: str) -> str:
    """Returns the formula and the sentences of the step called `title`."""
    [step] = [step for step in found.steps if step.title == title]
    return " ".join([step.formula, *step.sentences])


def rms(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def rotate_by_position(x: Tensor) -> Tensor:
    """Returns x (B, T, K) after rotation. Components i and i + K // 2 are taken as the real and the imaginary part of a complex
    number, which is rotated by an angle proportional to the position."""
    half = x.size(-1) // 2
    angle = torch.arange(x.size(-2))[:, None] * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    z = torch.complex(x[..., :half], x[..., half : 2 * half]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag, x[..., 2 * half :]], -1)


def recompute(model: Any, batch: Batch, kind: str) -> dict[str, list[Tensor]]:
    """Recomputes the numbers in a Transformer's trace from the layer's parameters and from its inputs in a forward pass of the
    model. Returns them by table name, for both sentences."""
    captured: dict[str, Any] = {}
    block = (model.encoder if kind == "encoder" else model.decoder)[LAYER - 1]
    name = "cross" if kind == "cross" else "self"
    handles = [block.residual[name].register_forward_pre_hook(lambda module, inputs: captured.update(x=inputs[0]))]
    handles += [model.encoder_norm.register_forward_hook(lambda module, inputs, out: captured.update(memory=out))]
    with torch.no_grad():
        model(batch.src, batch.tgt)
    for handle in handles:
        handle.remove()
    x, p, attention = captured["x"], dict(block.named_parameters()), getattr(block, f"{name}_attention")

    def linear(part: str, source: Tensor) -> Tensor:
        at = f"{name}_attention.{part}"
        return source @ p[f"{at}.weight"].T + p[f"{at}.bias"]

    def norm(part: str, source: Tensor) -> Tensor:
        at = f"{part}.{name}"
        if f"{at}.bias" not in p:
            return source / rms(source, 1e-6) * p[f"{at}.weight"]
        centred = source - source.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / deviation * p[f"{at}.weight"] + p[f"{at}.bias"]

    h = norm("before", x) if f"before.{name}.weight" in p else x
    source = captured["memory"] if kind == "cross" else h
    k = x.size(-1) // model.n_heads
    cut = slice((HEAD - 1) * k, HEAD * k)
    q, key, v = linear("query", h), linear("key", source), linear("value", source)

    def maybe_rotate(x: Tensor) -> Tensor:
        return rotate_by_position(x) if attention.rotary else x

    cosine = hasattr(attention.score, "factor")
    eps = torch.finfo(x.dtype).eps
    one, other = maybe_rotate(q[..., cut]), maybe_rotate(key[..., cut])
    left, right = (one / rms(one, eps) * attention.score.factor, other / rms(other, eps)) if cosine else (one, other)
    scores = left @ right.mT
    scaled = scores / math.sqrt(k)
    real = (batch.src != PAD)[:, None, :]
    mask = torch.ones(T, T).tril().bool() if kind == "decoder" else real
    masked = torch.where(mask, scaled, -torch.inf)
    weights = masked.exp() / masked.exp().sum(-1, keepdim=True)

    heads = []
    for i in range(model.n_heads):
        part = slice(i * k, (i + 1) * k)
        one, other = maybe_rotate(q[..., part]), maybe_rotate(key[..., part])
        norms = rms(one, eps) * rms(other, eps).mT / attention.score.factor if cosine else 1
        e = torch.where(mask, one @ other.mT / norms / math.sqrt(k), -torch.inf).exp()
        heads.append(e / e.sum(-1, keepdim=True) @ v[..., part])
    together = torch.cat(heads, -1)
    out = linear("out", together)
    after = x + out if block.residual[name].keep else out
    found = {
        "x": x,
        "h": h,
        "memory": source,
        "Q": q[..., cut],
        "K": key[..., cut],
        "V": v[..., cut],
        "rotated Q": maybe_rotate(q[..., cut]),
        "rotated K": maybe_rotate(key[..., cut]),
        "Q'": left,
        "K'": right,
        "Q' K'^T" if cosine else "Q K^T": scores,
        "scaled scores": scaled,
        "mask": mask.expand(2, -1, -1) if mask.dim() == 2 else mask,
        "masked scores": masked,
        "weights": weights,
        "weights x V": weights @ v[..., cut],
        "all heads": together,
        "out": out,
        "after the residual": after,
    }
    if f"after.{name}.weight" in p:
        found["after the norm"] = norm("after", after)
    return {name: list(values) for name, values in found.items()}


VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post"},
    "rms": {"norm": "rms"},
    "rotary": {"positions": "rotary"},
    "cosine": {"score": "cosine"},
    "modern": {"norm": "rms", "activation": "swiglu", "positions": "rotary", "score": "cosine", "zero_init": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", TRANSFORMER)
def test_a_transformers_numbers_equal_those_recomputed_from_its_parameters(kind: str, variant: str, batch: Batch) -> None:
    model = small("transformer", spread=0.3, **VARIANTS[variant])
    expected = recompute(model, batch, kind)
    found = trace_of(model, batch, kind)
    not_shown = ({"h"} if variant == "post" else set()) | ({"memory"} if kind != "cross" else set())
    not_shown |= {"rotated Q", "rotated K"} if kind == "cross" or variant not in ("rotary", "modern") else set()
    not_shown |= {"Q'", "K'"} if variant not in ("cosine", "modern") else set()
    assert expected.keys() - table_names(found) == not_shown
    assert_tables(found, expected)
    assert not any("## " in sentence for step in found.steps for sentence in step.sentences)
    assert len([t for step in found.steps for t in step.tables if t.name == "weights"]) == 2


def assert_tables(found: Trace, expected: dict[str, list[Tensor]]) -> None:
    """Asserts that every table of a trace has the expected numbers."""
    seen: set[str] = set()
    for step in found.steps:
        for table in step.tables:
            n = 1 if "sentence 2" in table.title else 0
            assert torch.allclose(table.tensor, expected[table.name][n].double(), atol=1e-10), table.title
            finite = table.tensor[table.tensor.isfinite()]
            assert finite.std() > 0.01 or table.name == "mask", "equal numbers would hide mistakes"
            seen.add(table.name)
    assert len(seen) > 7


def test_the_birnns_numbers_equal_those_recomputed_from_its_parameters(batch: Batch) -> None:
    model: Any = small("birnn", spread=0.3)
    found = trace_of(model, batch, "alignment")
    p = dict(model.named_parameters())
    memory = model.encode(batch.src).source.memory.value
    _, state = model.decode(batch.tgt[:, : STEP - 1], model.encode(batch.src))  # the state before step STEP
    query = state.written[0][:, None]
    queries, keys = query @ p["attention.query.weight"].T, memory @ p["attention.key.weight"].T
    added = queries + keys
    e = added.tanh() @ p["attention.score.weight"][0]
    masked = torch.where(batch.src != PAD, e, -torch.inf)[:, None]
    weights = masked.exp() / masked.exp().sum(-1, keepdim=True)
    _, after = model.decode(batch.tgt[:, :STEP], model.encode(batch.src))
    expected = {
        "query": query,
        "h": memory,
        "W q": queries,
        "U k": keys,
        "W q + U k": added,
        "tanh(W q + U k)": added.tanh(),
        "e": e[:, None],
        "mask": (batch.src != PAD)[:, None],
        "masked scores": masked,
        "weights": weights,
        "context": weights @ memory,
        f"s_{STEP}, the next query": after.written[0][:, None],
    }
    assert table_names(found) == expected.keys()
    assert_tables(found, {name: list(values.detach()) for name, values in expected.items()})


@pytest.mark.parametrize(("score", "readout"), [("bilinear", "residual"), ("dot", "context")])
def test_the_birnns_other_scores(score: str, readout: str, batch: Batch) -> None:
    model: Any = small("birnn", spread=0.3, score=score, readout=readout)
    found = trace_of(model, batch, "alignment")
    assert found.title.startswith(f"Alignment by {'dot-product' if score == 'dot' else score} attention")
    said = {"bilinear": "A learned matrix W maps h", "dot": "The key is the sum of both directions"}
    assert said[score] in text(found, "The keys")
    memory = table_of(found, "h").tensor
    key = memory @ model.attention.key.weight.T if score == "bilinear" else memory[:, :19] + memory[:, 19:]
    assert torch.allclose(table_of(found, "k").tensor, key)
    assert torch.allclose(table_of(found, "q . k").tensor, table_of(found, "query").tensor @ key.T)
    assert torch.equal(table_of(found, "q . k").tensor, table_of(found, "scores").tensor)
    assert "not scaled" in text(found, "The scale")
    projected = model.context(table_of(found, "context").tensor)
    state = table_of(found, f"s_{STEP}, the next query").tensor
    shown = table_of(found, "s_i + P c_i" if readout == "residual" else "P c_i").tensor
    assert torch.allclose(shown, projected + state if readout == "residual" else projected)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_weights_equal_the_recorded_weights(kind: str, name: str) -> None:
    vocabulary: Any = SimpleNamespace(src=SimpleNamespace(pieces=list), tgt=SimpleNamespace(pieces=list))
    model = MODELS[name](29, 31, False, 0, 1, **SIZES[name])
    src, tgt = [5, 7, 11, 13, 3], [17, 19, 23]
    maps = {map.kind: map for map in record(model, vocabulary, src, tgt)}
    label = Labels([*"abcde"], [*"fghi"], [*"ghij"])
    for layer, head in [(1, 1), (2, 1), (2, 3)] if name == "transformer" else [(1, 1)]:
        recorded = maps[KIND_NAMES[kind]].weights[layer - 1, head - 1]
        if name == "transformer":
            [found] = read(trace(model, torch.tensor([src]), torch.tensor([[2, *tgt]]), [label], kind, layer, head))
            assert torch.equal(table_of(found, "weights").tensor.float(), recorded)
            continue
        for step in range(1, 5):
            [found] = read(trace(model, torch.tensor([src]), torch.tensor([[2, *tgt]]), [label], step=step))
            assert torch.equal(table_of(found, "weights").tensor[0].float(), recorded[step - 1])


# The printed text


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_printed_numbers_are_rounded(kind: str, name: str, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(name, spread=0.3)
    whole = [table for step in trace_of(model, batch, kind).steps for table in step.tables]
    monkeypatch.undo()
    text = markdown_of(model, batch, kind)
    [found] = read(text)
    printed = [table for step in found.steps for table in step.tables]
    masked = {table.title: table.tensor == 0 for table in whole if table.name == "weights"}
    for table, exact in zip(printed, whole, strict=True):
        assert (table.title, table.columns, table.rows) == (exact.title, exact.columns, exact.rows)
        hidden = masked.get(table.title.replace("masked scores", "weights"), torch.zeros(exact.tensor.shape))
        for row, values, hide in zip(table.cells, exact.tensor.tolist(), hidden.tolist(), strict=True):
            for cell, value, brackets in zip(row, values, hide, strict=True):
                assert cell.startswith("(") == bool(brackets)
                number = float(cell.strip("()"))
                assert number == value or abs(number - value) <= 0.0005001
                assert value == 0 or cell != "0"
        if table.name == "weights":
            assert table.sums == pytest.approx(exact.tensor.sum(1).tolist(), abs=0.0006)
            assert kind == "alignment" or [*map(float, table.grid[-1][1:-1])] == pytest.approx(
                exact.tensor.sum(0).tolist(), abs=0.0006
            )
    said = on_terminal(text, 80)
    assert all(title in said for title in (found.title, *(step.title for step in found.steps)))
    for line in re.findall(r"^\| (?!---)(.*) \|$", text, re.MULTILINE):
        assert re.search(r"\s+".join(re.escape(html.unescape(cell)) for cell in line.replace("|", " ").split()), said), line
    assert ("|[b]_1*" in said or kind == "decoder") and "(-inf)" in said and "---" not in said and "&" not in said


def on_terminal(text: str, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        package.show(text, console)
    return capture.get()


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_cuts_off_no_number(width: int, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("transformer", spread=0.3)
    weights = table_of(trace_of(model, batch, "encoder"), "weights")
    monkeypatch.undo()
    said = on_terminal(markdown_of(model, batch, "encoder", 8), width)
    assert max(map(len, said.splitlines())) <= width
    printed = re.findall(r"-?\d+\.\d+|\(0\)", said.partition("7. The softmax")[2])
    for value in weights.tensor.flatten().tolist():
        assert f"{value:.3f}" in printed
    assert "the first 8 of 21 columns" in " ".join(said.partition("2. The projections")[0].split())


def test_wide_and_long_tables_say_how_much_is_left_out() -> None:
    labels = [str(i) for i in range(50)]
    values = torch.rand(50, 50)

    def only(title: str, *more: Any, **how: Any) -> Table:
        text = f"# A trace\n\n## 1. A step: it\n\n{package.table(title, values, labels, *more, **how)}"
        [[table]] = [step.tables for step in read(text)[0].steps]
        return table

    table, n = only("w", labels, 3, sums=True), package.LONGEST
    assert table.title == f"w, the first {n} of 50 rows, the first {n} of 50 columns"
    assert table.grid[0] == ["", *labels[:n], "sum"] and table.rows == labels[:n] and table.grid[-1][0] == "sum"
    assert table.sums == pytest.approx(values.sum(1)[:n].tolist()), "sums include the columns that are not shown"
    assert [*map(float, table.grid[-1][1:-1])] == pytest.approx(values.sum(0)[:n].tolist())
    table = only("x", None, 3)
    assert table.columns == ["1", "2", "3"] and table.title.endswith("the first 3 of 50 columns")
    assert only("x").columns == [str(i + 1) for i in range(50)]
    for line in package.table("x", values, labels, labels).splitlines():
        assert len(line[2:-2].replace(" | ", package.GAP)) <= package.WIDEST or line.startswith("| ---")


# The model is left unchanged


def mutable_state(model: nn.Module) -> tuple[Any, ...]:
    """Returns what a trace could change: the number of hooks, the training modes, the random state, and the gradient mode."""
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    return hooks, [module.training for module in model.modules()], torch.get_rng_state().tolist(), torch.is_grad_enabled()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_model_is_left_unchanged(kind: str, name: str, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(name, spread=0.3, dropout=0.4).train()
    model.output.eval()
    loss = model(batch.src, batch.tgt).sum()
    before = mutable_state(model)
    values = {key: value.clone() for key, value in model.state_dict().items()}
    found = markdown_of(model, batch, kind)
    assert mutable_state(model) == before and before[0] == 0
    assert all(torch.equal(value, values[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()
    assert markdown_of(model.eval(), batch, kind) == found, "dropout was still on"
    model.train()
    before = mutable_state(model)
    decode = model.decode

    def broken(*arguments: Any) -> None:
        decode(*arguments)
        raise ZeroDivisionError

    monkeypatch.setattr(model, "decode", broken)
    with pytest.raises(ZeroDivisionError):
        trace_of(model, batch, kind)
    assert mutable_state(model) == before
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_value_that_was_not_captured_is_an_error(kind: str, name: str, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(name, spread=0.3)
    monkeypatch.setattr(model, "decode", lambda tgt, state: (None, state))
    if kind == "encoder":
        monkeypatch.setattr(model, "encode", lambda src: None)
    with pytest.raises(RuntimeError, match="were not called"):
        trace_of(model, batch, kind)
    other: Any = small(name, spread=0.3)
    attention = other.attention if name == "birnn" else other.decoder[LAYER - 1].cross_attention
    if kind in ("cross", "alignment"):  # the trace describes only a `forward` that calls masked_fill
        monkeypatch.setattr(attention.weights, "forward", lambda scores, mask: torch.ones_like(scores))
        with pytest.raises(RuntimeError, match="masked_fill was not called"):
            trace_of(other, batch, kind)


@pytest.mark.parametrize(
    ("name", "changes", "choice", "line"),
    [
        ("transformer", {}, {"kind": "alignment"}, "kind=alignment: .+ choose from encoder, decoder, cross"),
        ("transformer", {}, {"layer": 3}, "layer=3: choose from 1 to 2"),
        ("transformer", {}, {"head": 4}, "head=4: choose from 1 to 3"),
        ("transformer", {}, {"step": 1}, "step=1: a Transformer computes all target steps at once; leave step null"),
        ("birnn", {}, {"kind": "cross"}, "kind=cross: this model has no such attention; choose from alignment"),
        ("birnn", {}, {"layer": 2}, "layer=2: choose from 1 to 1"),
        ("birnn", {}, {"head": 2}, "head=2: choose from 1 to 1"),
        ("birnn", {}, {"step": T + 1}, f"step={T + 1}: choose from 1 to {T}"),
        ("birnn", {"score": "none"}, {}, "checkpoint: this model has no attention; give another checkpoint"),
    ],
)
def test_an_attention_that_is_not_there_is_refused(
    name: str, changes: dict[str, Any], choice: dict[str, Any], line: str, batch: Batch
) -> None:
    with pytest.raises(InputError) as refused:
        trace(small(name, **changes), *batch, **choice)
    [problem] = refused.value.problems
    assert re.fullmatch(line, problem)


# Ablated models are described correctly


def ablated_trace(batch: Batch, kind: str = "cross", **changes: Any) -> Trace:
    return trace_of(small("transformer", spread=0.3, **changes), batch, kind)


def test_no_residual(batch: Batch) -> None:
    found = ablated_trace(batch, residual=["self", "ff"])
    assert "no residual connection" in text(found, "The residual connection")
    assert torch.equal(table_of(found, "after the residual").tensor, table_of(found, "out").tensor)
    assert "x + out" not in text(found, "The residual connection") + text(found, "The norm")
    assert "keeps its own token" in text(ablated_trace(batch, "decoder", residual=["self"]), "The residual connection")


@pytest.mark.parametrize("kind", TRANSFORMER)
def test_scales(kind: str, batch: Batch) -> None:
    none = ablated_trace(batch, kind, scale="none")
    assert "does not scale" in text(none, "The scale") and "sqrt" not in none.steps[4].formula
    assert torch.equal(table_of(none, "scaled scores").tensor, table_of(none, "Q K^T").tensor)
    misread = ablated_trace(batch, kind, scale="n_keys")
    assert "misreading" in text(misread, "The scale")
    factor, scores = table_of(misread, "factor").tensor, table_of(misread, "Q K^T").tensor
    assert torch.allclose(table_of(misread, "scaled scores").tensor, scores * factor)
    seen = torch.arange(1, T + 1)[:, None] if kind == "decoder" else torch.tensor([[S]])
    assert torch.allclose(factor, seen.double().rsqrt())
    usual = ablated_trace(batch, kind)
    assert "variance d_k" in text(usual, "The scale") and "whatever the number of tokens" in text(usual, "The scale")


@pytest.mark.parametrize("softmax", ["queries", "batch"])
def test_softmax_over_another_axis(softmax: str, batch: Batch) -> None:
    found = ablated_trace(batch, softmax=softmax)
    one, other = table_of(found, "weights", 0), table_of(found, "weights", 1)
    said = text(found, "The softmax")
    assert f"softmax: {softmax}" in said
    assert ("sums to 1, but the rows do not" if softmax == "queries" else "Rows do not sum to 1") in said
    assert "distribution over the keys" not in said and "not an average" in text(found, "The weighted sum")
    assert (one.tensor.sum(-1) - 1).abs().max() > 0.05
    if softmax == "queries":
        assert torch.allclose(one.tensor.sum(0), torch.ones(S).double())
    else:
        assert torch.allclose((one.tensor + other.tensor)[:, :4], torch.ones(T, 4).double())
        assert "except in the softmax" in text(found, "The input")
    assert "-inf" not in found.steps[5].formula
    assert one.sums == pytest.approx(one.tensor.sum(-1).tolist())


def test_norms(batch: Batch) -> None:
    post, none, pre = (ablated_trace(batch, norm=norm) for norm in ("post", "none", "pre"))
    assert "post-norm" in text(post, "The norm") and "after the norm" in table_names(post) and "h" not in table_names(post)
    assert "no norm at all" in text(none, "The norm") and not {"after the norm", "h"} & table_names(none)
    assert "pre-norm" in text(pre, "The input") and "none here" in text(pre, "The norm")
    assert "pre-norm" not in " ".join(text(none, step.title) for step in none.steps)


def test_other_scores_in_the_transformer(batch: Batch) -> None:
    model: Any = small("transformer", spread=0.3, score="additive")
    found = trace_of(model, batch, "cross")
    v = model.decoder[LAYER - 1].cross_attention.score.weight[HEAD - 1]
    q, k = table_of(found, "Q").tensor, table_of(found, "K").tensor
    assert torch.allclose(table_of(found, "q + k").tensor, q[0] + k)
    assert torch.allclose(table_of(found, "tanh(q + k)").tensor, (q[0] + k).tanh())
    assert torch.allclose(table_of(found, "v^T tanh(q + k)").tensor, (q[:, None] + k).tanh() @ v)
    assert "Bahdanau" in text(found, "The scores") and "no scale" in text(found, "The scale")
    assert "Q K^T" not in table_names(found)
    model = small("transformer", spread=0.3, score="bilinear")
    found = trace_of(model, batch, "cross")
    matrix = model.decoder[LAYER - 1].cross_attention.score.weight[HEAD - 1]
    q, k = table_of(found, "Q").tensor, table_of(found, "K").tensor
    assert torch.allclose(table_of(found, "Q M K^T").tensor, q @ matrix @ k.T)
    assert "Luong" in text(found, "The scores")


def test_no_projections(batch: Batch) -> None:
    found = ablated_trace(batch, "encoder", projections=["value"])
    assert "no W_q, W_k" in text(found, "The projections' weights")
    k = table_of(found, "Q").tensor.size(1)
    part = table_of(found, "h").tensor[:, (HEAD - 1) * k : HEAD * k]
    assert torch.equal(table_of(found, "Q").tensor, part) and torch.equal(table_of(found, "K").tensor, part)
    assert "three different" not in text(found, "Queries, keys and values").lower()


def test_masks(batch: Batch) -> None:
    assert "no causal mask" in text(ablated_trace(batch, "decoder", mask_future=False), "The mask")
    ablated_trace(batch, "decoder", mask_future=False, scale="n_keys")
    alone = Batch(
        batch.src,
        batch.tgt[:, :1],
        [label._replace(read=label.read[:1], produced=label.produced[:1]) for label in batch.labels],
    )
    assert "A single token has no later tokens to hide" in text(ablated_trace(alone, "decoder", scale="n_keys"), "The mask")
    seen = ablated_trace(batch, mask_padding=False)
    assert "does not hide" in text(seen, "The mask") and table_of(seen, "mask", 1).tensor.all()
    assert "source's padding mask" not in text(seen, "The mask")
    weak = ablated_trace(batch, mask_value=-1.0)
    assert "leaks" in text(weak, "The mask") and "exactly 0" not in text(weak, "The mask")
    assert table_of(weak, "weights", 1).tensor.min() > 0 and (table_of(weak, "masked scores", 1).tensor[:, -1] == -1).all()
    bare = trace_of(small("birnn", spread=0.3, mask_padding=False), batch, "alignment")
    assert "does not hide" in text(bare, "The mask")


# The example, and its answers to common questions

ANSWERS = {
    "transformer": {
        "The input": "loop over the batch? No.",
        "The projections' weights": "Not in equation 1 of Vaswani et al. 2017",
        "Queries, keys and values": "Why do Q, K and V differ|K = memory W_k|same S",
        "The scale": "footnote 4",
        "The mask": "-inf before the softmax|target's padding not masked? It need not be|source's padding mask|causal mask",
        "The softmax": "Over the keys|sum to 1|not the probability that the model is right",
        "The residual connection": "Why add x?|only of source vectors",
    },
    "birnn": {
        "The projections": "may differ in width",
        "The comparison": "T S A in all",
        "The scale": "tanh lies between -1 and 1",
        "Where the context goes": "no residual connection",
    },
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_example_answers_common_questions_and_repeats_no_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = read(examples(name))
    assert len(traces) == (3 if name == "transformer" else 1)
    for title, wanted in ANSWERS[name].items():
        there = " ".join(text(one, title) for one in traces)
        assert [phrase for phrase in wanted.split("|") if phrase not in there] == []
    said = [sentence for one in traces for step in one.steps for sentence in step.sentences]
    assert len(said) == len(set(said))
    assert table_of(traces[0], "weights").title.startswith("weights (B 2, ")
    assert ("T 5, S 3)" if name == "transformer" else "T 1, S 3)") in table_of(traces[-1], "weights").title
    for one in traces:
        for n in range(2):
            weights = table_of(one, "weights", n).tensor
            assert torch.allclose(weights.sum(-1), torch.ones(()).double())
            assert weights.max() < 1 or one is traces[1], "a row with all its weight on one key explains little"
        assert_follows_from_matrices(one)
    monkeypatch.undo()
    by_hand = [line for line in examples(name).split("\n\n") if line.startswith("By hand: ")]
    assert len(by_hand) > 2
    for line in by_hand:
        assert_sum(line)


def assert_follows_from_matrices(one: Trace) -> None:
    """Asserts that the shown results can be computed from the shown matrices."""

    def times(x: str, matrix: str) -> Tensor:
        w = table_of(one, f"{matrix}, b").tensor
        return table_of(one, x).tensor @ w[:-1] + w[-1]

    if "W" in table_names(one):  # this is the trace of a BiRNN
        assert torch.allclose(table_of(one, "W q").tensor, table_of(one, "query").tensor @ table_of(one, "W").tensor, atol=1e-6)
        assert torch.allclose(table_of(one, "U k").tensor, table_of(one, "h").tensor @ table_of(one, "U").tensor, atol=1e-6)
        scores = table_of(one, "tanh(W q + U k)").tensor @ table_of(one, "v").tensor[0]
        assert torch.allclose(table_of(one, "e").tensor[0], scores, atol=1e-6)
        return
    source = "memory" if "memory" in table_names(one) else "h"
    for name, x, matrix in (("Q", "h", "W_q"), ("K", source, "W_k"), ("V", source, "W_v"), ("out", "weights x V", "W_o")):
        assert torch.allclose(table_of(one, name).tensor, times(x, matrix), atol=1e-5), name


def assert_sum(line: str) -> None:
    """Asserts that the calculation in a line gives the result stated in that line, up to rounding."""
    _, terms, result = line.rsplit(" = ", 2)
    terms = terms.replace("·", "*").replace("exp(-inf)", "0")
    assert eval(terms, {"exp": math.exp, "__builtins__": {}}) == pytest.approx(float(result), abs=0.006), line


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with checkpoints of untrained models: a BiRNN, and a Transformer with and without cross-attention."""
    place = tmp_path_factory.mktemp("trace")
    lines = ["Le chat dort.", "Jane visite l'Afrique.", "The cat sleeps.", "Jane visits Africa."]
    tokenizer = Tokenizer.train(lines * 3, 300)
    vocabulary = Vocabulary(tokenizer, tokenizer, joint=True)
    variants: dict[str, tuple[str, dict[str, Any]]] = {
        "transformer": ("transformer", {}),
        "birnn": ("birnn", {}),
        "no_cross": ("transformer", {"sublayers": ["self", "ff"]}),
    }
    for file, (name, changes) in variants.items():
        settings: dict[str, Any] = {**SIZES[name], **changes}
        size = len(tokenizer)
        model = MODELS[name](size, size, True, 0, 1, **settings)
        content = entry({"model": {"name": name, **settings}, "seed": 1}, vocabulary, text="", words="")
        weights = {f"model.{key}": value for key, value in model.state_dict().items()}
        write({"entente": content, "state_dict": weights, "global_step": 3}, place / f"{file}.ckpt")
    return place


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (
            "checkpoint=transformer.ckpt layer=2 head=3 sentence=\"Jane visite l'Afrique.\" target='Jane sleeps.'",
            "Cross-attention",
        ),
        (
            "checkpoint=birnn.ckpt step=2 sentence='Le chat dort.' target='The cat'",
            "Alignment by additive attention, target step 2",
        ),
        ("checkpoint=birnn.ckpt step=2 target=' '", "Alignment by additive attention, target step 2"),  # its own translation
        ("checkpoint=no_cross.ckpt kind=decoder target=Jane sentence=Jane", "Decoder masked self-attention"),
        ("example=true kind=encoder", "Encoder self-attention"),
    ],
)
def test_the_command_prints_and_writes_the_same_trace(arguments: str, first: str, folder: Path) -> None:
    ended = run(f"trace {arguments} output=trace.md columns=null threads=1", folder)
    assert (ended.code, ended.err) == (0, "") and ended.out.startswith(first)
    text = (folder / "trace.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {first}") and f"{on_terminal(text, 80)}trace.md\n" == ended.out


WHOLE = "a whole number of at least 1 or null"
BAD = [
    ("", "checkpoint is not set: give checkpoint=FILE, or example=true .+"),
    ("checkpoint=gone", "checkpoint=gone: no such file, .+"),
    ("checkpoint=birnn.ckpt example=true", "checkpoint=birnn.ckpt: .+ leave out checkpoint or example"),
    ("checkpoint=transformer.ckpt kind=both", "kind=both: choose one of encoder, decoder, cross, alignment or null"),
    ("checkpoint=transformer.ckpt head=0", f"head=0: give {WHOLE}"),
    ("checkpoint=birnn.ckpt step=9 target=Jane", r"step=9: choose from 1 to \d"),
    ("checkpoint=no_cross.ckpt", "kind=cross: this model has no such attention; choose from encoder, decoder"),
    ("checkpoint=birnn.ckpt sentence=' '", "sentence is empty: give one as sentence='...'"),
    (f"checkpoint=birnn.ckpt sentence='{'chat ' * 2000}'", "sentence: a sentence of 2,000 words has .+ split it"),
    (f"checkpoint=birnn.ckpt target='{'chat ' * 2000}'", "target: a sentence of 2,000 words has .+ split it"),
    ("example=true output=gone/trace.md", "output=gone/trace.md: cannot be written .+"),
    ("example=true output=trace.txt", r"output=trace.txt: give a name that ends in \.md"),
    ("example=lstm", "example=lstm: choose .+"),
    ("example=true columns=0", f"columns=0: give {WHOLE}"),
    ("example=true heads=1", "heads=1: no such setting; did you mean head.+"),
]


@pytest.mark.parametrize(
    ("arguments", "line"), BAD, ids=[line.partition(":")[0][:40] + str(i) for i, (_, line) in enumerate(BAD)]
)
def test_bad_input_gets_one_line(arguments: str, line: str, folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    ended = run(f"trace {arguments} threads=1", folder)
    assert ended.code == 2 and ended.out == ""
    assert re.fullmatch(f"error: {line}\n", ended.err), ended.err
    assert sorted(path.name for path in folder.iterdir()) == before
