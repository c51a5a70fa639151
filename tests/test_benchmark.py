"""The benchmark: what it counts, how it compares, whom it leaves out; and ours against another for two bursts."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional as F

from entente.benchmark import cases, wire
from entente.benchmark.cases import Bench, lacks
from entente.benchmark.ceiling import products
from entente.benchmark.counting import Operations
from entente.benchmark.ours import decoded_pairs, endless
from entente.benchmark.parts import PARTS, Profile, reading
from entente.benchmark.picture import picture
from entente.benchmark.report import benchmark, remarks
from entente.benchmark.results import Spread, of_case, ratios, share_of_ceiling
from entente.benchmark.settings import Benchmark, check
from entente.benchmark.turns import OURS, Contestant, Measured, in_turn
from entente.checkpoint import Run
from entente.config import command_line as cli
from entente.config.schema import fill
from entente.data.tokenizer import BOS, EOS, PAD
from entente.decoding.search import Search, search
from entente.errors import InputError
from entente.models import Transformer

ROOT = Path(__file__).parents[1]
TINY = [
    "data.train=211",
    "data.valid=11",
    "data.test=13",
    "data.tokenizer.vocab_size=400",
    "data.batch.max_tokens=200",
    "model.d_model=12",
    "model.d_ff=20",
    "model.n_layers=1",
    "model.n_heads=2",
    "trainer.threads=1",
    "trainer.accelerator=cpu",
    "benchmark.pairs=2",
    "benchmark.steps=1",
    "benchmark.largest=8",
]


def composed(*overrides: str) -> dict[str, Any]:
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = OmegaConf.to_container(hydra.compose("benchmark", [*TINY, *overrides]), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def transformer(**changes: Any) -> Transformer:
    sizes = {"d_model": 12, "n_heads": 2, "n_layers": 2, "d_ff": 20, "dropout": 0.0, **changes}
    return Transformer(src_vocab=31, tgt_vocab=31, shared_vocab=True, pad_id=PAD, seed=1, **sizes)


def test_the_operations_of_a_training_step_are_those_of_the_formula() -> None:
    """A linear layer has three products of 2 M K N; an attention's two have as many again for each gradient."""
    b, s, t, d, d_ff, v, layers = 3, 7, 5, 12, 20, 31, 2
    model = transformer()
    src, tgt = torch.randint(4, v, (b, s)), torch.randint(4, v, (b, t))
    with Operations() as operations:
        F.cross_entropy(model.output(model(src, tgt)).flatten(0, 1), tgt.flatten()).backward()
    source, target = b * s, b * t
    encoder = 4 * source * d * d + 2 * source * d * d_ff
    decoder = 4 * target * d * d + 2 * (target + source) * d * d + 2 * target * d * d_ff
    linear = 3 * 2 * (layers * (encoder + decoder) + target * d * v)
    attention = 2 * b * d * layers * (s * s + t * t + t * s)  # of scores, or of weighted values
    # A fused attention computes its scores once more for the gradient.
    assert operations.total - linear in (6 * attention, 7 * attention)
    assert operations.uncounted == []


def test_what_torch_does_not_count_is_counted() -> None:
    query, key = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randn(2, 3, 7, 4, requires_grad=True)
    one_product = 2 * 2 * 3 * 5 * 7 * 4
    with Operations() as operations:
        F.scaled_dot_product_attention(query, key, key).sum().backward()
    assert operations.total in (6 * one_product, 7 * one_product) and operations.uncounted == []
    with Operations() as operations:
        torch.randn(11, 13) @ torch.randn(13)
        torch.randn(11, 7).addmm_(torch.randn(11, 13), torch.randn(13, 7))
    assert operations.total == 2 * 11 * 13 + 2 * 11 * 13 * 7 and operations.uncounted == []


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return 2 * (x @ w)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return 2 * (grads[0] @ w.T), 2 * (x.T @ grads[0])


def test_products_in_an_autograd_function_of_ones_own_are_counted() -> None:
    x, w = torch.randn(5, 7, requires_grad=True), torch.randn(7, 11, requires_grad=True)
    with Operations() as operations:
        Doubled.apply(x, w).sum().backward()
    assert operations.total == 3 * 2 * 5 * 7 * 11


def test_the_ceiling_has_the_linear_layers_of_the_model() -> None:
    model = transformer()
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    sizes = products({"d_model": 12, "d_ff": 20, "n_layers": 2}, 31, rows=17)
    assert sum(sizes.values()) == len(linear)
    assert sum(k * n * count for (_, k, n), count in sizes.items()) == sum(layer.weight.numel() for layer in linear)


def test_the_parts_of_a_step_are_all_of_it() -> None:
    model = torch.nn.Linear(8, 16)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    with Profile("cpu", model) as profile:
        with reading():
            x = torch.randn(64, 8)
        hidden = F.dropout(model(x), 0.5)
        weights = (hidden.view(4, 16, 16) @ hidden.view(4, 16, 16)).softmax(-1)
        F.cross_entropy(weights.flatten(0, 1), torch.zeros(64, dtype=torch.long)).backward()
        adam.step()
    parts = profile.parts(60.0)
    assert tuple(parts) == PARTS and sum(parts.values()) == pytest.approx(60)
    assert all(seconds > 0 for seconds in parts.values())


class OwnDropout(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.rand_like(x) > 0.5)


def test_a_module_of_ones_own_is_known_by_its_name() -> None:
    model = OwnDropout()
    with Profile("cpu", model) as profile:
        model(torch.ones(64, 64, requires_grad=True)).sum().backward()
    parts = profile.parts(60.0)
    assert parts["dropout"] > 0 and not model._forward_hooks
    without = {part for part, seconds in parts.items() if part != "dropout" and seconds > 0}
    assert without == {"norms and elementwise", "other"}  # the sum


def test_a_picture_has_a_name_and_a_share_for_each() -> None:
    one = {part: i + 1.0 for i, part in enumerate(PARTS)}
    figure = picture({"ours": one, "another": one})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ours", "another"]
    assert "22%" in [text.get_text() for text in figure.axes[0].texts]


def bursts(*seconds: float, tokens: int = 6) -> Measured:
    return Measured({}, bursts=[{"seconds": s, "tokens": tokens, "peak_mb": 10 * s} for s in seconds])


def test_ratios_are_of_pairs() -> None:
    assert ratios([6.0, 3.0, 1.0], [3.0, 3.0, 4.0]) == [2.0, 1.0, 0.25]
    assert Spread.of([2.0, 1.0, 0.25]) == Spread(1.0, 0.25, 2.0)


def test_a_case_has_medians_ratios_and_peaks() -> None:
    """6 tokens in 1, 2 and 3 seconds against 2, 2 and 6: the ratios of the pairs are 2, 1 and 2."""
    missing = Measured({}, left_out="not installed")
    result = of_case("transformer", "tokens/s", {OURS: bursts(1, 2, 3), "it": bursts(2, 2, 6), "none": missing})
    ours, it = result.rows
    assert ours.figure == Spread(3, 2, 6) and ours.ratio is None and ours.peak_mb == 30
    assert it.figure == Spread(3, 1, 3) and it.ratio == Spread(2, 1, 2) and it.overall == pytest.approx(1.8)
    assert result.left_out == {"none": "not installed"}
    assert remarks(result) == ["transformer: left out none: not installed"]


def test_fewer_seconds_are_a_ratio_in_our_favour() -> None:
    result = of_case("startup", "seconds", {OURS: bursts(1, 1), "it": bursts(2, 4)}, as_seconds=True)
    assert result.rows[1].figure == Spread(3, 2, 4) and result.rows[1].ratio == Spread(3, 2, 4)


def test_the_share_of_the_ceiling_is_of_the_burst_beside() -> None:
    assert share_of_ceiling([8 * 10**9], [{"seconds": 2.0}], [{"gflops": 16.0}]) == [0.25]


TALKER = f"""
import sys
sys.path.append({str(Path(wire.__file__).parent)!r})
from wire import Wire, serve, setting_file
wire, settings = Wire(), setting_file()
print("chatter")
wire.answer(version=settings["version"])
def burst(request):
    if request["steps"] == settings["dies_at"]: raise ValueError("no such step")
    return {{"seconds": 1.0, "tokens": 3 * request["steps"]}}
serve(wire, burst)
"""


def talker(folder: Path, name: str, dies_at: int = -1) -> Contestant:
    (folder / "talker.py").write_text(TALKER, encoding="utf-8")
    return Contestant(name, [sys.executable, str(folder / "talker.py")], {"version": "1.2", "dies_at": dies_at})


def test_contestants_take_turns(tmp_path: Path) -> None:
    said: list[str] = []
    contestants = [talker(tmp_path, "ours"), talker(tmp_path, "it"), talker(tmp_path, "broken", dies_at=2)]
    found = in_turn(contestants, 2, 1, {"steps": 2}, said.append)
    assert said == ["ours", "it", "broken", "ours", "it", "broken", "ours", "it", "ours", "it"]
    assert found["broken"].left_out == "ended with code 1: ValueError: no such step"
    assert found["it"].about["version"] == "1.2" and found["it"].warm_up["tokens"] == 6
    assert [burst["tokens"] for burst in found["ours"].bursts] == [6, 6] and found["ours"].bursts[0]["peak_mb"] > 1


def test_ours_is_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ours: ended with code 1: ValueError: no such step"):
        in_turn([talker(tmp_path, OURS, dies_at=2)], 1, 1, {"steps": 2}, lambda name: None)


def test_what_is_not_installed_is_said_in_a_line(tmp_path: Path) -> None:
    assert lacks("torch") == ""
    assert lacks("no_such_package") == "no_such_package is not installed here"
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    assert lacks("no_such_package", str(python)) == f"no_such_package is not installed in {python}"
    assert lacks("eole", None) == "no interpreter given; benchmark.peers.eole=PYTHON"
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    assert lacks("eole", str(tmp_path / "text")) == f"{tmp_path / 'text'} does not run (Exec format error)"


def bench(folder: Path, *overrides: str) -> Bench:
    config = composed(*overrides)
    return Bench(config, fill(Benchmark, "benchmark", config.pop("benchmark")), folder, lambda name: None)


def test_a_corpus_without_test_split_is_decoded_by_its_validation(tmp_path: Path) -> None:
    corpus = bench(tmp_path).data.corpus
    assert decoded_pairs(corpus) is corpus.tests["test"]
    assert decoded_pairs(replace(corpus, tests={})) is corpus.valid


@pytest.mark.parametrize(("precision", "told"), [("32", "32-true"), ("bf16", "bf16-mixed"), ("16-mixed", "")])
def test_a_precision_that_the_others_have_not_leaves_them_out(tmp_path: Path, precision: str, told: str) -> None:
    one = bench(tmp_path, f"trainer.precision={precision}")
    assert one.common["precision"] == (told or precision)
    assert one.other_precision == ("" if told else "measured in 32-true and bf16-mixed only")


def test_a_ceiling_that_is_lost_takes_nothing_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    burst = {"seconds": 2.0, "tokens": 7, "peak_mb": 3}
    found = {OURS: Measured({}, bursts=[burst]), "ceiling": Measured({}, left_out="ended with code 137: killed")}
    monkeypatch.setattr(cases, "in_turn", lambda *_: dict(found))
    monkeypatch.setattr(cases, "training_peers", lambda bench: [])
    training, ceiling = cases.transformer(bench(tmp_path), {"transformer", "ceiling"})
    assert [row.contestant for row in training.rows] == [OURS]
    assert (ceiling.rows, ceiling.left_out) == ([], {"ceiling": "ended with code 137: killed"})


def test_a_model_that_ctranslate2_has_not_leaves_it_out(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    one = bench(tmp_path)
    run = Run(one._prepared[1].model, one.data.vocabulary, {"model": {"name": "birnn"}}, {}, 0)
    assert {why for _, why in cases.ctranslate2(one, "greedy_trained", run, [[5, 2]], 1, 0)} == {
        "engine=ctranslate2: model.name=birnn: CTranslate2 has no such model; use engine=torch"
    }


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_without_end_gives_every_sentence_the_same_length(beam: int) -> None:
    model = transformer().eval()
    with torch.no_grad():
        model.output.weight[EOS] *= 100  # one that would end at once, or at random
    endless(model)
    src = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    found = search(model, src, Search(beam=beam, length_factor=0.0, length_offset=6), BOS, EOS)
    assert [len(n_best[0].tokens) for n_best in found] == [6, 6]


Refused = Callable[..., list[str]]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The lines with which the command is refused, having measured nothing."""

    def called(*overrides: str) -> list[str]:
        def never(config: Mapping[str, Any]) -> None:
            raise AssertionError("measured")

        monkeypatch.setattr(sys, "argv", ["benchmark.py", *overrides])
        with pytest.raises(SystemExit) as ended:
            cli.run(never, ROOT / "configs", "benchmark", check)
        assert ended.value.code == 2
        return capsys.readouterr().err.splitlines()

    return called


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("benchmark.cases=[transfomer]", "did you mean transformer?"),
        ("benchmark.cases=[]", "give one at least"),
        ("cases=[beam]", "did you mean benchmark.cases?"),
        ("benchmark.peers.fairseq=python", "there are joeynmt, eole"),
        ("benchmark.peers.eole=/nowhere/python", "no such program; give the path of that environment's Python"),
        ("benchmark.checkpoint=nowhere", "no such file, and no run with checkpoints/best.ckpt in it"),
        ("benchmark.birnn.cell=gur", "benchmark.birnn.cell=gur: choose one of gru, lstm; did you mean gru?"),
        ("model=birnn", "give a transformer"),
        ("model.norm=none", "the peers have no such model"),
        ("model.residual=[self,ff]", "the peers have no such model"),
        ("benchmark.birnn.cell=lstm", "benchmark.birnn.cell=lstm: the peers have no such model"),
        ("trainer.accumulate=2", "trainer.accumulate=2: the peers take a step for each batch"),
        ("benchmark.peers.joeynmt=/usr/bin", "no such program"),
        ("benchmark.pairs=0", "give a whole number of at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(refused: Refused, override: str, words: str) -> None:
    [line] = refused(override)
    assert line.startswith("error: ") and words in line


def test_ours_against_marian(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    own = [f"output_dir={tmp_path / 'runs'}", f"benchmark.output={tmp_path / 'out'}"]
    config = composed(*own, "benchmark.cases=[transformer,ceiling]", f"benchmark.peers.joeynmt={sys.executable}")
    if not lacks("joeynmt"):
        pytest.skip("JoeyNMT is installed here, so that it is not left out")
    training, ceiling = benchmark(config)
    assert [row.contestant for row in training.rows] == [OURS, "Marian (transformers)"]
    assert training.left_out["JoeyNMT"] == "joeynmt is not installed here" and "EOLE" in training.left_out
    assert all(row.figure.lowest > 0 and row.note == "" and row.peak_mb for row in training.rows)
    assert all(0 < share < math.inf for share in ceiling.raw["share_of_ceiling"]) and ceiling.raw["uncounted"] == []
    written = json.loads((tmp_path / "out" / "benchmark.json").read_text(encoding="utf-8"))
    assert len(written["results"][0]["raw"][OURS]["bursts"]) == 2 and written["cpu"] and written["versions"]["torch"]
    assert "| transformer, target tokens/s | ours |" in (tmp_path / "out" / "benchmark.md").read_text(encoding="utf-8")
