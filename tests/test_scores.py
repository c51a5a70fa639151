"""The scores of a corpus equal sacreBLEU's, and each bucket of source lengths gets the BLEU of its own sentences."""

import subprocess
import sys
from pathlib import Path

import pytest

from entente.evaluation import bleu_by_length, corpus_scores

SOURCES = ["a b", "a b c d e", "a b c d e f", " ".join("abcdefghijk"), "x " * 60]
REFERENCES = [
    "the cat sat on the mat today",
    "a dog barked at the old man",
    "birds sing",
    "it is late now here",
    "so it goes on",
]
HYPOTHESES = ["the cat sat on a mat today", "a dog barked at the young man", "birds sing", "it is early now", "so on"]


def test_corpus_scores_equal_those_of_the_sacrebleu_command(tmp_path: Path) -> None:
    hypotheses, references = tmp_path / "hyp", tmp_path / "ref"
    hypotheses.write_text("\n".join(HYPOTHESES) + "\n")
    references.write_text("\n".join(REFERENCES) + "\n")
    ours = corpus_scores(HYPOTHESES, REFERENCES, ["bleu", "chrf", "ter"])
    for name in ("bleu", "chrf", "ter"):
        command = [sys.executable, "-m", "sacrebleu", str(references), "-i", str(hypotheses), "-m", name, "-b", "-w", "6"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert ours[name] == pytest.approx(float(printed), abs=1e-6)
        assert "version:" in ours["signature"][name]


def test_each_length_falls_into_its_bucket_and_each_bucket_has_the_bleu_of_its_sentences() -> None:
    sources = [" ".join("x" * n) for n in range(60)]  # the first source has no words
    references = [f"the {n} cats sat on the mat of {n % 7} dogs" for n in range(60)]
    hypotheses = [" ".join(line.split()[: 5 + n % 4]) for n, line in enumerate(references)]
    rows = bleu_by_length(sources, hypotheses, references)
    assert [row["words"] for row in rows] == ["1-5", "6-10", "11-15", "16-20", "21-30", "31-50", "51+"]
    bounds = [0, 6, 11, 16, 21, 31, 51, 60]
    for row, low, high in zip(rows, bounds, bounds[1:], strict=False):
        assert row["sentences"] == high - low
        assert row["bleu"] == corpus_scores(hypotheses[low:high], references[low:high], ["bleu"])["bleu"]
