"""Tests that batches hold every pair exactly once, respect the token limit, and keep their order after a resume."""

import itertools
import logging
import tracemalloc
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from entente.data.batches import Batch, EvaluationBatches, Rows, TrainingBatches, collate
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import BOS, EOS, PAD, Vocabulary
from entente.errors import InputError

Ids = list[list[int]]


def rows(lengths: list[int]) -> Ids:
    return [[7 + place % 5 for place in range(length)] for length in lengths]


def random_rows(seed: int, pairs: int) -> tuple[Ids, Ids]:
    generator = np.random.default_rng(seed)
    src = generator.integers(1, 23, pairs)
    return rows(src.tolist()), rows((src + generator.integers(1, 5, pairs)).tolist())


def same(one: Batch, other: Batch) -> bool:
    return all(map(torch.equal, one[:3], other[:3])) and one.step_tokens == other.step_tokens


lengths = st.lists(st.tuples(st.integers(1, 17), st.integers(2, 19)), min_size=1, max_size=61)


def rows_of_epoch(batches: TrainingBatches, n: int) -> list[list[int]]:
    """Returns the row numbers of each batch of epoch `n`."""
    return [rows.tolist() for rows in batches.epoch(n).batches]


@settings(max_examples=101, deadline=None)
@given(lengths=lengths, max_tokens=st.integers(19, 97), seed=st.integers(0, 5), n=st.integers(0, 3))
def test_an_epoch_holds_every_pair_once_and_no_batch_is_too_wide(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, n: int
) -> None:
    src, tgt = rows([a for a, _ in lengths]), rows([b for _, b in lengths])
    batches = TrainingBatches(Rows(src), Rows(tgt), max_tokens, seed)
    epoch = batches.epoch(n).batches
    assert sorted(itertools.chain(*epoch)) == list(range(len(lengths)))
    for chosen in epoch:
        batch = collate(Rows(src), Rows(tgt), chosen.tolist())
        assert max(batch.src.numel(), batch.tgt.numel()) <= max_tokens


def test_a_batch_holds_exactly_as_many_as_fit() -> None:
    src, tgt = rows([5] * 12), rows([3] * 12)
    assert {*map(len, rows_of_epoch(TrainingBatches(Rows(src), Rows(tgt), max_tokens=20, seed=1), 0))} == {4}
    assert [len(batch.index) for batch in EvaluationBatches(Rows(src), Rows(tgt), max_tokens=20)] == [4, 4, 4]
    assert [len(batch.index) for batch in EvaluationBatches(Rows(src), Rows(tgt), max_tokens=19)] == [3, 3, 3, 3]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    src, tgt = random_rows(seed=5, pairs=307)
    orders = {
        (seed, n): rows_of_epoch(TrainingBatches(Rows(src), Rows(tgt), max_tokens=101, seed=seed), n)
        for seed in (1, 2)
        for n in (0, 1, 2)
    }
    one = TrainingBatches(Rows(src), Rows(tgt), max_tokens=101, seed=1)
    assert [rows_of_epoch(one, n) for n in (2, 0, 1)] == [orders[1, n] for n in (2, 0, 1)]  # the order of calls has no effect
    for a, b in itertools.combinations(orders.values(), 2):
        assert a != b
        assert sorted(map(sorted, a)) != sorted(map(sorted, b))  # the pairs are grouped differently
    widths = [max(len(tgt[i]) for i in batch) for batch in orders[1, 0]]
    assert widths not in (sorted(widths), sorted(widths)[::-1])  # not sorted by length


@settings(max_examples=61, deadline=None)
@given(lengths=lengths, max_tokens=st.integers(19, 97), seed=st.integers(0, 5), n=st.integers(0, 3), weighted=st.booleans())
def test_an_epoch_is_sorted_by_length_then_at_random_and_its_batches_are_shuffled(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, n: int, weighted: bool
) -> None:
    src, tgt = Rows(rows([a for a, _ in lengths])), Rows(rows([b for _, b in lengths]))
    weights = np.array([1 + i % 3 for i in range(len(lengths))], np.int16) if weighted else None
    generator = np.random.default_rng([seed, n])
    chosen = [i for i in range(len(lengths)) for _ in range(1 if weights is None else weights[i])]
    draws = generator.random(len(chosen)).tolist()
    order = [i for _, _, i in sorted((-max(lengths[i]), draw, i) for i, draw in zip(chosen, draws, strict=True))]
    expected: list[list[int]] = []
    for i in order:
        if not expected or max(lengths[expected[-1][0]]) * (len(expected[-1]) + 1) > max_tokens:
            expected.append([])
        expected[-1].append(i)
    expected = [expected[i] for i in generator.permutation(len(expected))]
    batches = TrainingBatches(src, tgt, max_tokens, seed, weights=weights)
    assert rows_of_epoch(batches, n) == expected


def test_the_order_of_an_epoch_takes_four_bytes_a_pair() -> None:
    pairs = 200_003
    src = tgt = Rows([[7] * 13] * pairs)
    tracemalloc.start()
    try:
        batches = TrainingBatches(src, tgt, max_tokens=4099, seed=1)
        kept = tracemalloc.get_traced_memory()[0]
        epoch = batches.epoch(0).batches
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(epoch) == -(-pairs // (4099 // 13))
    assert kept < 9 * pairs and used - kept < 5 * pairs and peak < 41 * pairs


def test_pairs_too_long_to_train_on_are_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    src, tgt = rows([3, 30, 4, 5, 31]), rows([4, 6, 5, 29, 30])
    with caplog.at_level(logging.INFO, logger="entente"):
        batches = TrainingBatches(Rows(src), Rows(tgt), max_tokens=29, seed=1)
    assert sorted(itertools.chain(*rows_of_epoch(batches, 0))) == [0, 2, 3]
    assert batches.dropped == 2
    both = TrainingBatches(Rows(src + tgt), Rows(tgt + src), max_tokens=29, seed=1, always=5, all_epochs=1)
    assert both.dropped == 2  # each pair counts once, although it is also there with its sides swapped
    assert {record.getMessage() for record in caplog.records} == {"2 training pairs with more than 29 tokens were dropped"}
    with pytest.raises(InputError, match="max_tokens=3: every training pair is longer"):
        TrainingBatches(Rows(src), Rows(tgt), max_tokens=3, seed=1)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [0, 3, 6, 15, 27, 30])
def test_from_a_saved_position_the_rest_is_the_same(stop: int, accumulate: int) -> None:
    src, tgt = random_rows(seed=7, pairs=61)
    whole = TrainingBatches(Rows(src), Rows(tgt), max_tokens=103, seed=11, accumulate=accumulate)
    per_epoch = len(whole.epoch(0).batches)
    assert 2 * per_epoch < 27 < 5 * per_epoch  # so the last stops are after several epochs
    expected = list(itertools.islice(whole, 41))

    first = TrainingBatches(Rows(src), Rows(tgt), max_tokens=103, seed=11, accumulate=accumulate)
    stream = iter(first)
    seen = [next(stream) for _ in range(stop + 2)][:stop]  # fetching two more batches must not move the position
    for _ in seen:
        first.consume()
    state = first.state_dict()
    second = TrainingBatches(Rows(src), Rows(tgt), max_tokens=103, seed=11, accumulate=accumulate)
    second.load_state_dict(state)
    rest = list(itertools.islice(second, 41 - stop))
    assert all(same(a, b) for a, b in zip(seen + rest, expected, strict=True))


@pytest.mark.parametrize("accumulate", [1, 2, 5])
def test_each_batch_says_how_many_tokens_its_step_predicts(accumulate: int) -> None:
    src, tgt = random_rows(seed=7, pairs=61)
    batches = TrainingBatches(Rows(src), Rows(tgt), max_tokens=103, seed=11, accumulate=accumulate)
    first = list(itertools.islice(batches, 12 * accumulate))
    per_epoch = len(batches.epoch(0).batches)
    assert per_epoch % 2 and per_epoch % 5 and 12 > per_epoch
    tokens = [int((batch.tgt[:, 1:] != PAD).sum()) for batch in first]
    steps = [sum(tokens[i : i + accumulate]) for i in range(0, len(first), accumulate)]
    assert [batch.step_tokens for batch in first] == [step for step in steps for _ in range(accumulate)]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_deal_out_the_batches_of_one_process_in_turn(processes: int) -> None:
    src, tgt = random_rows(seed=7, pairs=61)

    def batches(accumulate: int, rank: int = 0, processes: int = 1) -> TrainingBatches:
        return TrainingBatches(Rows(src), Rows(tgt), 103, 11, accumulate, rank=rank, processes=processes)

    expected = list(itertools.islice(batches(5 * processes), 35 * processes))
    dealt = [batches(5, rank, processes) for rank in range(processes)]
    seen = [list(itertools.islice(one, 35)) for one in dealt]
    assert all(same(a, b) for a, b in zip(itertools.chain(*zip(*seen, strict=True)), expected, strict=True))
    for _ in range(10):  # two steps
        dealt[1].consume()
    assert dealt[1].position == 10 * processes and dealt[1].position % dealt[1].batches_per_step == 0
    dealt[1].load_state_dict(dealt[1].state_dict())
    assert same(next(iter(dealt[1])), seen[1][10])


def test_collate_pads_on_the_right() -> None:
    batch = collate(Rows([[EOS], [1], [5, 6, EOS]]), Rows([[BOS, 9, 8, EOS], [1], [BOS, EOS]]), [2, 0])
    assert batch.src.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    assert batch.tgt.tolist() == [[BOS, EOS, PAD, PAD], [BOS, 9, 8, EOS]]
    assert batch.index.tolist() == [2, 0]
    assert {part.dtype for part in (batch.src, batch.tgt, batch.index)} == {torch.int64}


@settings(max_examples=101, deadline=None)
@given(lengths=lengths, max_tokens=st.integers(1, 97))
def test_evaluation_reads_every_pair_once_with_its_row(lengths: list[tuple[int, int]], max_tokens: int) -> None:
    src, tgt = rows([a for a, _ in lengths]), rows([b for _, b in lengths])
    batches = EvaluationBatches(Rows(src), Rows(tgt), max_tokens)
    seen = []
    for batch in batches:
        assert len(batch.index) == 1 or max(batch.src.numel(), batch.tgt.numel()) <= max_tokens
        for ids, target, row in zip(batch.src, batch.tgt, batch.index.tolist(), strict=True):
            assert (ids[ids != PAD].tolist(), target[target != PAD].tolist()) == (src[row], tgt[row])
            seen.append(row)
    assert sorted(seen) == list(range(len(lengths)))
    assert len(batches) == len(list(batches))


def test_the_last_batches_of_an_evaluation_are_small_so_that_two_workers_finish_together() -> None:
    lengths = [5 + i % 31 for i in range(1009)]
    batches = list(EvaluationBatches(Rows(rows(lengths)), Rows(rows(lengths)), 2048))
    sizes = [batch.src.numel() for batch in batches]
    left = sum(lengths) - np.cumsum([0, *(int((batch.src != PAD).sum()) for batch in batches)])[:-1]
    assert max(sizes) <= 2048 and 2 * min(sizes[:3]) > 2048  # the first batches are full
    assert all(size <= max(1024, tokens / 4) for size, tokens in zip(sizes, left, strict=True))
    assert all(size > 1024 - max(lengths) for size in sizes[:-1])  # only the last batch may be far below 1024 tokens
    workers = [0, 0]
    for size in sizes:
        workers[workers.index(min(workers))] += size  # the next batch goes to the worker that is free first
    assert max(workers) - min(workers) <= 1024


def test_evaluation_reads_pairs_sorted_by_length_longest_first() -> None:
    src, tgt = random_rows(seed=3, pairs=211)
    order = [row for batch in EvaluationBatches(Rows(src), Rows(tgt), max_tokens=101) for row in batch.index.tolist()]
    sizes = [(max(len(src[i]), len(tgt[i])), len(src[i])) for i in order]
    assert sizes == sorted(sizes, reverse=True)


def test_evaluation_of_mixed_lengths_has_a_fixed_random_order_and_keeps_to_the_limit() -> None:
    src, tgt = random_rows(seed=3, pairs=211)
    batches, again = (
        [batch.index.tolist() for batch in EvaluationBatches(Rows(src), Rows(tgt), 101, "mixed")] for _ in range(2)
    )
    assert batches == again
    order = list(itertools.chain(*batches))
    assert sorted(order) == list(range(211)) and order != sorted(order)
    assert max(len(batch) for batch in batches) == 101 // max(map(len, tgt)) > 1
    lengths = [len(tgt[i]) for i in order]
    assert lengths not in (sorted(lengths), sorted(lengths)[::-1])
    assert [len(batch.index) for batch in EvaluationBatches(Rows(src), Rows(tgt), 101, "alone")] == [1] * 211


def split(name: str, pairs: int) -> Dataset:
    words = ["un", "deux", "trois", "quatre", "cinq"]
    src = [" ".join(words[: 1 + i % 5]) + f" {name} {i}" for i in range(pairs)]
    return Dataset.from_dict({"src": src, "tgt": [line[::-1] for line in src]})


@pytest.fixture
def data(tmp_path: Path) -> TranslationData:
    corpus = Corpus(split("t", 211), split("v", 31), {"test": split("s", 17), "other": split("o", 7)})
    vocabulary = Vocabulary.train(corpus.train, 331, "bpe", True, tmp_path)
    return TranslationData(corpus, vocabulary, max_tokens=307, seed=5, eval_max_tokens=101)


def test_batches_hold_the_encoded_corpus(data: TranslationData) -> None:
    for name in ("valid", "other"):
        for batch in data.evaluation(name).batches:
            for ids, target, row in zip(batch.src, batch.tgt, batch.index.tolist(), strict=True):
                ids, target = ids[ids != PAD], target[target != PAD]
                assert (ids[-1], target[0], target[-1]) == (EOS, BOS, EOS)
                assert data.vocabulary.src.decode(ids.tolist()) == data.pairs(name)[row]["src"]
                assert data.vocabulary.tgt.decode(target.tolist()) == data.pairs(name)[row]["tgt"]
    with pytest.raises(InputError, match="this corpus has train, valid, test, other"):
        data.corpus.split("dev")


@pytest.mark.parametrize("joint", [True, False])
def test_sampled_batches_are_a_function_of_seed_and_epoch(data: TranslationData, joint: bool) -> None:
    vocabulary = Vocabulary.train(data.corpus.train, 331, "bpe", joint)

    def loader(p: float = 0.3, seed: int = 5, state: dict[str, int] | None = None) -> TrainingBatches:
        batches = TranslationData(data.corpus, vocabulary, 307, seed, 101, bpe_dropout=p).train_dataloader()
        batches.load_state_dict(state or batches.state_dict())
        return batches

    whole, states, reading = [], [], loader()
    for batch in itertools.islice(reading, 29):
        states.append(reading.state_dict())
        whole.append(batch)
        reading.consume()
    assert {state["epoch"] for state in states} >= {0, 1, 2}
    for start in (0, 1, 7, 17, 28):
        resumed = iter(loader(state=states[start]))
        next(iter(loader(0.5)))  # reading another stream must not change `resumed`
        assert all(map(same, itertools.islice(resumed, 29 - start), whole[start:]))
    assert not any(same(one, other) for one, other in zip(whole, loader(seed=6), strict=False))
    first, second = (loader().epoch(n) for n in (0, 1))
    usual = loader(0.0).epoch(0)
    assert len(first.batches) > len(usual.batches)  # since random pieces are shorter
    for one, other in ((first.src, second.src), (first.tgt, second.tgt), (first.src, usual.src), (first.tgt, usual.tgt)):
        assert len(one.values) != len(other.values)
    for epoch in (first, second):
        assert sorted(itertools.chain(*epoch.batches)) == list(range(len(data.pairs("train"))))
        for chosen in epoch.batches:
            batch = collate(epoch.src, epoch.tgt, chosen.tolist())
            assert max(batch.src.numel(), batch.tgt.numel()) <= 307
            for ids, target, row in zip(batch.src, batch.tgt, chosen, strict=True):
                assert vocabulary.src.decode(ids.tolist()) == data.pairs("train")[int(row)]["src"]
                assert vocabulary.tgt.decode(target.tolist()) == data.pairs("train")[int(row)]["tgt"]
                assert (ids[ids != PAD][-1], target[0], target[target != PAD][-1]) == (EOS, BOS, EOS)


@pytest.mark.parametrize(("weights", "p"), [(None, 0.0), ([1, 2, 3], 0.0), (None, 0.3)])
def test_the_first_epochs_contain_both_directions(data: TranslationData, weights: list[int] | None, p: float) -> None:
    n = len(data.corpus.train)
    times = None if weights is None else np.resize(weights, n).astype(np.int16)
    corpus, vocabulary = replace(data.corpus, weights=times), data.vocabulary
    one, both = (TranslationData(corpus, vocabulary, 307, 5, 101, bpe_dropout=p, both_directions=epochs) for epochs in (0, 2))
    own = sorted(np.arange(n).repeat(1 if times is None else times))
    loader = both.train_dataloader()
    for epoch, directions in enumerate((2, 2, 1, 1)):
        src, tgt, batches = loader.epoch(epoch)
        assert sorted(itertools.chain(*batches)) == [*own, *(row + n for row in own)][: directions * len(own)]
        for row in itertools.chain(*batches):
            sides = ("src", "tgt") if row < n else ("tgt", "src")
            ids, pair = (src[row].tolist(), tgt[row].tolist()), data.corpus.train[int(row) % n]
            assert (vocabulary.src.decode(ids[0]), vocabulary.tgt.decode(ids[1])) == tuple(pair[side] for side in sides)
            assert (ids[0][-1], ids[1][0], ids[1][-1]) == (EOS, BOS, EOS)
    assert both.unigram_nll() == one.unigram_nll()
    assert all(map(same, both.evaluation("valid").batches, one.evaluation("valid").batches))
    if not p:
        assert all(map(np.array_equal, loader.epoch(3).batches, one.train_dataloader().epoch(3).batches))
    memorised = TranslationData(corpus, vocabulary, 307, 5, 101, bpe_dropout=p, both_directions=2, overfit=True)
    for epoch in range(3):
        assert sorted(itertools.chain(*memorised.train_dataloader().epoch(epoch).batches)) == [
            *range(len(memorised.corpus.train))
        ]


def test_both_directions_do_not_make_up_for_pairs_that_are_all_too_long(data: TranslationData) -> None:
    one = Dataset.from_dict({"src": ["a"], "tgt": ["a a a"]})  # 3 + BOS + EOS tokens, but only 3 + EOS in the other direction
    corpus = Corpus(one, one, {})
    longest = len(data.vocabulary.tgt.encode("a a a")) + 2
    TranslationData(corpus, data.vocabulary, longest, both_directions=1).check()
    with pytest.raises(InputError, match="every training pair is longer"):
        TranslationData(corpus, data.vocabulary, longest - 1, both_directions=1).check()


def test_the_ids_of_an_epoch_are_freed_before_the_next_are_drawn() -> None:
    usual, epochs = Rows([[1, 2]] * 17), WeakSet[Rows]()

    def sample(epoch: int) -> tuple[Rows, Rows]:
        assert not epochs
        epochs.add(src := Rows([[1, 3]] * 17))
        return src, src

    batches = TrainingBatches(usual, usual, 4, seed=3, accumulate=2, sample=sample)  # 9 batches, so a step has two epochs
    assert len([*itertools.islice(batches, 40)]) == 40


def test_only_training_batches_are_sampled(data: TranslationData) -> None:
    sampled, never = (TranslationData(data.corpus, data.vocabulary, 307, 5, 101, bpe_dropout=p) for p in (0.9, 0.0))
    for name in ("valid", "test@mixed", "other"):
        assert all(map(same, sampled.evaluation(name).batches, never.evaluation(name).batches))
    assert same(sampled.sample(7), never.sample(7))
    cut, usual = (one.train_dataloader().epoch(0) for one in (sampled, never))
    assert len(cut.tgt.values) > 1.5 * len(usual.tgt.values)
