"""Tests the operation counts, ratios and left-out programs of scripts/benchmark.py, and runs a small measurement with it."""

import importlib.util
import json
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils.flop_counter import FlopCounterMode

from bad_inputs import run
from benchmark import cases, wire
from benchmark.batches import endless_batches, read_batches, target_tokens, write_batches
from benchmark.cases import Bench
from benchmark.contestants.ours import forbid_end, pairs_to_decode
from benchmark.operations import linear_layers, training_operations
from benchmark.parts import BATCH_EVENT, PARTS, Profile
from benchmark.report import benchmark, picture, remarks
from benchmark.results import Result, Spread, case_result
from benchmark.settings import Benchmark
from benchmark.turns import OURS, Contestant, Measured, in_turn
from entente.checkpoint import Run
from entente.config.schema import fill
from entente.data.tokenizer import BOS, EOS, PAD
from entente.decoding.search import Search, search
from entente.errors import InputError
from entente.models import Transformer
from entente.training.train import check_run

ROOT = Path(__file__).parents[2]
TINY = """
    data.train=211 data.valid=11 data.test=13 data.tokenizer.vocab_size=400 data.batch.max_tokens=200 model.d_model=12
    model.d_ff=20 model.n_layers=1 model.n_heads=2 trainer.threads=1 trainer.accelerator=cpu benchmark.pairs=2
    benchmark.steps=1 benchmark.largest=8
""".split()


def benchmark_config(*overrides: str) -> dict[str, Any]:
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = OmegaConf.to_container(hydra.compose("benchmark", [*TINY, *overrides]), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def transformer(**changes: Any) -> Transformer:
    sizes = {"d_model": 12, "n_heads": 2, "n_layers": 2, "d_ff": 20, "dropout": 0.0, **changes}
    return Transformer(src_vocab=31, tgt_vocab=31, shared_vocab=True, pad_id=PAD, seed=1, **sizes)


def test_the_formula_of_operations_agrees_with_torch() -> None:
    b, s, t, vocabulary = 3, 7, 5, 31
    model = transformer()
    src, tgt = torch.randint(4, vocabulary, (b, s)), torch.randint(4, vocabulary, (b, t))
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model.output(model(src, tgt)).flatten(0, 1), tgt.flatten()).backward()
    sizes = {"d_model": 12, "d_ff": 20, "n_layers": 2}
    assert counter.get_total_flops() == training_operations(sizes, vocabulary, b, s, t, n=b * t)


def test_the_ceiling_has_the_linear_layers_of_the_model() -> None:
    model = transformer()
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    sizes = linear_layers({"d_model": 12, "d_ff": 20, "n_layers": 2}, 31, rows=17)
    assert sum(sizes.values()) == len(linear)
    assert sum(k * n * count for (_, k, n), count in sizes.items()) == sum(layer.weight.numel() for layer in linear)


def test_the_parts_of_a_step_sum_to_its_time() -> None:
    model = torch.nn.Linear(8, 16)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    with Profile("cpu", model) as profile:
        with record_function(BATCH_EVENT):
            x = torch.randn(64, 8)
        hidden = F.dropout(model(x), 0.5)
        weights = (hidden.view(4, 16, 16) @ hidden.view(4, 16, 16)).softmax(-1)
        F.cross_entropy(weights.flatten(0, 1), torch.zeros(64, dtype=torch.long)).backward()
        adam.step()
    parts = profile.parts(60.0)
    assert tuple(parts) == PARTS and sum(parts.values()) == pytest.approx(60)
    assert all(seconds > 0 for seconds in parts.values())


class CustomDropout(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.rand_like(x) > 0.5)


def test_a_custom_module_is_recognised_by_its_class_name() -> None:
    model = CustomDropout()
    with Profile("cpu", model) as profile:
        model(torch.ones(64, 64, requires_grad=True)).sum().backward()
    parts = profile.parts(60.0)
    assert parts["dropout"] > 0 and not model._forward_hooks
    without = {part for part, seconds in parts.items() if part != "dropout" and seconds > 0}
    assert without == {"norms and elementwise", "other"}  # `sum` and its gradient belong to these parts


def test_a_picture_labels_each_contestant_and_each_share() -> None:
    one = {part: i + 1.0 for i, part in enumerate(PARTS)}
    figure = picture({"ours": one, "another": one})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ours", "another"]
    assert "22%" in [text.get_text() for text in figure.axes[0].texts]


def bursts(*seconds: float, tokens: int = 6) -> Measured:
    return Measured({}, bursts=[{"seconds": s, "tokens": tokens, "peak_mb": 10 * s} for s in seconds])


def test_a_case_has_medians_ratios_and_peaks() -> None:
    """The ratios are 2, 0.5 and 2 if our bursts take 1, 2 and 3 seconds, and another program's take 2, 1 and 6 seconds."""
    missing = Measured({}, left_out="not installed")
    result = case_result("transformer", "tokens/s", {OURS: bursts(1, 2, 3), "it": bursts(2, 1, 6), "none": missing})
    ours, it = result.rows
    assert ours.figure == Spread(3, 2, 6) and ours.ratio is None and ours.peak_mb == 30
    assert it.figure == Spread(3, 1, 6) and it.ratio == Spread(2, 0.5, 2)
    assert result.left_out == {"none": "not installed"}
    assert remarks(result) == ["transformer: left out none: not installed"]


def test_fewer_seconds_give_a_ratio_above_1() -> None:
    result = case_result("startup", "seconds", {OURS: bursts(1, 1), "it": bursts(2, 4)}, count=None)
    assert result.rows[1].figure == Spread(3, 2, 4) and result.rows[1].ratio == Spread(3, 2, 4)


def test_the_share_of_the_ceiling_compares_bursts_of_a_round() -> None:
    ours = Measured({}, bursts=[{"seconds": 2.0, "gflop": 8.0}])
    ceiling = Measured({}, bursts=[{"seconds": 0.5, "gflop": 8.0}])
    [remark] = remarks(case_result("ceiling", "GFLOP/s", {OURS: ours, "products of the same sizes": ceiling}, count="gflop"))
    assert remark.startswith("ceiling: ours runs at 25% (25% - 25%) of the speed of matrix products of the same sizes")


CONTESTANT = f"""
import sys
sys.path.append({str(Path(wire.__file__).parents[1])!r})
from benchmark.wire import Wire
wire = Wire()
print("goes to standard error")
wire.answer(version=wire.settings["version"])
def burst(request):
    if request["steps"] == wire.settings["fails_at"]: raise ValueError("no such step")
    return {{"seconds": 1.0, "tokens": 3 * request["steps"]}}
wire.serve(burst)
"""


def contestant(folder: Path, name: str, fails_at: int = -1) -> Contestant:
    """Returns a contestant that reports constant times, and that fails if it is asked for `fails_at` steps."""
    (folder / "contestant.py").write_text(CONTESTANT, encoding="utf-8")
    return Contestant(name, [sys.executable, str(folder / "contestant.py")], {"version": "1.2", "fails_at": fails_at})


def test_contestants_take_turns(tmp_path: Path) -> None:
    order: list[str] = []
    absent = Contestant("absent", ["no/python"], {})
    excluded = Contestant("excluded", [], {}, left_out="not on this machine")
    sound, failing = [contestant(tmp_path, name) for name in ("ours", "it")], contestant(tmp_path, "failing", fails_at=2)
    found = in_turn([*sound, failing, absent, excluded], 2, 1, {"steps": 2}, order.append)
    assert order == ["ours", "it", "failing", "absent", "ours", "it", "ours", "it"]
    assert found["absent"].left_out == "not started: No such file or directory"
    assert found["excluded"].left_out == "not on this machine"
    assert found["failing"].left_out == "ended with code 1: ValueError: no such step"
    assert found["it"].about["version"] == "1.2" and found["it"].warm_up["tokens"] == 6
    assert [burst["tokens"] for burst in found["ours"].bursts] == [6, 6] and found["ours"].bursts[0]["peak_mb"] > 1


def test_ours_is_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ours: ended with code 1: ValueError: no such step"):
        in_turn([contestant(tmp_path, OURS, fails_at=2)], 1, 1, {"steps": 2}, lambda name: None)


def test_a_fresh_process_is_timed_from_its_start(tmp_path: Path) -> None:
    found = in_turn([contestant(tmp_path, "it")], 2, 1, {"steps": 2}, lambda name: None, fresh=True)["it"]
    for burst in (found.warm_up, *found.bursts):
        assert 0 < burst["ready"] < burst["seconds"] != 1.0 and burst["tokens"] == 6
    assert len(found.bursts) == 2


def test_batches_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = torch.tensor([[5, 3, 0], [6, 7, 3]]).numpy(), torch.tensor([[2, 5, 3, 0, 0], [2, 6, 7, 8, 3]]).numpy()
    other = one[0][:, :2], one[1][:, :3]
    path = tmp_path / "batches.npz"
    assert write_batches(path, [one, other]) == 5
    assert [(src.tolist(), tgt.tolist()) for src, tgt in read_batches(str(path))] == [
        (src.tolist(), tgt.tolist()) for src, tgt in (one, other)
    ]
    assert [target_tokens(tgt) for _, tgt in islice(endless_batches(str(path)), 3)] == [6, 4, 6]


def bench(folder: Path, *overrides: str) -> Bench:
    config = benchmark_config(*overrides)
    return Bench(config, fill(Benchmark, "benchmark", config.pop("benchmark")), folder, lambda name: None)


def test_the_validation_split_is_decoded_if_there_is_no_test_split(tmp_path: Path) -> None:
    corpus = bench(tmp_path).data.corpus
    assert pairs_to_decode(corpus) is corpus.tests["test"]
    assert pairs_to_decode(replace(corpus, tests={})) is corpus.valid


@pytest.mark.parametrize(("precision", "common"), [("32", "32-true"), ("bf16", "bf16-mixed"), ("16-mixed", "")])
def test_contestants_are_left_out_of_a_precision_they_lack(tmp_path: Path, precision: str, common: str) -> None:
    one = bench(tmp_path, f"trainer.precision={precision}")
    assert one.common["precision"] == (common or precision)
    assert one.precision_reason == ("" if common else "measured in 32-true and bf16-mixed only")


def test_training_is_reported_even_if_the_ceiling_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    burst = {"seconds": 2.0, "tokens": 7, "gflop": 5.0, "peak_mb": 3}
    found = {OURS: Measured({}, bursts=[burst]), "ceiling": Measured({}, left_out="ended with code 137: killed")}
    monkeypatch.setattr(cases, "in_turn", lambda *_: dict(found))
    training, ceiling = cases.training(bench(tmp_path), {"transformer", "ceiling"})
    assert [row.contestant for row in training.rows] == [row.contestant for row in ceiling.rows] == [OURS]
    assert ceiling.left_out == {"products of the same sizes": "ended with code 137: killed"}


def test_ctranslate2_is_left_out_if_it_does_not_support_the_model(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    one = bench(tmp_path)
    run = Run(one.prepared[1].model, one.data.vocabulary, {"model": {"name": "birnn"}}, {}, 0, frozenset())
    assert {each.left_out for each in cases.ctranslate2(one, "greedy_trained", run, [[5, 2]], {})} == {
        "engine=ctranslate2: model.name=birnn: CTranslate2 does not support this model; use engine=torch"
    }


@pytest.mark.parametrize("beam", [1, 3])
def test_without_the_end_symbol_every_sentence_has_the_same_length(beam: int) -> None:
    model = transformer().eval()
    with torch.no_grad():
        model.output.weight[EOS] *= 100  # without forbid_end, both translations would end immediately
    forbid_end(model)
    src = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    found = search(model, src, Search(beam=beam, length_factor=0.0, length_offset=6), BOS, EOS)
    assert [len(n_best[0].tokens) for n_best in found] == [6, 6]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("benchmark.cases=[transfomer]", "did you mean transformer?"),
        ("benchmark.cases=[]", "give at least one"),
        ("cases=[beam]", "did you mean benchmark.cases?"),
        ("benchmark.peers.fairseq=python", "the settings here are joeynmt, eole"),
        ("benchmark.peers.eole=/nowhere/python", "no such program; give the path of that environment's Python"),
        ("benchmark.checkpoint=nowhere", "no such file, and no folder that contains checkpoints/best.ckpt"),
        ("benchmark.birnn.cell=gur", "benchmark.birnn.cell=gur: choose one of gru, lstm; did you mean gru?"),
        ("model=birnn", "give a transformer"),
        ("model.norm=none", "the other programs have no such option"),
        ("model.residual=[self,ff]", "the other programs have no such option"),
        ("benchmark.birnn.cell=lstm", "benchmark.birnn.cell=lstm: the other programs have no such option"),
        ("trainer.accumulate=2", "trainer.accumulate=2: other programs step after each batch"),
        ("benchmark.peers.joeynmt=/usr/bin", "no such program"),
        ("benchmark.pairs=0", "give a whole number of at least 1"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(tmp_path: Path, override: str, words: str) -> None:
    ended = run(f"benchmark {override}", tmp_path)
    [line] = ended.err.splitlines()
    assert ended.code == 2 and line.startswith("error: ") and words in line


def measure_training(folder: Path) -> Result:
    """Runs the cases `transformer` and `ceiling`, checks the files written, and returns the result of `transformer`."""
    own = [f"output_dir={folder / 'runs'}", f"benchmark.output={folder / 'out'}"]
    training, ceiling = benchmark(
        benchmark_config(*own, "benchmark.cases=[transformer,ceiling]", f"benchmark.peers.joeynmt={sys.executable}")
    )
    assert [row.contestant for row in training.rows[:2]] == [OURS, cases.MARIAN]
    assert training.left_out["EOLE"] == "no interpreter given; set benchmark.peers.eole=PYTHON"
    assert all(row.figure.lowest > 0 and row.note == "" and row.peak_mb for row in training.rows)
    assert [row.contestant for row in ceiling.rows] == [OURS, "products of the same sizes", "product of 8 x 8 matrices"]
    written = json.loads((folder / "out" / "benchmark.json").read_text(encoding="utf-8"))
    assert len(written["results"][0]["raw"][OURS]["bursts"]) == 2 and written["cpu"] and written["versions"]["torch"]
    assert "| transformer, target tokens/s | ours |" in (folder / "out" / "benchmark.md").read_text(encoding="utf-8")
    return training


def test_a_benchmark_measures_valid_runs_and_writes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Contestant] = []

    def in_turn(contestants: list[Contestant], pairs: int, *_: Any) -> dict[str, Measured]:
        asked.extend(contestants)
        burst = {"seconds": 2.0, "tokens": 7, "gflop": 5.0, "peak_mb": 3.0, "large": {"seconds": 1.0, "gflop": 2.0}}
        return {
            one.name: Measured({}, bursts=[burst] * pairs * (not one.left_out), left_out=one.left_out) for one in contestants
        }

    monkeypatch.setattr(cases, "in_turn", in_turn)
    assert not measure_training(tmp_path).left_out.keys() - {"EOLE"}
    names = [OURS, cases.MARIAN, "EOLE", "JoeyNMT", "JoeyNMT, its own batches", "ceiling"]
    assert [one.name for one in asked] == names and all(Path(one.command[1]).is_file() for one in asked)
    assert check_run(asked[0].settings["config"]) == []


@pytest.mark.slow
def test_ours_is_measured_against_marian(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    if importlib.util.find_spec("joeynmt"):
        pytest.skip("JoeyNMT is installed here, so it is not left out")
    training = measure_training(tmp_path)
    assert len(training.rows) == 2
    assert training.left_out["JoeyNMT"] == "ended with code 1: ModuleNotFoundError: No module named 'joeynmt'"
