"""Tests the measurements of a corpus, and the detection of repeated sentences, odd text and misaligned pairs."""

import random
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from bad_inputs import run
from entente.data.corpora import Corpus
from entente.data.inspection import find, measure, misalignment
from entente.data.tokenizer import Vocabulary
from entente.settings import TokenizerSettings
from tiny import write_corpus

Texts = list[tuple[str, str]]


def corpus_of(train: Texts, valid: Texts, *tests: Texts) -> Corpus:
    parts = [Dataset.from_dict({"src": [a for a, _ in part], "tgt": [b for _, b in part]}) for part in (train, valid, *tests)]
    return Corpus(parts[0], parts[1], {f"test{i}": part for i, part in enumerate(parts[2:])})


def test_repeated_sentences_are_duplicates_within_a_split_and_leaks_between_splits() -> None:
    train = [("un", "one"), ("UN ", "one"), ("deux", "two"), ("deux", "both"), ("le deux", "two")]
    findings = find(
        corpus_of(train, [("trois", "three"), ("Un", "1"), ("trois", "3")], [("x", "BOTH"), ("trois", "y"), ("z", "z")])
    )
    assert sorted(findings["duplicates"]) == [
        ("pair already in train", "train", 1),
        ("src already in train", "train", 1),
        ("src already in train", "train", 3),
        ("src already in valid", "valid", 2),
        ("tgt already in train", "train", 1),
        ("tgt already in train", "train", 4),
    ]
    assert sorted(findings["leaks"]) == [
        ("src already in train", "valid", 1),
        ("src already in valid", "test0", 1),
        ("tgt already in train", "test0", 0),
    ]


def test_odd_text_is_found() -> None:
    plain = [("le chat noir dort ici", "the black cat sleeps here")] * 97
    strange = [
        ("le chat\u200b dort", "the cat sleeps"),
        ("le chat", "the \ufffd cat"),
        ("Ã©tÃ©", "summer itâ€™s"),
        ("Jane  Austen", "jane austen"),
        ("l&apos;ami", "the friend"),
    ]
    assert find(corpus_of(plain, [("été « café » R&D; ou", "it’s 1 º & 2;"), *strange]))["odd"] == [
        ("HTML entity", "valid", 5),
        ("invisible character", "valid", 1),
        ("wrong encoding", "valid", 2),
        ("wrong encoding", "valid", 3),
        ("equal sides", "valid", 4),
    ]


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
    score = misalignment(src, tgt, 293)  # the last 14 pairs are not in train
    assert sorted(np.argsort(-score)[:5].tolist()) == mismatched
    assert abs(np.median(score)) < 0.1 and score[mismatched].min() > 0.6 > np.sort(score)[-6]
    assert misalignment(tgt, src, 293) == pytest.approx(score, rel=0.01)  # the mismatched pairs that set the scale differ


def test_a_corpus_without_a_clear_correspondence_is_not_judged() -> None:
    src, tgt = pairs_of_words(307, seed=5)
    assert not misalignment(src[1:], tgt[:-1], 306).any()  # each line is paired with the translation of the previous one
    assert not misalignment(["un deux"] * 11, ["one two"] * 11, 7).any()
    assert find(corpus_of([("un", "one")], [("!", "?")]))["misalignment"] == []


def test_the_command_prints_advice_and_writes_lists(tmp_path: Path) -> None:
    overrides = [text for text in write_corpus(tmp_path) if text != "recipe=none"]
    lines = (tmp_path / "train.en").read_text().splitlines()
    (tmp_path / "train.en").write_text("\n".join(["", *lines[1:]]) + "\n")
    (tmp_path / "train.fr").write_text((tmp_path / "train.fr").read_text().replace("Le ", "\u202aL\u00ade ", 3))
    command = " ".join(["data", *(o.replace(str(tmp_path), ".") for o in overrides), "output=lists", "output_dir=out"])
    ended = run(command, tmp_path)
    assert ended.code == 0 and "Traceback" not in ended.err
    assert max(map(len, ended.out.splitlines())) <= 80
    advice = ended.out.partition("\nAdvice\n")[2]
    assert "1 train: empty." in advice and "Pairs with invisible characters: 2." in advice and "are in lists." in advice
    names = ["duplicates.tsv", "leaks.tsv", "misalignment.tsv", "odd.tsv"]
    assert sorted(path.name for path in (tmp_path / "lists").iterdir()) == names
    table = [line.split("\t") for line in (tmp_path / "lists" / "odd.tsv").read_text().splitlines()]
    fr = (tmp_path / "train.fr").read_text().splitlines()
    pairs = [(fr[i].replace("\u202aL\u00ad", "\\u202aL"), lines[i]) for i in (1, 2)]  # line 1 has no translation
    assert table[0] == ["what", "split", "pair", "src", "tgt"]
    assert table[1:] == [["invisible character", "train", str(i), *pair] for i, pair in enumerate(pairs, start=1)]
