"""Tests that a corpus is split without leaks, so that each sentence is in one part only."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from entente.data.pairs import Pair, hold_out, match_key

word = st.sampled_from("ABabé")
sentence = st.lists(word, min_size=1, max_size=2).map(" ".join)
some_pairs = st.lists(st.tuples(sentence, sentence), max_size=31)
sizes = st.fixed_dictionaries({"valid": st.integers(0, 7), "test": st.integers(0, 5)})


def held_out(pairs: list[Pair], sizes: dict[str, int], seed: int) -> dict[str, list[Pair]]:
    rows = hold_out(pairs, sizes, seed)
    return {part: [pair for pair, selected in zip(pairs, rows[part], strict=True) if selected] for part in rows}


@settings(max_examples=151, deadline=None)
@given(pairs=some_pairs, sizes=sizes, seed=st.integers(0, 3))
def test_no_sentence_of_either_side_is_in_two_parts(pairs: list[Pair], sizes: dict[str, int], seed: int) -> None:
    parts = held_out(pairs, sizes, seed)
    assert parts.keys() == {"train", "valid", "test"}
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    sentences = {name: {text.lower() for pair in part for text in pair} for name, part in parts.items()}
    assert sum(map(len, sentences.values())) == len(set().union(*sentences.values()))
    assert all(len(parts[name]) <= size for name, size in sizes.items())


@settings(max_examples=61, deadline=None)
@given(pairs=some_pairs, sizes=sizes, shuffle=st.randoms(use_true_random=False))
def test_a_split_depends_on_the_pairs_and_not_on_their_order(
    pairs: list[Pair], sizes: dict[str, int], shuffle: random.Random
) -> None:
    parts = held_out(pairs, sizes, seed=5)
    shuffled = list(pairs)
    shuffle.shuffle(shuffled)
    second = held_out(shuffled, sizes, seed=5)
    assert {name: sorted(part) for name, part in second.items()} == {name: sorted(part) for name, part in parts.items()}
    for part in second.values():  # within a part, pairs keep the order of the corpus
        rest = iter(shuffled)
        assert all(pair in rest for pair in part)


def numbers(n: int) -> list[Pair]:
    return [(f"numéro {i}", f"number {i}") for i in range(n)]


def test_pairs_that_share_nothing_fill_the_parts() -> None:
    parts = {seed: held_out(numbers(211), {"valid": 31, "test": 17}, seed) for seed in (1, 2, 3)}
    assert all([len(part) for part in parts[seed].values()] == [163, 31, 17] for seed in parts)
    assert parts[1] != parts[2] != parts[3] != parts[1]
    # The split is the same in every process and on every machine, whatever PYTHONHASHSEED is.
    assert held_out(numbers(7), {"valid": 2}, seed=1)["valid"] == [("numéro 4", "number 4"), ("numéro 6", "number 6")]


def test_a_group_too_big_goes_to_train() -> None:
    chain = [(f"a{i // 2}", f"b{(i + 1) // 2}") for i in range(23)]  # each pair shares a sentence with the next
    parts = held_out(chain + numbers(5), {"valid": 5, "test": 3}, seed=1)
    assert parts["train"] == chain
    assert (len(parts["valid"]), parts["test"]) == (5, [])


def test_sentences_that_differ_in_case_and_white_space_are_one() -> None:
    assert match_key("Die  Straße") == match_key("DIE STRASSE ")
    pairs = [("Va  !", "Go."), ("va !", "Move."), ("Bouge !", "MOVE."), ("Straße", "x"), ("STRASSE", "y")]
    for seed in range(13):
        parts = held_out(pairs, {"valid": 3, "test": 2}, seed)
        assert parts == {"train": [], "valid": pairs[:3], "test": pairs[3:]} or parts["valid"] == pairs[3:]
