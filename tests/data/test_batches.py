"""Tests that batches hold every pair exactly once, respect the token limit, and keep their order after a resume."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from entente.data.batches import Batch, EvaluationBatches, EvaluationSplit, Rows, TrainingBatches, collate
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import BOS, EOS, PAD, Vocabulary
from entente.errors import InputError
from entente.settings import BatchSettings, TokenizerSettings

Ids = list[list[int]]


def rows(lengths: list[int]) -> Ids:
    return [[7 + place % 5 for place in range(length)] for length in lengths]


def random_rows(seed: int, pairs: int) -> tuple[Ids, Ids]:
    generator = np.random.default_rng(seed)
    src = generator.integers(1, 23, pairs)
    return rows(src.tolist()), rows((src + generator.integers(1, 5, pairs)).tolist())


def same(batch: Batch, other: Batch) -> bool:
    return all(map(torch.equal, batch[:4], other[:4])) and batch[4:] == other[4:]


lengths = st.lists(st.tuples(st.integers(1, 17), st.integers(2, 19)), min_size=1, max_size=61)


def training_batches(pairs: tuple[Ids, Ids], max_tokens: int = 103, seed: int = 11, **options: Any) -> TrainingBatches:
    return TrainingBatches(Rows(pairs[0]), Rows(pairs[1]), max_tokens, seed, **options)


def rows_of_epoch(batches: TrainingBatches, n: int) -> list[list[int]]:
    """Returns the row numbers of each batch of epoch `n`."""
    return [rows.tolist() for rows in batches.epoch(n)]


# An epoch ------------------------------------------------------------------------------------------------------------


@settings(max_examples=101, deadline=None)
@given(lengths=lengths, max_tokens=st.integers(19, 97), seed=st.integers(0, 5), n=st.integers(0, 3), weighted=st.booleans())
def test_an_epoch_is_sorted_by_length_then_at_random_and_its_batches_are_shuffled(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, n: int, weighted: bool
) -> None:
    src, tgt = rows([a for a, _ in lengths]), rows([b for _, b in lengths])
    weights = np.array([1 + i % 3 for i in range(len(lengths))], np.int16) if weighted else None
    generator = np.random.default_rng([seed, n])
    copies = [i for i in range(len(lengths)) for _ in range(1 if weights is None else weights[i])]
    draws = generator.random(len(copies)).tolist()
    order = [i for _, _, i in sorted((-max(lengths[i]), draw, i) for i, draw in zip(copies, draws, strict=True))]
    expected: list[list[int]] = []
    for i in order:
        if not expected or max(lengths[expected[-1][0]]) * (len(expected[-1]) + 1) > max_tokens:
            expected.append([])
        expected[-1].append(i)
    expected = [expected[i] for i in generator.permutation(len(expected))]
    batches = rows_of_epoch(training_batches((src, tgt), max_tokens, seed, weights=weights), n)
    assert batches == expected
    for indices in batches:
        batch = collate(Rows(src), Rows(tgt), indices)
        assert max(batch.src.numel(), batch.tgt.numel()) <= max_tokens


def test_a_pair_keeps_its_weight_if_an_earlier_one_is_too_long() -> None:
    pairs = [rows([3, 29, 5, 7])] * 2
    batches = training_batches((pairs[0], pairs[1]), max_tokens=23, weights=np.array([1, 2, 3, 1], np.int16))
    assert sorted(itertools.chain.from_iterable(rows_of_epoch(batches, 0))) == [0, 2, 2, 2, 3]


def test_a_share_of_the_batches_is_never_exceeded() -> None:
    batches = EvaluationBatches(Rows(rows([5, 7, 11])), Rows(rows([5, 7, 11])), 11)
    assert [len(EvaluationSplit("valid", batches, [], [], share)) for share in (1.0, 0.67, 0.66, 0.5)] == [3, 2, 1, 1]


def test_pairs_too_long_to_train_on_are_dropped() -> None:
    src, tgt = rows([3, 30, 4, 5, 31]), rows([4, 6, 5, 29, 30])
    batches = training_batches((src, tgt), max_tokens=29)
    assert sorted(itertools.chain(*rows_of_epoch(batches, 0))) == [0, 2, 3]
    assert batches.dropped == 2
    doubled = training_batches((src + tgt, tgt + src), max_tokens=29, always=5, all_epochs=1)
    assert doubled.dropped == 2  # each pair counts once, although it is also there with its sides swapped
    with pytest.raises(InputError, match="max_tokens=3: every training pair is longer"):
        training_batches((src, tgt), max_tokens=3)
    with pytest.raises(InputError, match="max_tokens=4: every training pair is longer"):  # although its swapped copy is not
        training_batches((rows([5, 4]), rows([5, 4])), max_tokens=4, always=1, all_epochs=1)


# The stream of batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accumulate", "all_epochs"), [(1, 0), (3, 0), (1, 2)])
@pytest.mark.parametrize("stop", [0, 3, 15, 27, 30])
def test_from_a_saved_position_the_rest_is_the_same(stop: int, accumulate: int, all_epochs: int) -> None:
    options = {"accumulate": accumulate, "all_epochs": all_epochs, "always": 53 if all_epochs else None}
    pairs = random_rows(seed=7, pairs=61)
    per_epoch = [len(training_batches(pairs, **options).epoch(n)) for n in range(4)]
    assert sum(per_epoch[:2]) < 27 < sum(per_epoch) and (per_epoch[1] > per_epoch[2]) == bool(all_epochs)
    expected = list(itertools.islice(training_batches(pairs, **options), 41))
    assert [batch.position for batch in expected] == list(range(41))

    first = training_batches(pairs, **options)
    stream = iter(first)
    batches = [next(stream) for _ in range(stop + 2)][:stop]  # fetching two more batches must not move the position
    for _ in batches:
        first.consume()
    second = training_batches(pairs, **options)
    second.load_state_dict(first.state_dict())
    batches += itertools.islice(second, 41 - stop)
    assert all(map(same, batches, expected))


@pytest.mark.parametrize("accumulate", [1, 2, 5])
def test_each_batch_says_how_many_tokens_its_step_predicts(accumulate: int) -> None:
    batches = training_batches(random_rows(seed=7, pairs=61), accumulate=accumulate)
    first = list(itertools.islice(batches, 12 * accumulate))
    per_epoch = len(batches.epoch(0))
    assert per_epoch % 2 and per_epoch % 5 and 12 > per_epoch
    tokens = [int((batch.tgt[:, 1:] != PAD).sum()) for batch in first]
    steps = [sum(tokens[i : i + accumulate]) for i in range(0, len(first), accumulate)]
    assert [batch.step_tokens for batch in first] == [step for step in steps for _ in range(accumulate)]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_deal_out_the_batches_of_one_process_in_turn(processes: int) -> None:
    pairs = random_rows(seed=7, pairs=61)
    expected = list(itertools.islice(training_batches(pairs, accumulate=5 * processes), 35 * processes))
    dealt = [training_batches(pairs, accumulate=5, rank=rank, processes=processes) for rank in range(processes)]
    streams = [list(itertools.islice(batches, 35)) for batches in dealt]
    assert all(map(same, itertools.chain(*zip(*streams, strict=True)), expected))
    for _ in range(10):  # two steps
        dealt[1].consume()
    assert dealt[1].position == 10 * processes and dealt[1].position % dealt[1].batches_per_step == 0
    assert same(next(iter(dealt[1])), streams[1][10])


def test_collate_pads_on_the_right() -> None:
    batch = collate(Rows([[EOS], [1], [5, 6, EOS]]), Rows([[BOS, 9, 8, EOS], [1], [BOS, EOS]]), [2, 0])
    assert batch.src.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    assert batch.tgt.tolist() == [[BOS, EOS, PAD, PAD], [BOS, 9, 8, EOS]]
    assert batch.index.tolist() == [2, 0] and batch.real.tolist() == [0, 3, 4, 5]
    assert {part.dtype for part in batch[:4]} == {torch.int64}


# Evaluation ----------------------------------------------------------------------------------------------------------


@settings(max_examples=101, deadline=None)
@given(lengths=lengths, max_tokens=st.integers(1, 97))
def test_evaluation_reads_every_pair_once_with_its_row_longest_first(lengths: list[tuple[int, int]], max_tokens: int) -> None:
    src, tgt = rows([a for a, _ in lengths]), rows([b for _, b in lengths])
    batches = EvaluationBatches(Rows(src), Rows(tgt), max_tokens)
    order = []
    for batch in batches:
        assert len(batch.index) == 1 or max(batch.src.numel(), batch.tgt.numel()) <= max_tokens
        for ids, target, row in zip(batch.src, batch.tgt, batch.index.tolist(), strict=True):
            assert (ids[ids != PAD].tolist(), target[target != PAD].tolist()) == (src[row], tgt[row])
            order.append(row)
    assert sorted(order) == list(range(len(lengths)))
    sizes = [(max(lengths[i]), lengths[i][0]) for i in order]
    assert sizes == sorted(sizes, reverse=True)
    assert len(batches) == len(list(batches))


def test_evaluation_of_mixed_lengths_has_a_fixed_random_order_and_keeps_to_the_limit() -> None:
    src, tgt = random_rows(seed=3, pairs=211)
    first, second = ([batch.index.tolist() for batch in EvaluationBatches(Rows(src), Rows(tgt), 101, "mixed")] for _ in "12")
    assert first == second
    order = list(itertools.chain(*first))
    assert sorted(order) == list(range(211)) and order != sorted(order)
    assert max(map(len, first)) == 101 // max(map(len, tgt)) > 1
    widths = [len(tgt[i]) for i in order]
    assert widths not in (sorted(widths), sorted(widths)[::-1])
    assert [len(batch.index) for batch in EvaluationBatches(Rows(src), Rows(tgt), 101, "alone")] == [1] * 211


# A corpus in batches -------------------------------------------------------------------------------------------------


def split(name: str, pairs: int) -> Dataset:
    words = ["un", "deux", "trois", "quatre", "cinq"]
    src = [" ".join(words[: 1 + i % 5]) + f" {name} {i}" for i in range(pairs)]
    return Dataset.from_dict({"src": src, "tgt": [line[::-1] for line in src]})


SETTINGS = BatchSettings(max_tokens=307, eval_max_tokens=101)


@pytest.fixture(scope="module")
def data() -> TranslationData:
    corpus = Corpus(split("t", 211), split("v", 31), {"test": split("s", 17), "other": split("o", 7)})
    return TranslationData(corpus, Vocabulary.train(corpus.train, TokenizerSettings(vocab_size=331)), SETTINGS, seed=5)


def test_batches_hold_the_encoded_corpus(data: TranslationData) -> None:
    for name in ("valid", "other", "test@alone"):
        for batch in data.evaluation(name).batches:
            for ids, target, row in zip(batch.src, batch.tgt, batch.index.tolist(), strict=True):
                ids, target = ids[ids != PAD], target[target != PAD]
                assert (ids[-1], target[0], target[-1]) == (EOS, BOS, EOS)
                assert data.vocabulary.src.decode(ids.tolist()) == data.pairs(name)[row]["src"]
                assert data.vocabulary.tgt.decode(target.tolist()) == data.pairs(name)[row]["tgt"]
    (batch,) = data.val_dataloader()
    assert same(batch, data.sample(1))  # Lightning needs a batch to validate, and a hook evaluates the split
    with pytest.raises(InputError, match="this corpus has train, valid, test, other"):
        data.evaluation("dev")
    with pytest.raises(InputError, match="split=test@short: the part after @ must be one of alone, mixed"):
        data.evaluation("test@short")


@pytest.mark.parametrize("weights", [None, [1, 2, 3]])
def test_the_first_epochs_contain_both_directions(data: TranslationData, weights: list[int] | None) -> None:
    n = len(data.corpus.train)
    times = None if weights is None else np.resize(weights, n).astype(np.int16)
    corpus, vocabulary = replace(data.corpus, weights=times), data.vocabulary
    alone, doubled = (
        TranslationData(corpus, vocabulary, SETTINGS.model_copy(update={"both_directions": epochs}), 5) for epochs in (0, 2)
    )
    direct = sorted(np.arange(n).repeat(1 if times is None else times))
    loader, (src, tgt) = doubled.train_dataloader(), doubled.ids("train")
    for epoch, directions in enumerate((2, 2, 1, 1)):
        indices = list(itertools.chain(*loader.epoch(epoch)))
        assert sorted(indices) == [*direct, *(row + n for row in direct)][: directions * len(direct)]
        for row in indices:
            sides = ("src", "tgt") if row < n else ("tgt", "src")
            ids, pair = (src[row].tolist(), tgt[row].tolist()), data.corpus.train[int(row) % n]
            assert (vocabulary.src.decode(ids[0]), vocabulary.tgt.decode(ids[1])) == tuple(pair[side] for side in sides)
            assert (ids[0][-1], ids[1][0], ids[1][-1]) == (EOS, BOS, EOS)
    assert doubled.unigram_nll() == alone.unigram_nll()
    varied = TranslationData(replace(corpus, varied=2), vocabulary, SETTINGS.model_copy(update={"both_directions": 1}), 5)
    assert len(varied.corpus.train) == 2 * n - 2 and varied.corpus.train[-1]["tgt"] == data.corpus.train[n - 3]["src"]
    assert times is None or varied.corpus.weights.tolist() == [*times, *times[: n - 2]]  # type: ignore[union-attr]
    assert all(map(same, doubled.evaluation("valid").batches, alone.evaluation("valid").batches))
    assert all(map(np.array_equal, loader.epoch(3), alone.train_dataloader().epoch(3)))


@pytest.mark.parametrize("both_directions", [0, 2])
def test_overfitting_reads_one_batch_in_place_of_every_split(data: TranslationData, both_directions: int) -> None:
    batch = SETTINGS.model_copy(update={"both_directions": both_directions})
    complete = TranslationData(data.corpus, data.vocabulary, batch, seed=3)
    memorised = TranslationData(data.corpus, data.vocabulary, batch, seed=3, overfit=True)
    first = complete.train_dataloader().epoch(0)[0].tolist()
    assert 1 < len(first) < len(data.corpus.train)
    for name in ("train", "valid", "test", "other"):
        assert memorised.pairs(name)[:] == complete.corpus.train.select(first)[:]
    for epoch in range(3):
        assert [sorted(rows) for rows in memorised.train_dataloader().epoch(epoch)] == [[*range(len(first))]]
