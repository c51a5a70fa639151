"""A run starts from another model (`init`): with its weights and tokenizer, and without it once it has a checkpoint."""

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bad_inputs import run as command
from entente import checkpoint
from entente.checkpoint import load, read
from entente.commands.train import with_ancestor
from entente.errors import InputError
from entente.training.train import train
from interruptions import differences
from test_signals import run_with_signal
from tiny import SIDES, SMALL, run_settings, write_corpus


@pytest.fixture(scope="module")
def ancestor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained BiRNN, whose settings are not those of the recipe."""
    folder = tmp_path_factory.mktemp("ancestor")
    words = [*write_corpus(folder), "model=birnn", *SMALL["birnn"], "trainer.max_steps=20", "views.attention=false"]
    return train(run_settings([*words, f"output_dir={folder}"], name="ancestor"))


@pytest.fixture
def words(ancestor: Path, tmp_path: Path) -> list[str]:
    """The command of a run on other text, with a character that the tokenizer of its ancestor lacks."""
    shutil.copytree(ancestor.parent, tmp_path / "text", ignore=lambda *_: ["ancestor", "cache"])
    for side in ("fr", "en"):
        path = tmp_path / "text" / f"train.{side}"
        path.write_text(path.read_text().replace("Le ", "\u4e16 ").replace("The ", "\u4e16 "))
    sides = [f"data.{split}.{side}={split}.{name}" for split in ("train", "valid", "test") for side, name in SIDES]
    text = ["data=files", "data.root=text", *sides, "data.batch.max_tokens=500"]
    run = ["model=birnn", f"init={ancestor}", "name=new", "output_dir=.", "trainer.max_steps=4", "views.attention=false"]
    return ["train", *text, *run]


def test_a_run_starts_with_weights_settings_and_tokenizer_of_its_ancestor(
    words: list[str], ancestor: Path, tmp_path: Path
) -> None:
    ended = command(
        " ".join([*words, "optim.lr=1e-30", "optim.optimizer=adam", "checkpoint.average=1", "model.dropout=0.45"]), tmp_path
    )
    assert ended.code == 0, ended.err
    new, old = load(str(tmp_path / "new")), load(str(ancestor))
    assert all(torch.equal(a, b) for a, b in zip(new.model.state_dict().values(), old.model.state_dict().values(), strict=True))
    assert new.vocabulary.src.model == old.vocabulary.src.model
    report = json.loads((tmp_path / "new" / "training.json").read_text())
    assert report["seconds"] < 100  # not the time since the machine started
    assert new.settings.model == old.settings.model.model_copy(update={"dropout": 0.45})
    assert new.settings.data.tokenizer == old.settings.data.tokenizer
    assert new.provenance["init"].startswith(f"{ancestor}: BiRNN fr -> en, ")
    first = (tmp_path / "new" / "metrics.csv").read_text().splitlines()
    assert dict(zip(*(line.split(",") for line in first[:2]), strict=True))["step"] == "0" and "valid/bleu" in first[0]


def test_what_its_settings_exclude_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = run_settings([text for text in words[1:] if not text.startswith("init=")], init="other")
    separate = settings.data.tokenizer.model_copy(update={"joint": False})
    ancestor = settings.model_copy(update={"data": settings.data.model_copy(update={"tokenizer": separate})})
    monkeypatch.setattr(checkpoint, "load", lambda _: SimpleNamespace(settings=ancestor))
    swapped = settings.data.batch.model_copy(update={"both_directions": 1})
    changed = settings.model_copy(update={"data": settings.data.model_copy(update={"batch": swapped})})
    with pytest.raises(InputError, match=r"^init=other: data\.batch\.both_directions=1 needs data\.tokenizer\.joint=true"):
        with_ancestor(changed, "birnn", ())


def test_a_run_resumes_without_its_ancestor(words: list[str], ancestor: Path, tmp_path: Path) -> None:
    shutil.copytree(ancestor, tmp_path / "elsewhere")
    line = " ".join([*words, "init=elsewhere", "checkpoint.every=1", "trainer.validate_every=2"])
    assert command(line, tmp_path).code == 0
    (tmp_path / "new").rename(tmp_path / "uninterrupted")
    ended, _ = run_with_signal(line, tmp_path, "entente.training.translator.batch_loss", 3, signal.SIGTERM)
    assert ended.code == 75 and "after step 3, which is saved" in ended.err
    shutil.rmtree(tmp_path / "elsewhere")
    assert command("train resume=new", tmp_path).code == 0
    assert differences(tmp_path / "uninterrupted", tmp_path / "new") == []
    assert read(tmp_path / "new/checkpoints/best.ckpt")["entente"]["provenance"]["init"].startswith("elsewhere: ")
