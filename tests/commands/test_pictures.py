"""Tests that `entente attention` prints the source and the target, and writes each sentence pair's pictures to a new folder."""

from pathlib import Path

import pytest

from bad_inputs import run
from entente import checkpoint, escape
from entente.attention import record
from entente.attention.record import read_sentence
from entente.commands import attention
from entente.decoding.search import Hypothesis


def test_each_sentence_has_its_own_pictures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "FOLDER_FORMATS", (".png",))
    printed: list[str] = []
    for sentence in ("Le chat voit l'oiseau.", "le chat voit l oiseau"):
        ended = run(f'attention checkpoint=run kind=cross output=maps sentence="{sentence}" target="The cat."', folder)
        assert ended.code == 0, ended.err
        source, target, *files = ended.out.splitlines()
        assert source == sentence and target == "given, not translated: The cat."
        assert all(file.startswith("maps/le-chat-voit-l-oiseau-") for file in files)
        printed += files
    assert len({*printed}) == len(printed) == len([path for path in (folder / "maps").rglob("*") if path.is_file()])


def test_the_sentence_and_its_translation_are_printed_and_drawn(folder: Path) -> None:
    sentence = "Le chat\u2028voit\x1b."
    ended = run(f"attention checkpoint=run layer=1 output=map.png sentence='{sentence}'", folder)
    trained = checkpoint.load(str(folder / "run"))
    _, target = read_sentence(trained, sentence, None)
    lines = sentence, f"transformer: {trained.vocabulary.text(target)}"
    assert ended.out.rstrip("\n").split("\n") == [*map(escape.line, lines), "map.png"]
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")


def test_leaving_words_out_needs_a_translation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "translate", lambda *_: [[Hypothesis([], 0.0, True)]])
    ended = run("attention checkpoint=run occlusion=true output=map.png sentence='Le chat.'", folder)
    assert (ended.code, ended.err) == (2, "error: occlusion=true: the translation is empty; give target=SENTENCE\n")


def test_a_folder_is_named_by_its_sentence_and_stays_under_output(folder: Path) -> None:
    for sentence in ("../x", "Élève, œuf ?", "x " * 30):
        ended = run(f"attention checkpoint=run target=a output=named sentence='{sentence}' kind=cross", folder)
        assert ended.code == 0
    names = sorted(path.name[:-7] for path in (folder / "named").iterdir())
    assert names == ["x", ("x-" * 20).strip("-"), "élève-œuf"]
