"""Search gives the same results as naive searches, which recompute everything and use neither state nor batches."""

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from conftest import BOS, EOS, PAD, small, sources
from entente.data import tokenizer
from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.decoding.search import Hypothesis, log_probabilities, search
from entente.decoding.translate import translate
from entente.models.seq2seq import Seq2Seq, State, pad
from entente.settings import SearchSettings

PENALTIES = [0.0, 1.0, 2.5, -1.5]
pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.fixture
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Scored(NamedTuple):
    tokens: tuple[int, ...]  # an ended sequence includes the end symbol as its last token
    total: float  # log-probability


def sentence(src: Tensor, b: int) -> Tensor:
    """Returns row b of src without padding, as a batch of one sentence (1, length)."""
    return src[b : b + 1, : int((src[b] != PAD).sum())]


def next_log_probabilities(model: Seq2Seq, src: Tensor, prefixes: list[tuple[int, ...]]) -> list[list[float]]:
    """Returns, for each prefix, the log-probability of every possible next token. All prefixes have the same length."""
    logits = model.output(model(src.expand(len(prefixes), -1), torch.tensor([[BOS, *prefix] for prefix in prefixes]))[:, -1])
    logits[:, PAD] = -torch.inf
    return logits.log_softmax(-1).tolist()


def naive_greedy(model: Seq2Seq, src: Tensor, limit: int) -> Scored:
    tokens: tuple[int, ...] = ()
    total = 0.0
    while len(tokens) < limit and tokens[-1:] != (EOS,):
        [row] = next_log_probabilities(model, src, [tokens])
        token = max(range(len(row)), key=row.__getitem__)
        tokens, total = (*tokens, token), total + row[token]
    return Scored(tokens, total)


def penalty(settings: SearchSettings, tokens: tuple[int, ...]) -> float:
    """Returns the length penalty of Wu et al. 2016, equation 14."""
    return float(((5 + len(tokens)) / 6) ** settings.length_penalty)


def naive_beam(model: Seq2Seq, src: Tensor, settings: SearchSettings, limit: int, forced: Sequence[int] = ()) -> list[Scored]:
    """Returns the `n_best` best sequences of a beam search of width K. At each step, the sequences among the K best that have
    ended become results, and the K best unended sequences are extended. The search stops once K results score at least as much
    as the best unended sequence. Sequences that are unended at the limit are ranked after all ended ones. forced: the first
    tokens of every sequence."""

    def score(s: Scored) -> float:
        return s.total / penalty(settings, s.tokens)

    alive, done = [Scored((), 0.0)], []
    for length in range(1, limit + 1):
        grown = [
            Scored((*old.tokens, token), old.total + gain)
            for old, row in zip(alive, next_log_probabilities(model, src, [s.tokens for s in alive]), strict=True)
            for token, gain in enumerate(row)
            if token in forced[length - 1 : length] or (token != PAD and length > len(forced))
        ]
        grown.sort(key=lambda s: -s.total)
        done += [s for s in grown[: settings.beam] if s.tokens[-1] == EOS]
        alive = [s for s in grown if s.tokens[-1] != EOS][: settings.beam]
        if length == limit:
            done += alive
        elif sum(score(s) >= score(alive[0]) for s in done) >= settings.beam:
            break
    return sorted(done, key=lambda s: (s.tokens[-1] == EOS, score(s)), reverse=True)[: settings.n_best]


def every_sequence(model: Seq2Seq, src: Tensor, vocabulary: int, limit: int) -> list[Scored]:
    """Returns all sequences that end within `limit` tokens, and all sequences of `limit` tokens without an end symbol."""
    words = [token for token in range(vocabulary) if token not in (PAD, EOS)]
    by_length = [[(*s, EOS) for s in itertools.product(words, repeat=n)] for n in range(limit)]
    by_length[-1] += list(itertools.product(words, repeat=limit))
    return [scored for sequences in by_length for scored in teacher_forced(model, src, sequences)]


def best_first(sequences: list[Scored], settings: SearchSettings) -> list[Scored]:
    """Returns the ended sequences, best first, followed by the sequences cut at the limit, best first."""
    return sorted(sequences, key=lambda s: (s.tokens[-1] != EOS, -s.total / penalty(settings, s.tokens)))


def teacher_forced(model: Seq2Seq, src: Tensor, sequences: Sequence[tuple[int, ...]]) -> list[Scored]:
    """Returns sequences of equal length with their log-probabilities, computed by teacher forcing."""
    tokens = torch.tensor(sequences)
    read = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], dim=1)
    logits = model.output(model(src.expand(len(sequences), -1), read))
    logits[..., PAD] = -torch.inf
    totals = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).sum((1, 2))
    return [Scored(s, total) for s, total in zip(sequences, totals.tolist(), strict=True)]


def hypotheses_of(sequences: list[Scored], settings: SearchSettings) -> list[Hypothesis]:
    return [
        Hypothesis([token for token in s.tokens if token != EOS], s.total / penalty(settings, s.tokens), s.tokens[-1] == EOS)
        for s in sequences
    ]


def assert_same(actual: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.tokens, h.ended) for h in actual] == [(h.tokens, h.ended) for h in expected]
    assert [h.score for h in actual] == pytest.approx([h.score for h in expected], abs=1e-10)


def limit_of(settings: SearchSettings, src: Tensor) -> int:
    return int(settings.length_factor * int((src != PAD).sum())) + settings.length_offset


def varied_model(name: str, vocabulary: int, seed: int, **changes: int) -> Seq2Seq:
    """Returns a model with large embeddings, so that its translations vary and end early, late or never."""
    model = small(name, seed, spread=0.2, src_vocab=vocabulary, tgt_vocab=vocabulary, tied=False, **changes)
    for side in ("src", "tgt"):
        model.get_submodule(f"{side}_embedding").weight *= 4
    model.output.weight[EOS] *= 1.5
    return model


SEEDS = [3, 4, 5, 6]
V = 11
LENGTHS = (2, 7, 1, 5, 3)
LIMITED = {"length_factor": 1.5, "length_offset": 1}


# A beam wider than the number of sequences finds the same sequences as enumeration


@pytest.mark.parametrize(("vocabulary", "limit", "n_best"), [(5, 3, 40), (4, 5, 1)])
def test_a_beam_wider_than_all_sequences_finds_the_best_of_them(name: str, vocabulary: int, limit: int, n_best: int) -> None:
    widest = (vocabulary - 1) ** limit  # no sequence contains padding
    for seed in SEEDS:
        model, src = varied_model(name, vocabulary, seed), sources(seed, vocabulary, LENGTHS)
        sequences = [every_sequence(model, sentence(src, b), vocabulary, limit) for b in range(len(LENGTHS))]
        assert {len(every) for every in sequences} == {sum((vocabulary - 2) ** n for n in range(limit + 1))}
        for length_penalty in PENALTIES:
            lengths = {"length_penalty": length_penalty, "length_factor": 0, "length_offset": limit}
            settings = SearchSettings(beam=widest, n_best=n_best, **lengths)
            for hypotheses, every in zip(search(model, src, settings, BOS, EOS), sequences, strict=True):
                assert_same(hypotheses, hypotheses_of(best_first(every, settings)[:n_best], settings))


class Table(Seq2Seq):
    """A model whose token probabilities at each step are the next row of a table, whatever tokens it reads."""

    def __init__(self, probabilities: list[list[float]]) -> None:
        super().__init__()
        self.pad_id = PAD
        self.logits = torch.tensor(probabilities, dtype=torch.float64).log()
        self.output = torch.nn.Linear(self.logits.size(1), self.logits.size(1), bias=False).double()
        torch.nn.init.eye_(self.output.weight)

    def encode(self, src: Tensor) -> State:
        return State(torch.zeros(src.size(0), dtype=torch.long), src)

    def decode(self, tgt: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns a row of the table for each token. `state.written` (B,) counts the tokens already read."""
        return self.logits[state.written[:, None] + torch.arange(tgt.size(1))], State(state.written + tgt.size(1), state.source)


@pytest.mark.parametrize(("length_penalty", "ends_at_once"), [(2.5, 0.55), (-1.5, 0.45)])
def test_a_search_continues_while_an_unended_hypothesis_can_still_win(length_penalty: float, ends_at_once: float) -> None:
    # The stopping rule must consider the best score that the best unended hypothesis can still reach. A rule that used only its
    # current score would stop the first search after one token. A rule that used only the score it would have at the length
    # limit would stop the second search.
    e = 1e-9
    model = Table([[e, 1 - ends_at_once, ends_at_once, e], *[[e, 0.01, 0.99, e]] * 4])
    settings = SearchSettings(beam=2, length_penalty=length_penalty, length_factor=0, length_offset=5)
    assert search(model, torch.tensor([[1, 1]]), settings, BOS, EOS)[0][0].tokens == [1]


# Narrow beams


@pytest.mark.parametrize(
    ("beam", "n_best", "length_penalty"), [(1, 1, 1.0), (2, 1, 0.0), (3, 3, 2.5), (3, 3, -1.5), (5, 2, 1.0), (5, 2, -1.5)]
)
def test_a_beam_equals_a_search_that_recomputes_everything(name: str, beam: int, n_best: int, length_penalty: float) -> None:
    """Beam 1 equals a naive greedy search, and a wider beam a naive beam search."""
    settings = SearchSettings(beam=beam, length_penalty=length_penalty, n_best=n_best, **LIMITED)
    ends = set()
    for seed in SEEDS:
        model, src = varied_model(name, V, seed), sources(seed, V, LENGTHS)
        for b, hypotheses in enumerate(search(model, src, settings, BOS, EOS)):
            alone = sentence(src, b)
            limit = limit_of(settings, alone)
            expected = naive_beam(model, alone, settings, limit) if beam > 1 else [naive_greedy(model, alone, limit)]
            assert_same(hypotheses, hypotheses_of(expected, settings))
            ends |= {(h.ended, len(h.tokens)) for h in hypotheses}
    assert {ended for ended, _ in ends} == {True, False} and len(ends) > 5  # translations end early, end late, or are cut


@pytest.mark.parametrize(("beam", "length_penalty"), [(1, 1.0), (3, 1.0), (4, -1.5)])
def test_a_translation_begins_as_it_must(name: str, beam: int, length_penalty: float) -> None:
    settings = SearchSettings(beam=beam, n_best=beam, length_penalty=length_penalty, **LIMITED)
    beginnings: list[list[int]] = [[4, 5], [], [6, 4, 1, 5, 8, 7], [9], [1, 1, 4]]
    for seed in SEEDS:
        model, src = varied_model(name, V, seed), sources(seed, V, LENGTHS)
        results = search(model, src, settings, BOS, EOS, forced=pad(beginnings, PAD))
        for b, (hypotheses, beginning) in enumerate(zip(results, beginnings, strict=True)):
            alone = sentence(src, b)
            limit = max(limit_of(settings, alone), len(beginning) + settings.length_offset if beginning else 0)
            expected = naive_beam(model, alone, settings, limit, beginning)
            assert_same(hypotheses, hypotheses_of(expected, settings))
            assert all(h.tokens[: len(beginning)] == beginning for h in hypotheses)


def test_log_probabilities_have_at_least_single_precision(model: Seq2Seq) -> None:
    for dtype, expected in [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]:
        model.output.to(dtype)
        row = log_probabilities(model, torch.ones(2, model.output.in_features, dtype=dtype))
        assert row.dtype == expected
        torch.testing.assert_close(row.exp().sum(-1), torch.ones(2, dtype=expected))


@pytest.mark.parametrize("threads", [1, 2])
def test_texts_are_translated_as_if_alone_on_any_number_of_threads(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["L'été, Jane n'a pas dormi.", "Le chat noir dort.", "Il a faim.", "Le chat a faim, Jane dort."]
    pieces = Tokenizer.train(lines * 3, 290)
    vocabulary, settings = Vocabulary(pieces, pieces, joint=True), SearchSettings(beam=2, n_best=2, **LIMITED)
    model = varied_model(name, len(pieces), seed=1, pad_id=tokenizer.PAD)
    texts = ["", lines[2], "  ", *lines[:2], " " + unicodedata.normalize("NFD", lines[0]), lines[3]]
    alone = [translate(model, vocabulary, [text], settings)[0] for text in texts]
    torch.set_num_threads(threads)
    monkeypatch.setattr("entente.decoding.translate.MAX_TOKENS", 13)
    together = translate(model, vocabulary, texts, settings)
    assert torch.get_num_threads() == threads
    assert [[h.tokens for h in n_best] for n_best in together] == [[h.tokens for h in n_best] for n_best in alone]
    assert together[0] == together[2] == [Hypothesis([], 0.0, True)]
    assert together[5] == together[3] != together[4]
