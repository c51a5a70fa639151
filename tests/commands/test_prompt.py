"""Tests the prompt of `entente translate` in a pseudo-terminal, and the detection of words not seen in training."""

import os
import pty
import re
import select
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import entente
from bad_inputs import run
from entente import checkpoint
from entente.data import text as module
from entente.data.files import read_lines
from entente.data.text import count_words, distinct_words, known_words

UP, ERASE, LEAVE = "\x1b[A", "\x7f", "\x04"


def type_keys(folder: Path, *keys: str) -> str:
    """Starts the prompt in a pseudo-terminal, types an item of `keys` each time it shows "fr> ", and returns everything that
    the terminal shows."""
    terminal, its_side = pty.openpty()
    command = [sys.executable, "-P", "-m", "entente", "translate", "checkpoint=run", "accelerator=cpu"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=its_side, stdout=its_side, stderr=its_side)
    os.close(its_side)
    output, left = b"", list(keys)
    try:
        while select.select([terminal], [], [], 100)[0] and (text := os.read(terminal, 1 << 16)):
            output += text
            if left and output.endswith(b"\nfr> "):
                os.write(terminal, left.pop(0).encode())
                output += b"\n"  # so that this prompt is not answered twice
    except OSError:
        pass  # Linux reports the end of a pseudo-terminal as an error
    finally:
        os.close(terminal)
    assert process.wait(timeout=100) == 0 and not left, output
    return output.decode().replace("\r", "")


def test_a_session(folder: Path) -> None:
    output = type_keys(
        folder,
        "\r",
        "  \r",
        "Le chat voit le zorglub ☂.\r",
        f"{UP}{ERASE * 10}chien.\r",
        "Le chat" + " le chat" * 600 + "\r",
        "Le chat voit le chien. " * 200 + "\r",  # is translated sentence by sentence
        LEAVE,
    )
    banner, _, session = output.partition("fr> ")
    assert re.match(r"Transformer fr -> en, [\d,]+ parameters, trained \d+ steps, beam 5\n", banner)
    assert "To leave, press Ctrl-D." in banner and max(map(len, banner.splitlines())) <= 80
    assert session.count("en> ") == 3, "an empty line has no translation"
    assert session.count("not seen in training: zorglub\n") == session.count("not seen in training") == 1
    assert "pieces, more than the 1,024 allowed" in session
    assert output.count("fr> ") == 7 and output.endswith("\n")


def test_words_are_those_of_the_training_text(folder: Path) -> None:
    trained = checkpoint.load(str(folder / "run"))
    assert trained.languages == ("fr", "en")
    assert trained.words == set(chain.from_iterable(map(distinct_words, read_lines(folder / "train.fr"))))
    assert trained.new_words("LE CHAT, le garçon et l'Élan; l'élan") == ["et", "l", "élan"]


def test_a_translation_says_once_which_words_were_not_seen_in_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["Le zorglub voit le chat.", *(f"mot{number}" for number in range(1200)), "Le zorglub", "Le chat"]
    expected = "1201 words not seen in training: zorglub, " + ", ".join(f"mot{number}" for number in range(9)) + ", ..."
    ended = run("translate checkpoint=run search.beam=1 search.length_factor=0", folder, "\n".join(lines).encode())
    assert ended.out.count("\n") == len(lines) and [line for line in ended.err.splitlines() if "seen" in line] == [expected]
    entente.load(folder / "run", device="cpu").translate(["Le zorglub", "Le chat", "ZORGLUB"])
    assert capsys.readouterr().err.splitlines()[-1:] == ["1 word not seen in training: zorglub"]


def test_words() -> None:
    assert distinct_words("L'Afrique, aujourd'hui !") == ["l", "afrique", "aujourd", "hui"]
    assert distinct_words("今天, Anna 来了。 ... 2 × 2") == ["今", "天", "anna", "来", "了", "2"]
    counts = {"L'Afrique,  aujourd'hui !": 3, "今天, Anna来了。": 7, "ชื่อ": 2, "한국어 문장": 2, "カタカナ": 4, "": 0}
    assert {text: count_words(text) for text in counts} == counts


def test_the_words_of_a_large_text_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    assert known_words(["b a", "a c"]) == "a\nb\nc"
    assert known_words(["b a", "a c d"]) == ""
    untrained: Any = checkpoint.TrainedRun(*[None] * 5, words=frozenset())
    assert untrained.new_words("b a") == []  # rather than all words
