"""The script that compares the suites of two corpora, with made-up runs."""

from pathlib import Path

import pytest
from test_comparison import write_suite

import transfer
from entente.errors import InputError

BASE = (0.10, 0.11, 0.12)


def suite(folder: Path, damage: dict[str, tuple[float, ...]]) -> Path:
    shares = {"baseline": BASE, **damage}
    runs = {f"{variant}-seed{i}": {"damage": share} for variant, each in shares.items() for i, share in enumerate(each, 1)}
    return write_suite(folder, {**runs, "one_head-seed9": None}).directory  # not finished, so it has no row


def test_the_table_says_where_two_corpora_and_the_literature_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "SAMPLES", 200)
    grammar = suite(
        tmp_path / "grammar",
        {"no_positions": (0.6, 0.62), "post_norm": (0.11, 0.12), "bilinear_score": (0.1, 0.11), "untied": (0.02, 0.03)},
    )
    captions = suite(
        tmp_path / "captions",
        {"no_positions": (0.5, 0.54), "post_norm": (0.6, 0.62), "bilinear_score": (0.1, 0.12), "untied": (0.5, 0.54)},
    )
    transfer.main(tmp_path / "out", [grammar, captions])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    rows = {name: (verdicts, rest) for name, _, first, _, second, *rest in lines for verdicts in [(first, second)]}
    assert {*rows} == {"`no_positions`", "`post_norm`", "`bilinear_score`", "`untied`"} and next(iter(rows)) == "`no_positions`"
    assert rows["`no_positions`"] == (("worse", "worse"), ["yes", rows["`no_positions`"][1][1], "grammar and Multi30k"])
    assert rows["`post_norm`"][0][1] == "worse" and rows["`post_norm`"][1][::2] == ["–", "not Multi30k"]
    assert rows["`untied`"][0] == ("better", "worse") and rows["`untied`"][1][::2] == ["no", "neither"]
    assert rows["`bilinear_score`"] == (("no difference found",) * 2, ["–", "–", "–"])
    assert (tmp_path / "out" / "transfer.png").stat().st_size > 10_000
    other = suite(tmp_path / "other", {"no_norm": (0.1,)})
    with pytest.raises(InputError, match="no finished variant in common"):
        transfer.main(tmp_path / "out", [grammar, other])
