"""A model that `entente.load` returns gives the same translations and scores as the search and the evaluation."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import entente
from entente import checkpoint
from entente.commands.stored import load_run
from entente.config.schema import fill
from entente.data.corpora import read_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS
from entente.decoding.search import Search
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.evaluation import evaluate
from entente.training.settings import add_defaults
from entente.training.train import train
from tiny import SMALL, configuration, write_corpus

SOURCE, TARGET = "Le chat voit le chien.", "The dog sees the cat."


@pytest.fixture(scope="module", params=sorted(SMALL))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    steps = ["trainer.max_steps=7", "trainer.validate_every=7", "trainer.threads=1"]
    quiet = ["views.attention=false", "views.heads=0", "views.translations=0", "views.diagnosis=0"]
    given = [f"model={request.param}", f"output_dir={folder}", *SMALL[request.param], *write_corpus(folder), *steps, *quiet]
    return train(add_defaults(configuration("train", given)))


@pytest.fixture
def model(run: Path) -> entente.TrainedModel:
    return entente.load(run, device="cpu")


def test_its_translations_are_those_of_search(model: entente.TrainedModel) -> None:
    how = fill(Search, "search", {**model.config["search"], "beam": 3})
    expected = [
        model.vocabulary.tgt.decode(found[0].tokens) for found in translate(model.model, model.vocabulary, [SOURCE, ""], how)
    ]
    assert model.translate([SOURCE, ""], beam=3) == expected
    assert model.translate(SOURCE, beam=3) == expected[0]
    assert model.translate([]) == []


def test_a_score_is_the_log_likelihood_that_evaluation_reports(model: entente.TrainedModel) -> None:
    data = TranslationData(read_corpus(model.config["data"]), model.vocabulary, max_tokens=500, seed=1)
    split = data.evaluation("test")
    scores = [model.score(source, target) for source, target in zip(split.sources, split.references, strict=True)]
    total = sum(float(score.log_probabilities.double().sum()) for score in scores)
    pieces = sum(len(score.target) for score in scores)
    how = fill(Search, "search", model.config["search"])
    assert -total / pieces == pytest.approx(evaluate(model.model, model.vocabulary, split, how).nll, rel=1e-5)


def test_attention_is_named_and_its_rows_sum_to_one(model: entente.TrainedModel) -> None:
    seen = model.attention(SOURCE, TARGET)
    s, t = len(seen.source), len(seen.target)
    kinds = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)} if "encoder" in seen.weights else {"alignment": (t, s)}
    assert {name: tuple(weights.shape[-2:]) for name, weights in seen.weights.items()} == kinds
    assert (seen.source[-1], seen.target[-1], seen.read[0], seen.read[1:]) == ("</s>", "</s>", "<s>", seen.target[:-1])
    assert "".join(seen.target[:-1]).replace("\u2581", " ").strip() == TARGET
    for weights in seen.weights.values():
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)


def test_attention_without_a_target_is_that_of_the_greedy_translation(model: entente.TrainedModel) -> None:
    [[best]] = translate(model.model, model.vocabulary, [SOURCE], fill(Search, "search", {**model.config["search"], "beam": 1}))
    assert model.attention(SOURCE).target == model.vocabulary.tgt.pieces([*best.tokens, EOS])


def test_bad_arguments_are_refused(model: entente.TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        entente.load(tmp_path)
    with pytest.raises(InputError, match="source sentence is empty"):
        model.attention(" ")
    with pytest.raises(InputError, match="pieces"):
        model.score(SOURCE, "cat " * 9000)
    with pytest.raises(InputError, match="beam"):
        model.translate(SOURCE, beam=0)


def test_a_run_that_many_devices_trained_is_evaluated_on_one(run: Path, tmp_path: Path) -> None:
    content = checkpoint.read(run / "checkpoints" / "best.ckpt")
    content[checkpoint.ENTRY]["config"]["trainer"] |= {"accelerator": "gpu", "devices": 97, "num_nodes": 3, "strategy": "fsdp"}
    checkpoint.write(content, tmp_path / "many.ckpt")
    assert load_run(str(tmp_path / "many.ckpt"), "cpu").config["trainer"]["devices"] == 97


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, entente; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
