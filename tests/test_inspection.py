"""A corpus is measured before training: repeated and shared sentences, odd text, coverage, and misaligned pairs."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from bad_inputs import run
from entente.data.batches import Rows
from entente.data.corpora import Corpus
from entente.data.inspection import Inspection, inspect, odd_text
from entente.data.misalignment import misalignment
from entente.data.tokenizer import Vocabulary
from tiny import VERBS, WORDS, write_corpus

Texts = list[tuple[str, str]]


def inspected(train: Texts, valid: Texts, *tests: Texts) -> Inspection:
    parts = [Dataset.from_dict({"src": [a for a, _ in part], "tgt": [b for _, b in part]}) for part in (train, valid, *tests)]
    corpus = Corpus("own", parts[0], parts[1], {f"test{i}": part for i, part in enumerate(parts[2:])})
    return inspect(corpus, Vocabulary.train(corpus.train, 400))


def rows(found: Inspection, name: str) -> dict[str, list[int]]:
    return {kind: of.tolist() for kind, of in found.findings[name].items() if len(of)}


def test_repeated_sentences_are_found_within_a_split() -> None:
    train = [
        ("un", "one"),
        ("UN ", "one"),
        ("deux", "two"),
        ("deux", "both"),
        ("le deux", "two"),
        ("un", "one"),
        ("cinq", "five"),
    ]
    found = inspected(train, [("deux", "two"), ("trois", "three"), ("un", "1")])
    assert rows(found, "Duplicates") == {
        "the same pair again": [1, 5],
        "one src, several tgt": [2, 3],
        "one tgt, several src": [2, 4],
    }


def test_shared_sentences_are_found_in_the_later_split() -> None:
    found = inspected(
        [("un", "one"), ("deux", "two")], [("Un", "1"), ("trois", "three")], [("x", "TWO"), ("trois", "y"), ("z", "z")]
    )
    assert rows(found, "Leaks between splits") == {"src also in train": [2], "tgt also in train": [4], "src also in valid": [5]}


def test_odd_text_is_found() -> None:
    plain = [("le chat noir dort ici", "the black cat sleeps here")] * 97
    odd = [
        ("le chat\u200b dort", "the cat sleeps"),
        ("le chat", "the \ufffd cat"),
        ("le сhat", "the cat"),  # Cyrillic с
        ("Ã©tÃ©", "summer itâ€™s"),
        ("Jane  Austen", "jane austen"),
        ("the black cat sleeps here", "le chat noir dort ici"),
    ]
    found = inspected(plain + odd, [("été « café »", "it’s 1 º")])
    assert rows(found, "Odd text") == {
        "equal sides": [101],
        "control or invisible character in src": [97],
        "replacement character U+FFFD in tgt": [98],
        "letter of another script in src": [99],
        "wrongly decoded text (Ã©) in src": [100],
        "wrongly decoded text (Ã©) in tgt": [100],
        "words of the other language in src": [102],
        "words of the other language in tgt": [102],
    }


def test_a_letter_is_rare_below_one_in_100000() -> None:
    for n, rare in ((50_000, False), (100_003, True)):
        patterns = odd_text(Counter({"e": n, "E": n, "Ñ": 1, "ñ": 1, "7": 1, "!": 1}))
        assert ("rare letter" in patterns) == rare
        assert not rare or patterns["rare letter"].findall("EeñÑ7!") == ["ñ", "Ñ"]


@pytest.mark.parametrize("character", ["é", "à", "ç", "œ", "Ñ", "’", "…", "€", "я", "“"])
def test_text_decoded_as_windows_1252_is_found(character: str) -> None:
    pattern = odd_text(Counter())["wrongly decoded text (Ã©)"]
    damaged = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in character.encode())
    assert pattern.search(f"un {damaged} mot") or character == "œ"  # Å followed by a sign may be correct
    assert not pattern.search(f"un {character} mot")


def test_lengths_and_coverage() -> None:
    found = inspected([("un deux trois", "one two"), ("quatre", "four")], [("un mot", "one two four five seven")])
    src, tgt = found.sides["valid", "src"], found.sides["valid", "tgt"]
    assert (src["pairs"], src["words"], src["characters"], src["longest"]) == (1, 2, 6, 2)
    assert (src["unseen"], tgt["unseen"]) == pytest.approx((50, 40))
    assert (src["ratio 50%"], tgt["ratio 50%"]) == pytest.approx((2 / 5, 5 / 2))
    assert found.sides["train", "src"]["unseen"] == 0 and found.words.tolist() == [[3, 1, 2], [2, 1, 5]]
    assert src["pieces"] >= 1 and 0 < tgt["bytes"] < 100  # "v" does not occur in train


def pairs_of_words(n: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Returns pairs in which word i is translated by word i + 101, after an unrelated frequent word."""
    generator = random.Random(seed)
    sources = [generator.choices(range(3, 80), k=generator.randint(5, 11)) for _ in range(n)]
    return [[1, 2, *one] for one in sources], [[1, *(word + 101 for word in one), 2] for one in sources]


def test_shifted_pairs_score_worst_whichever_side_is_the_source() -> None:
    src, tgt = pairs_of_words(307, seed=5)
    wrong = [7, 101, 202, 211, 305]
    shifted = {row: tgt[other] for row, other in zip(wrong, [*wrong[1:], wrong[0]], strict=True)}
    tgt = [shifted.get(row, words) for row, words in enumerate(tgt)]
    score = misalignment(Rows(src), Rows(tgt), 293)  # the last are of other splits
    assert sorted(np.argsort(-score)[:5].tolist()) == wrong
    assert abs(np.median(score)) < 0.1 and score[wrong].min() > 0.6 > np.sort(score)[-6]
    assert misalignment(Rows(tgt), Rows(src), 293) == pytest.approx(score, abs=2e-3)  # float32


def test_a_tiny_corpus_is_not_judged() -> None:
    assert misalignment(Rows([[1, 2]] * 11), Rows([[1, 3]] * 11), 7).tolist() == [0] * 11


def test_the_command_prints_advice_and_writes_lists(tmp_path: Path) -> None:
    overrides = write_corpus(tmp_path)
    lines = (tmp_path / "train.en").read_text().splitlines()
    wrong = "The friend likes the horse."
    (tmp_path / "train.en").write_text("\n".join(["", *lines[1:-1], wrong]) + "\n")
    (tmp_path / "train.fr").write_text((tmp_path / "train.fr").read_text().replace("Le ", "\u200bLe ", 3))
    command = " ".join(["data", *(o.replace(str(tmp_path), ".") for o in overrides), "output=lists", "output_dir=out"])
    ended = run(command, tmp_path)
    assert ended.code == 0 and "Traceback" not in ended.err
    assert max(map(len, ended.out.splitlines())) <= 80
    advice = ended.out.partition("\nAdvice\n")[2]
    assert "train: empty): 1." in advice and "lists/odd.tsv" in advice and "lists/leaks.tsv" in advice
    assert sorted(path.name for path in (tmp_path / "lists").iterdir()) == [
        "duplicates.tsv",
        "leaks.tsv",
        "misalignment.tsv",
        "odd.tsv",
    ]
    table = [line.split("\t") for line in (tmp_path / "lists" / "odd.tsv").read_text().splitlines()]
    fr = (tmp_path / "train.fr").read_text().splitlines()
    assert table[0] == ["what", "split", "line", "src", "tgt"]
    kind = "control or invisible character in src"
    assert table[1:] == [[kind, "train", str(i + 1), fr[i].replace("\u200b", "\\u200b"), lines[i]] for i in (1, 2)]
    assert {*WORDS.values(), *VERBS.values()} >= set(table[1][4].lower().strip(".").split()) - {"the"}
