"""Tests the operation counts, ratios and left-out programs of scripts/benchmark.py, and runs a small measurement with it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils.flop_counter import FlopCounterMode

from benchmark import cases, turns
from benchmark.cases import Bench
from benchmark.contestants.ours import decode, forbid_end
from benchmark.operations import linear_layers, training_operations
from benchmark.parts import BATCH_EVENT, PARTS, Profile
from benchmark.report import benchmark, case_result, read, summary
from benchmark.turns import OURS, Contestant, Measured, in_turn
from entente.data.tokenizer import BOS, EOS, PAD
from entente.decoding.search import search
from entente.models.seq2seq import Sizes
from entente.models.transformer import Transformer
from entente.settings import RunSettings, SearchSettings, TransformerSettings
from entente.training.train import train
from entente.validation import validate

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"
TINY = """
    data.train=211 data.valid=11 data.test=13 data.tokenizer.vocab_size=400 data.batch.max_tokens=200 model.d_model=12
    model.d_ff=20 model.n_layers=1 model.n_heads=2 trainer.threads=1 trainer.accelerator=cpu benchmark.pairs=2
    benchmark.steps=1 benchmark.sentences=5 benchmark.length=3
""".split()


def transformer() -> Transformer:
    settings = TransformerSettings(d_model=12, n_heads=2, n_layers=2, d_ff=20, dropout=0.0)
    return Transformer(Sizes(31, 31, shared_vocab=True, pad_id=PAD, seed=1), settings)


def bench(folder: Path, *overrides: str) -> Bench:
    settings, config = read([*TINY, f"output_dir={folder}", *overrides])
    return Bench(config, settings, folder, lambda name: None)


def test_the_formula_of_operations_agrees_with_torch() -> None:
    b, s, t, vocabulary = 3, 7, 5, 31
    model = transformer()
    src, tgt = torch.randint(4, vocabulary, (b, s)), torch.randint(4, vocabulary, (b, t))
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model.output(model(src, tgt)).flatten(0, 1), tgt.flatten()).backward()
    sizes = {"d_model": 12, "d_ff": 20, "n_layers": 2}
    assert counter.get_total_flops() == training_operations(sizes, vocabulary, b, s, t, n=b * t)


def test_the_ceiling_has_the_linear_layers_of_the_model() -> None:
    weights = [module.weight.numel() for module in transformer().modules() if isinstance(module, torch.nn.Linear)]
    sizes = linear_layers({"d_model": 12, "d_ff": 20, "n_layers": 2}, 31, rows=17)
    assert (sum(sizes.values()), sum(k * n * count for (_, k, n), count in sizes.items())) == (len(weights), sum(weights))


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


def bursts(*seconds: float) -> Measured:
    return Measured(bursts=[{"seconds": s, "tokens": 6, "peak_mb": 10 * s} for s in seconds])


def test_a_case_has_medians_ratios_and_peaks() -> None:
    """The ratios are 2, 0.5 and 2 if our bursts take 1, 2 and 3 seconds, and another program's take 2, 1 and 6 seconds."""
    missing = Measured(left_out="not installed")
    result = case_result("transformer", {OURS: bursts(1, 2, 3), "it": bursts(2, 1, 6), "none": missing}, {"it": "slow"})
    ours, it = result["rows"]
    assert ours["figure"] == {"median": 3, "lowest": 2, "highest": 6} and ours["ratio"] is None and ours["peak_mb"] == 30
    assert it["figure"] == {"median": 3, "lowest": 1, "highest": 6}
    assert it["ratio"] == {"median": 2, "lowest": 0.5, "highest": 2}
    lines = summary([result]).splitlines()
    assert "| transformer, target tokens/s | it | 3.00 | 1.00 - 6.00 | 2.00 | 0.50 - 2.00 | 60.0 | slow |" in lines
    assert lines[-1] == "- transformer: left out none: not installed"


CONTESTANT = """
from benchmark.wire import Wire
wire = Wire()
print("is not an answer")
def burst(request):
    if request["steps"] == wire.settings["fails_at"]: raise ValueError("no such step")
    return {"seconds": 1.0, "tokens": 3 * request["steps"]}
wire.serve(burst, version="1.2")
"""


@pytest.fixture
def contestants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Contestant]:
    """Returns contestants that report constant times. One of them fails if it is asked for 2 steps, one is left out."""
    folder = tmp_path / "benchmark" / "contestants"
    folder.mkdir(parents=True)
    (folder / "constant.py").write_text(CONTESTANT, encoding="utf-8")
    (tmp_path / "benchmark" / "wire.py").write_bytes((SCRIPT.parent / "benchmark" / "wire.py").read_bytes())
    monkeypatch.setattr(turns, "SCRIPTS", tmp_path)
    ours = Contestant(OURS, sys.executable, "constant", {"threads": 1, "fails_at": -1})
    failing = replace(ours, name="failing", settings={"threads": 1, "fails_at": 2})
    excluded = replace(ours, name="excluded", left_out="no GPU")
    return {each.name: each for each in (ours, replace(ours, name="it"), failing, excluded)}


def test_contestants_take_turns(contestants: dict[str, Contestant]) -> None:
    order: list[str] = []
    results = in_turn([*contestants.values()], 2, {"steps": 2}, order.append)
    assert order == ["ours", "it", "failing", "ours", "it", "ours", "it"]
    assert results["excluded"].left_out == "no GPU"
    assert results["failing"].left_out == "ended with code 1: ValueError: no such step"
    assert results["it"].about["version"] == "1.2" and results["it"].warm_up["tokens"] == 6
    assert [burst["tokens"] for burst in results["ours"].bursts] == [6, 6] and results["ours"].bursts[0]["peak_mb"] > 1


def test_ours_is_never_left_out(contestants: dict[str, Contestant]) -> None:
    with pytest.raises(RuntimeError, match="ended with code 1: ValueError: no such step"):
        in_turn([replace(contestants["failing"], name=OURS)], 1, {"steps": 2}, lambda name: None)


def test_a_fresh_process_is_timed_from_its_start(contestants: dict[str, Contestant]) -> None:
    measured = in_turn([contestants["it"]], 2, {"steps": 2}, lambda name: None, fresh=True)["it"]
    assert len(measured.bursts) == 2
    for burst in (measured.warm_up, *measured.bursts):
        assert 0 < burst["ready"] < burst["seconds"] != 1.0 and burst["tokens"] == 6


@pytest.mark.parametrize("beam", [1, 3])
def test_without_the_end_symbol_every_sentence_has_the_same_length(beam: int) -> None:
    model = transformer().eval()
    with torch.no_grad():
        model.output.weight[EOS] *= 100  # without forbid_end, both translations would end immediately
    forbid_end(model)
    src = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    results = search(model, src, SearchSettings(beam=beam, length_factor=0.0, length_offset=6), BOS, EOS)
    assert [len(n_best[0].tokens) for n_best in results] == [6, 6]


def test_the_other_programs_get_the_settings_of_our_run(tmp_path: Path) -> None:
    session = bench(tmp_path, "model.dropout=0.25", "optim.lr=0.125")
    trainers = {each.name: each for each in session.trainers(session.config["model"])}
    marian, eole, joeynmt = (trainers[name].settings["template"] for name in (cases.MARIAN, "EOLE", "JoeyNMT"))
    assert (marian["d_model"], marian["decoder_layers"], marian["dropout"]) == (12, 1, 0.25)
    assert (eole["model"]["hidden_size"], eole["training"]["learning_rate"], eole["training"]["dropout"]) == (12, 0.125, [0.25])
    assert (joeynmt["training"]["learning_rate"], joeynmt["training"]["batch_size"]) == (0.125, 200)
    assert Path(f"{joeynmt['data']['train']}.src").read_text(encoding="utf-8").count("\n") == 211
    assert (
        len(trainers["JoeyNMT"].settings["batches"]) == 6 and trainers["JoeyNMT, its own batches"].settings["batches"] is None
    )
    assert trainers["EOLE"].left_out == "no Python interpreter at None; set benchmark.peers.eole=PYTHON"
    assert [each.name for each in session.trainers(session.settings.birnn)] == [OURS, "JoeyNMT", "JoeyNMT, its own batches"]


@pytest.mark.slow
def test_trained_models_are_decoded_as_the_commands_do_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    steps = ["name=run", "trainer.max_steps=2", "trainer.validate_every=2", "views.attention=false", "optim.warmup=1"]
    session = bench(tmp_path, *steps, f"benchmark.checkpoint={tmp_path / 'run'}")
    train(validate(RunSettings, session.config))
    outputs: dict[str, Any] = {}

    def decode_once(contestants: list[Contestant], *_: Any) -> dict[str, Measured]:
        bursts = {each.name: decode(each.settings)[0] for each in contestants if each.file == "ours"}
        outputs.update({name: burst({"outputs": True})["outputs"] for name, burst in bursts.items()})
        return {name: Measured(warm_up={"outputs": lines}) for name, lines in outputs.items()}

    monkeypatch.setattr(cases, "in_turn", decode_once)
    notes = session.measure("greedy_trained")[1]
    assert [*notes] == [*outputs] == [OURS] and len(outputs[OURS]) == 5
    assert all(note.startswith("BLEU ") for note in notes.values())


@pytest.mark.slow
def test_ours_is_measured_against_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    overrides = ["benchmark.cases=[transformer]", "benchmark.output=out", f"benchmark.peers.eole={sys.executable}"]
    monkeypatch.chdir(tmp_path)
    benchmark(*read([*TINY, *overrides]))
    written = json.loads((tmp_path / "out" / "benchmark.json").read_text(encoding="utf-8"))
    [training] = written["results"]
    assert [row["contestant"] for row in training["rows"]] == [OURS, cases.MARIAN]
    assert training["left_out"]["EOLE"] == "ended with code 1: ModuleNotFoundError: No module named 'eole'"
    assert len(training["raw"][OURS]["bursts"]) == 2 and written["cpu"] and written["commit"]
    assert "| transformer, target tokens/s | ours |" in (tmp_path / "out" / "benchmark.md").read_text(encoding="utf-8")
