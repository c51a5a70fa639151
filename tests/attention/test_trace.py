"""A trace shows every value that attention computes, describes ablated models correctly, and leaves the model unchanged."""

import html
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from rich.console import Console
from torch import Tensor

from bad_inputs import run
from conftest import BOS, PAD, SRC_VOCAB, TGT_VOCAB, real_ids, small
from entente.attention import trace as package
from entente.attention.trace import Labels, examples, trace
from entente.errors import InputError
from entente.models.attention import rotate
from entente.models.seq2seq import Seq2Seq, pad
from numerics import has_hooks

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
    """Makes traces print all columns, and numbers with enough decimals for tests to compare them."""
    monkeypatch.setattr(package, "DECIMALS", 13)
    monkeypatch.setattr(package, "COLUMNS", 100)


class Table(NamedTuple):
    """A table in a trace. Its title has its name and shape, and says which sentence, rows or columns it shows."""

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

    def tables(self) -> list[Table]:
        return [table for step in self.steps for table in step.tables]

    def names(self) -> set[str]:
        return {table.name for table in self.tables()}

    def table(self, name: str, sentence: int = 0) -> Table:
        return [table for table in self.tables() if table.name == name][sentence]

    def tensor(self, name: str, sentence: int = 0) -> Tensor:
        return self.table(name, sentence).tensor

    def text(self, title: str) -> str:
        """Returns the formula and the sentences of the step called `title`."""
        [step] = [step for step in self.steps if step.title == title]
        return " ".join([step.formula, *step.sentences])


def read(markdown: str) -> list[Trace]:
    """Returns the traces that a Markdown text contains."""
    traces: list[Trace] = []
    sentences: list[str] = []  # since the last heading
    for block in markdown.split("\n\n"):
        if block.startswith("# "):
            traces.append(Trace(html.unescape(block[2:]), []))
            sentences = []
        elif block.startswith("## "):
            steps, sentences = traces[-1].steps, []
            steps.append(Step(*html.unescape(block).removeprefix(f"## {len(steps) + 1}. ").split(": ", 1), [], sentences))
        elif block.startswith("|"):
            lines = [[html.unescape(cell.strip()) for cell in line[1:-1].split("|")] for line in block.splitlines()]
            del lines[1]
            traces[-1].steps[-1].tables.append(Table(sentences.pop(), lines))
        else:
            assert "\n" not in block
            sentences.append(html.unescape(block))
    return traces


def markdown_of(model: Seq2Seq, batch: Batch, kind: str) -> str:
    if kind == "alignment":
        return trace(model, *batch, None, (None, None, STEP))
    return trace(model, *batch, kind, (LAYER, HEAD, None))


def trace_of(model: Seq2Seq, batch: Batch, kind: str) -> Trace:
    [result] = read(markdown_of(model, batch, kind))
    return result


VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post"},
    "rotary": {"positions": "rotary"},
    "cosine": {"score": "cosine"},
    "sliced": {"sliced_heads": True},
    "not mixed": {"output_projection": False},
    "modern": {"norm": "rms", "activation": "swiglu", "positions": "rotary", "score": "cosine", "zero_init": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", TRANSFORMER)
def test_each_table_of_a_transformer_follows_from_its_modules_and_from_the_tables_before_it(
    kind: str, variant: str, batch: Batch
) -> None:
    model: Any = small("transformer", spread=0.3, **VARIANTS[variant])
    block, name = (model.encoder if kind == "encoder" else model.decoder)[LAYER - 1], "cross" if kind == "cross" else "self"
    calls: dict[str, tuple[Tensor, Tensor]] = {}  # the input and the output of each module of the block
    for path, module in block.named_modules():
        module.register_forward_hook(lambda _, inputs, output, path=path: calls.update({path: (inputs[0], output)}))
    actual = trace_of(model, batch, kind)
    t, k = actual.tensor, 7
    columns = slice((HEAD - 1) * k, HEAD * k)
    (x, _), (_, h) = calls[f"residual.{name}"], calls[f"before.{name}"]
    (memory, key), (heads, out) = calls[f"{name}_attention.key"], calls[f"{name}_attention.out"]
    query, value = calls[f"{name}_attention.query"][1], calls[f"{name}_attention.value"][1]
    expected = {"x": x[0], "Q": query[0, :, columns], "K": key[0, :, columns], "V": value[0, :, columns]}
    expected |= {"memory": memory[0]} if kind == "cross" else {}
    expected |= {"h": h[0]} if variant != "post" else {"after the norm": calls[f"after.{name}"][1][0]}
    left, right = t("Q"), t("K")
    if variant in ("rotary", "modern") and kind != "cross":
        expected |= {"rotated Q": rotate(left, start=0), "rotated K": rotate(right, start=0)}
        left, right = t("rotated Q"), t("rotated K")
    product = "Q K^T"
    if variant in ("cosine", "modern"):
        unit, key_unit = (side / side.square().mean(-1, keepdim=True).sqrt() for side in (left, right))
        expected |= {"Q'": unit * block.get_submodule(f"{name}_attention").score.factor, "K'": key_unit}
        product, left, right = "Q' K'^T", t("Q'"), t("K'")
    mask = torch.ones(T, T).tril().bool() if kind == "decoder" else (batch.src != PAD)[:1]
    masked = t("masked scores")
    expected |= {product: left @ right.T, "scaled scores": t(product) / math.sqrt(k), "mask": mask}
    expected |= {"masked scores": torch.where(mask, t("scaled scores"), -torch.inf)}
    expected |= {"weights": masked.exp() / masked.exp().sum(-1, keepdim=True), "weights x V": t("weights") @ t("V")}
    expected |= {"all heads": heads[0], "out": out[0], "after the residual": t("x") + t("out")}
    if variant == "sliced":  # its matrices are small enough to be shown
        for part in ("query", "key", "value"):
            layer = block.get_submodule(f"{name}_attention.{part}")
            expected[f"W_{part[0]}, b"] = torch.cat([layer.weight[columns].T, layer.bias[None, columns]])
    assert actual.names() == expected.keys()
    assert_tables(actual, {table: [values] for table, values in expected.items()})
    assert torch.allclose(t("all heads")[:, columns], t("weights x V"))
    assert kind == "decoder" or torch.equal(t("mask", 1).bool(), (batch.src != PAD)[1:])


def assert_tables(actual: Trace, expected: dict[str, list[Tensor]]) -> None:
    """Asserts that the tables of a trace have the expected numbers, for the sentences of which some are expected."""
    for table in actual.tables():
        n = 1 if "sentence 2" in table.title else 0
        if n < len(expected[table.name]):
            assert torch.allclose(table.tensor, expected[table.name][n].double(), atol=1e-10), table.title
        finite = table.tensor[table.tensor.isfinite()]
        assert finite.std() > 0.01 or table.name == "mask", "equal numbers would hide mistakes"
    assert len(actual.names()) > 7


def test_the_birnns_numbers_equal_those_recomputed_from_its_parameters(batch: Batch) -> None:
    model: Any = small("birnn", spread=0.3)
    actual = trace_of(model, batch, "alignment")
    p = dict(model.named_parameters())
    memory = model.encode(batch.src).source.kv.value
    _, state = model.decode(batch.tgt[:, : STEP - 1], model.encode(batch.src))  # the state before step STEP
    query = state.written[0][:, None]
    queries, keys = query @ p["attention.query.weight"].T, memory @ p["attention.key.weight"].T
    added = queries + keys
    e = added.tanh() @ p["attention.score.weight"][0]
    masked = torch.where(batch.src != PAD, e, -torch.inf)[:, None]
    weights = masked.exp() / masked.exp().sum(-1, keepdim=True)
    _, next_state = model.decode(batch.tgt[:, :STEP], model.encode(batch.src))
    expected = {"query": query, "h": memory, "W q": queries, "U k": keys, "W q + U k": added, "tanh(W q + U k)": added.tanh()}
    expected |= {"e": e[:, None], "mask": (batch.src != PAD)[:, None], "masked scores": masked, "weights": weights}
    expected |= {"context": weights @ memory, f"s_{STEP}, the next query": next_state.written[0][:, None]}
    assert actual.names() == expected.keys()
    assert_tables(actual, {name: list(values.detach()) for name, values in expected.items()})


@pytest.mark.parametrize(("score", "readout"), [("bilinear", "residual"), ("dot", "context")])
def test_the_birnns_other_scores(score: str, readout: str, batch: Batch) -> None:
    model: Any = small("birnn", spread=0.3, score=score, readout=readout)
    actual = trace_of(model, batch, "alignment")
    assert actual.title.startswith(f"Alignment by {'dot-product' if score == 'dot' else score} attention")
    assert {"bilinear": "learned matrix W", "dot": "sum of both directions"}[score] in actual.text("The keys")
    memory = actual.tensor("h")
    key = memory @ model.attention.key.weight.T if score == "bilinear" else memory[:, :19] + memory[:, 19:]
    assert torch.allclose(actual.tensor("k"), key)
    assert torch.allclose(actual.tensor("q . k"), actual.tensor("query") @ key.T)
    assert torch.equal(actual.tensor("q . k"), actual.tensor("scores")) and "not scaled" in actual.text("The scale")
    projected = model.context(actual.tensor("context"))
    if readout == "residual":
        assert torch.allclose(actual.tensor("s_i + P c_i"), projected + actual.tensor(f"s_{STEP}, the next query"))
    else:
        assert torch.allclose(actual.tensor("P c_i"), projected)


# The printed text


def on_terminal(text: str, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        package.show(text, console)
    return capture.get()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_printed_numbers_are_rounded(kind: str, name: str, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(name, spread=0.3)
    exact = trace_of(model, batch, kind)
    monkeypatch.setattr(package, "DECIMALS", 3)
    text = markdown_of(model, batch, kind)
    [printed] = read(text)
    masked = {table.title: table.tensor == 0 for table in exact.tables() if table.name == "weights"}
    for table, values in zip(printed.tables(), exact.tables(), strict=True):
        assert (table.title, table.columns, table.rows) == (values.title, values.columns, values.rows)
        assert torch.allclose(table.tensor, values.tensor, rtol=0, atol=0.0005001)
        hidden = masked.get(table.title.replace("masked scores", "weights"), torch.zeros(values.tensor.shape))
        assert [[cell.startswith("(") for cell in row] for row in table.cells] == hidden.bool().tolist()
        assert [[cell.strip("()") == "0" for cell in row] for row in table.cells] == (values.tensor == 0).tolist()
        if table.name == "weights":
            assert table.sums == pytest.approx(values.tensor.sum(1).tolist(), abs=0.0006)
            columns = [] if kind == "alignment" else [*map(float, table.grid[-1][1:-1])]
            assert columns == pytest.approx(values.tensor.sum(0).tolist() if columns else [], abs=0.0006)
    screen = on_terminal(text, 80)
    assert all(title in screen for title in (printed.title, *(step.title for step in printed.steps)))
    for line in re.findall(r"^\| (?!---)(.*) \|$", text, re.MULTILINE):
        assert re.search(r"\s+".join(re.escape(html.unescape(cell)) for cell in line.replace("|", " ").split()), screen), line
    assert ("|[b]_1*" in screen or kind == "decoder") and "(-inf)" in screen and "---" not in screen and "&" not in screen


# The model is left unchanged


def test_an_error_leaves_no_hooks(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("transformer")
    monkeypatch.setattr(model, "decode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace_of(model, batch, "cross")
    assert not has_hooks(model)
    assert not torch.overrides._get_current_function_mode_stack()


# Refusals


@pytest.mark.parametrize(
    ("name", "changes", "numbers", "line"),
    [
        ("transformer", {}, (None, 4, None), "head=4: choose from 1 to 3"),
        ("transformer", {}, (None, None, 2), "step=2: choose from 1 to 1"),
        ("birnn", {}, (None, None, T + 1), f"step={T + 1}: choose from 1 to {T}"),
        ("birnn", {"score": "none"}, (None, None, None), "checkpoint: this model has no attention; give another checkpoint"),
    ],
)
def test_an_attention_that_is_not_there_is_refused(
    name: str, changes: dict[str, Any], numbers: tuple[int | None, ...], line: str, batch: Batch
) -> None:
    with pytest.raises(InputError, match=f"^{line}$"):
        trace(small(name, **changes), *batch, None, numbers)


# Ablated models are described correctly


# kind, changed settings, title of a step, a phrase in its text, and a phrase that is not in it
ABLATIONS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("cross", {"residual": ["self", "ff"]}, "The residual connection", "no residual connection", "x + out"),
    ("decoder", {"residual": ["self"]}, "The residual connection", "keeps its own token", "no residual connection"),
    ("cross", {"scale": "none"}, "The scale", "does not scale", "Why divide"),
    ("decoder", {"scale": "n_keys"}, "The scale", "misreading", "Why divide"),
    ("cross", {"softmax": "queries"}, "The softmax", "sums to 1, but the rows do not", "over the keys"),
    ("cross", {"softmax": "batch"}, "The softmax", "Rows do not sum to 1", "over the keys"),
    ("cross", {"norm": "post"}, "The norm", "post-norm", "none here"),
    ("cross", {"score": "additive"}, "The scores", "Bahdanau", "matrix product computes"),
    ("cross", {"score": "bilinear"}, "The scores", "Luong", "Bahdanau"),
    ("encoder", {"projections": ["value"]}, "The projections' weights", "no W_q, W_k", "equation 1"),
    ("decoder", {"mask_future": False}, "The mask", "no causal mask", "Which mask"),
    ("cross", {"mask_padding": False}, "The mask", "does not hide", "source's padding mask"),
    ("cross", {"mask_value": -1.0}, "The mask", "leaks", "exactly 0"),
]


@pytest.mark.parametrize(("kind", "changes", "title", "present", "absent"), ABLATIONS, ids=str)
def test_an_ablated_transformer_is_described_with_the_numbers_that_it_computes(
    kind: str, changes: dict[str, Any], title: str, present: str, absent: str, batch: Batch
) -> None:
    model: Any = small("transformer", spread=0.3, **changes)
    block, name = model.encoder[1] if kind == "encoder" else model.decoder[1], "cross" if kind == "cross" else "self"
    outputs: list[Tensor] = []
    for module in (getattr(block, f"{name}_attention").weights, block.residual[name]):
        module.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    actual = trace_of(model, batch, kind)
    assert present in actual.text(title) and absent not in actual.text(title)
    for n in range(2):
        assert torch.allclose(actual.tensor("weights", n), outputs[0][n, HEAD - 1])
        assert actual.table("weights", n).sums == pytest.approx(outputs[0][n, HEAD - 1].sum(-1).tolist())
    assert torch.allclose(actual.tensor("after the residual"), outputs[1][0])


def test_other_scores_scales_and_projections_are_computed_as_shown(batch: Batch) -> None:
    model: Any = small("transformer", spread=0.3, score="additive")
    actual = trace_of(model, batch, "cross")
    added, v = actual.tensor("Q")[:, None] + actual.tensor("K"), model.decoder[1].cross_attention.score.weight[HEAD - 1]
    assert torch.allclose(actual.tensor("q + k"), added[0]) and torch.allclose(actual.tensor("tanh(q + k)"), added[0].tanh())
    assert torch.allclose(actual.tensor("v^T tanh(q + k)"), added.tanh() @ v)
    model = small("transformer", spread=0.3, score="bilinear", scale="n_keys")
    actual, matrix = trace_of(model, batch, "decoder"), model.decoder[1].self_attention.score.weight[HEAD - 1]
    assert torch.allclose(actual.tensor("Q M K^T"), actual.tensor("Q") @ matrix @ actual.tensor("K").T)
    assert torch.allclose(actual.tensor("factor"), torch.arange(1, T + 1)[:, None].double().rsqrt())
    assert torch.allclose(actual.tensor("scaled scores"), actual.tensor("Q M K^T") * actual.tensor("factor"))
    actual = trace_of(small("transformer", spread=0.3, projections=["value"]), batch, "encoder")
    k = actual.tensor("Q").size(1)
    assert torch.equal(actual.tensor("Q"), actual.tensor("h")[:, (HEAD - 1) * k : HEAD * k])


# The example


def test_the_example_can_be_followed_by_hand_and_repeats_no_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = read(examples(name))
    assert len(traces) == (3 if name == "transformer" else 1)
    sentences = [sentence for example in traces for step in example.steps for sentence in step.sentences]
    assert len(sentences) == len(set(sentences))
    for example in traces:
        for n in range(2):
            weights = example.tensor("weights", n)
            assert torch.allclose(weights.sum(-1), torch.ones(()).double())
            assert weights.max() < 1 or example is traces[1], "a row with all its weight on one key explains little"
        assert_follows_from_matrices(example)
    monkeypatch.undo()
    by_hand = [line for line in examples(name).split("\n\n") if line.startswith("By hand: ")]
    assert len(by_hand) > 2
    for line in by_hand:  # the calculation gives the stated result, up to rounding
        _, terms, result = line.rsplit(" = ", 2)
        terms = terms.replace("·", "*").replace("exp(-inf)", "0")
        assert eval(terms, {"exp": math.exp, "__builtins__": {}}) == pytest.approx(float(result), abs=0.006), line


def assert_follows_from_matrices(example: Trace) -> None:
    """Asserts that the shown results can be computed from the shown matrices."""
    if "W" in example.names():  # this is the trace of a BiRNN
        for result, x, matrix in (("W q", "query", "W"), ("U k", "h", "U")):
            assert torch.allclose(example.tensor(result), example.tensor(x) @ example.tensor(matrix), atol=1e-6)
        scores = example.tensor("tanh(W q + U k)") @ example.tensor("v")[0]
        assert torch.allclose(example.tensor("e")[0], scores, atol=1e-6)
        return
    source = "memory" if "memory" in example.names() else "h"
    for name, x, matrix in (("Q", "h", "W_q"), ("K", source, "W_k"), ("V", source, "W_v"), ("out", "weights x V", "W_o")):
        w = example.tensor(f"{matrix}, b")
        assert torch.allclose(example.tensor(name), example.tensor(x) @ w[:-1] + w[-1], atol=1e-5), name


# The command


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ("checkpoint=run head=2 sentence='Le chat.' target='The cat.'", "Cross-attention"),
        ("checkpoint=run kind=decoder target=' '", "Decoder masked self-attention"),  # its own translation
        ("example=true kind=encoder", "Encoder self-attention"),
        ("example=birnn step=2", "Alignment by additive attention, target step 2"),
    ],
)
def test_the_command_prints_and_writes_the_same_trace(arguments: str, first: str, folder: Path) -> None:
    ended = run(f"trace {arguments} output=trace.md threads=1", folder)
    assert (ended.code, ended.err) == (0, "") and ended.out.startswith(first)
    text = (folder / "trace.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {first}") and f"{on_terminal(text, 80)}trace.md\n" == ended.out
