"""`entente importance`, and `entente evaluate` with interventions, report what evaluations of a changed model give."""

import json
from pathlib import Path

import pytest

import entente
from bad_inputs import run
from entente.attention.interventions import intervene, mute, with_means
from entente.data.corpora import read_corpus
from entente.data.module import TranslationData
from entente.evaluation import Evaluation, evaluate
from entente.training.train import train
from tiny import QUIET, SMALL, run_settings, write_corpus

STEPS = ["trainer.max_steps=61", "trainer.validate_every=61", "optim.lr=0.02", "search.beam=2", "search.n_best=2"]


@pytest.fixture(scope="module", params=sorted(SMALL))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model = [f"model={request.param}", *SMALL[request.param]]
    train(run_settings([*model, *write_corpus(folder), f"output_dir={folder}", *STEPS, *QUIET], name="run"))
    return folder


def evaluated(folder: Path, *interventions: object) -> Evaluation:
    model = entente.load(folder / "run", device="cpu")
    data = TranslationData(read_corpus(model.settings.data), model.vocabulary, model.settings.data.batch)
    with intervene(model.model, with_means(model.model, interventions, lambda: data.evaluation("valid").batches)):
        return evaluate(model.model, model.vocabulary, data.evaluation("test"), model.settings.search)


def test_every_head_and_sublayer_is_measured(folder: Path) -> None:
    ended = run("importance checkpoint=run trust_data=true accelerator=cpu threads=1", folder)
    assert ended.code == 0, ended.err
    report = json.loads((folder / "run/importance.json").read_text())
    parts = {json.dumps(part["interventions"]): part for part in report["parts"]}
    plain = evaluated(folder)
    assert report["plain"] == {"interventions": [], "bleu": plain.scores("bleu")["bleu"], "nll": plain.nll, "changed": 0.0}
    transformer = folder.name.startswith("transformer")
    assert len(parts) == len(report["parts"]) == (3 * 2 + 5 if transformer else 1 + 3)
    for part in report["parts"][::3]:  # both heads and sublayers
        expected = evaluated(folder, *part["interventions"])
        assert (part["bleu"], part["nll"]) == (expected.scores("bleu")["bleu"], expected.nll)
        different = [a != b for a, b in zip(expected.hypotheses, plain.hypotheses, strict=True)]
        assert part["changed"] == sum(different) / len(different)
    assert max(part["changed"] for part in report["parts"]) > 0
    assert (folder / "run/importance.png").read_bytes().startswith(b"\x89PNG") and (folder / "run/importance.svg").is_file()
    lines = [line for line in ended.out.splitlines() if line.startswith("\u2502")]
    assert lines[0].split()[1] == "none" and len(lines) == 1 + len(parts)
    greedy = run("evaluate checkpoint=run trust_data=true split=test search.beam=1 accelerator=cpu threads=1", folder)
    assert greedy.code == 0, greedy.err  # although a greedy search has no second result
    files = run("importance checkpoint=run/checkpoints/best.ckpt src=test.fr tgt=test.en output=own threads=1", folder)
    assert files.code == 0, files.err
    assert json.loads((folder / "own/importance.json").read_text()) == report | {"split": "test.fr"}


def test_a_model_is_evaluated_with_interventions(folder: Path) -> None:
    kind = "cross" if folder.name.startswith("transformer") else "alignment"
    change = f"{{mute: {kind}, to: uniform}}"
    common = "evaluate checkpoint=run trust_data=true accelerator=cpu threads=1 output="
    ended = run(f'{common}flat intervene="[{change}]"', folder)
    assert ended.code == 0 and f"with mute {kind}, to uniform" in ended.out
    expected = evaluated(folder, mute(kind, to="uniform"))
    metrics = json.loads((folder / "flat/metrics.json").read_text())["test"]
    assert metrics["interventions"] == [mute(kind, to="uniform")]
    assert (metrics["bleu"], metrics["nll"]) == (expected.scores("bleu")["bleu"], expected.nll)
    last = f"{{scale: {kind}, factor: 0.5}}" if kind == "alignment" else "{mute: cross, layer: 1, head: 2, to: mean}"
    ended = run(f'{common}rows split=[valid,test] intervene="[[{change}],[{change},{last}]]"', folder)
    assert ended.code == 0, ended.err
    rows = json.loads((folder / "rows/interventions.json").read_text())
    assert [*rows] == ["valid", "test"] and [len(row["interventions"]) for row in rows["test"]] == [0, 1, 2]
    assert rows["test"][1]["nll"] == expected.nll and not (folder / "rows/metrics.json").exists()
