"""What scripts/planted_faults.py plants, and its table, on pairs of the grammar."""

import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from entente.errors import InputError
from entente_grammar.corpus import derive
from planted_faults import PLANTED, main, plant

PAIRS = [
    (f"{pair.text('fr')} {i % 3 or ''}", f"{pair.text('en')} {i % 3 or ''}") for i, pair in enumerate(islice(derive(7), 2003))
]


def test_faults_of_each_kind_are_planted_and_nothing_else_changes() -> None:
    pairs = PAIRS[:]
    planted = plant(pairs, random.Random(1))
    assert {*Counter(planted.values()).values()} == {PLANTED} and len(planted) == 9 * PLANTED
    changed = {row for row, pair in enumerate(pairs) if pair != PAIRS[row]}
    assert changed <= planted.keys() and len(changed) > len(planted) - 9  # an equal sentence may take another's place
    for row in (row for row, kind in planted.items() if kind == "swapped sides"):
        assert pairs[row] == PAIRS[row][::-1]
    assert len({pairs[row] for row, kind in planted.items() if kind == "another language"}) == PLANTED


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS), encoding="utf-8")
    main(tmp_path / "pairs.tsv", 2001)
    out = capsys.readouterr().out
    found = dict(re.findall(r"\| ([\w ]+) \| 100 \| (\d+)% \|", out))
    assert (
        len(found) == 9 and found["entity"] == found["tag"] == found["mojibake"] == "100" and int(found["swapped sides"]) > 70
    )
    assert re.search(r"\| none \| 1,101 \| \d\.\d\d% \|", out), out
    with pytest.raises(InputError, match="has 2,003 pairs"):
        main(tmp_path / "pairs.tsv", 2011)
