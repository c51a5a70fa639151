"""Tests the measurements of a corpus, the pairs that splits share, and the score of misaligned pairs."""

import random
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from entente.commands.data import leaks, measure
from entente.data.corpora import Corpus
from entente.data.faults import misalignment
from entente.data.tokenizer import Vocabulary
from entente.settings import TokenizerSettings

Texts = list[tuple[str, str]]


def corpus_of(train: Texts, valid: Texts, *tests: Texts) -> Corpus:
    parts = [Dataset.from_dict({"src": [a for a, _ in part], "tgt": [b for _, b in part]}) for part in (train, valid, *tests)]
    return Corpus(parts[0], parts[1], {f"test{i}": part for i, part in enumerate(parts[2:])})


def test_leaks_are_pairs_with_a_side_of_an_earlier_split() -> None:
    train = [("un", "one"), ("UN ", "one"), ("deux", "two")]
    assert (
        leaks(corpus_of(train, [("trois", "three"), ("Un", "1"), ("trois", "3")], [("x", "TWO"), ("trois", "y"), ("z", "z")]))
        == 3
    )
    assert leaks(corpus_of(train, [("one", "un")])) == 0
    tagged = replace(corpus_of([("<bt> Un", "one")], [("un", "1")]), tags=("<bt>",))
    assert leaks(tagged) == 1, "the tag of a text is not part of its sentences"


def test_lengths_are_measured() -> None:
    corpus = corpus_of([("un deux trois", "one two"), ("quatre", "four")], [("un mot", "one two four five seven")])
    vocabulary = Vocabulary.train(corpus.train, TokenizerSettings(vocab_size=400))
    train, valid = (measure(corpus, vocabulary)[split] for split in ("train", "valid"))
    counts = ("pairs", "src words", "src length in words, median", "src length in words, longest")
    assert [train[name] for name in counts] == [2, 4, 2, 3] and [valid[name] for name in counts] == [1, 2, 2, 2]
    assert valid["src pieces per word"] == len(vocabulary.src.encode("un mot")) / 2


def pairs_of_words(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Returns sentences and their translations. The words 1 and 2 are in every sentence and stay the same; any other word i is
    translated as word i + 101."""
    generator = random.Random(seed)
    sources = [generator.choices(range(3, 80), k=generator.randint(5, 11)) for _ in range(n)]
    src = [" ".join(map(str, [1, 2, *numbers])) for numbers in sources]
    return src, [" ".join(map(str, [1, *(word + 101 for word in numbers), 2])) for numbers in sources]


def test_shifted_pairs_score_worst_whichever_side_is_the_source() -> None:
    src, tgt = pairs_of_words(307, seed=5)
    mismatched = [7, 101, 202, 211, 305]
    shifted = {row: tgt[other] for row, other in zip(mismatched, [*mismatched[1:], mismatched[0]], strict=True)}
    tgt = [shifted.get(row, words) for row, words in enumerate(tgt)]
    score = misalignment(src, tgt)
    assert sorted(np.argsort(-score)[:5].tolist()) == mismatched
    assert abs(np.median(score)) < 0.1 and score[mismatched].min() > 0.6 > np.sort(score)[-6]
    assert misalignment(tgt, src) == pytest.approx(score, rel=0.01)  # the mismatched pairs that set the scale differ


def test_a_corpus_without_a_clear_correspondence_is_not_judged() -> None:
    src, tgt = pairs_of_words(307, seed=5)
    assert not misalignment(src[1:], tgt[:-1]).any()  # each line is paired with the translation of the previous one
    assert not misalignment(["un deux"] * 11, ["one two"] * 11).any()
    assert not misalignment(["un", "!"], ["one", "?"]).any()
