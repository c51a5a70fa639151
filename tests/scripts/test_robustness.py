"""The changes of scripts/robustness.py, and its table."""

import random
import re
from pathlib import Path

import pytest

from robustness import CHANGES, measure

PAIR = ("Le 3 mai, 25 chats dorment là-bas !", "On 3 May, 25 cats sleep there at 3!")


def test_each_change_is_what_its_name_says() -> None:
    changed = {name: change(PAIR, random.Random(1)) for name, change in CHANGES.items()}
    assert changed["CAPITALS"] == (PAIR[0].upper(), PAIR[1].upper())
    assert changed["lower case"] == (PAIR[0].lower(), PAIR[1]) and changed["no full stop"][0].endswith("là-bas")
    assert changed["punctuation as people type it"][0] == PAIR[0].replace(" !", "!")
    typo = changed["letters swapped"][0]
    assert sorted(typo) == sorted(PAIR[0]) and sum(a != b for a, b in zip(typo, PAIR[0], strict=True)) == 2
    assert CHANGES["letters swapped"](("En 1998", "In 1998"), random.Random(1)) == ("En 1998", "In 1998")
    src, tgt = (text.split() for text in changed["other numbers"])
    assert src[1] == tgt[1] == tgt[-1][:-1] and src[3] == tgt[3] and len(src[3]) == 2 and [src[1], src[3]] != ["3", "25"]


def test_each_number_is_replaced_once_by_another() -> None:
    for seed in range(101):
        pair = CHANGES["other numbers"](("3 chats, 5 chiens et 10 lits", "5 dogs, 3 cats and ten beds"), random.Random(seed))
        first, second, third = re.findall(r"\d+", pair[0])
        assert re.findall(r"\d+", pair[1]) == [second, first] and first != "3" and second != "5" and third == "10"


def test_the_table_has_a_row_for_each_change(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.tsv").write_text("\t".join(PAIR) + "\nLe chat dort.\tThe cat sleeps.\nNon !\tNo!\nOui\tYes\n")
    measure(str(base / "run"), [str(tmp_path / "few.tsv")])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| few")]
    assert [row[1] for row in rows[:-2]] == [*CHANGES] and [int(row[2]) for row in rows] == [4, 4, 2, 4, 3, 2, 1, 1, 1]
    assert rows[-1][4] == rows[-1][3] and "3 sentences" in rows[-1][1], "three sentences are translated as if each were alone"
