"""Translates text: cleans and tokenises it, then searches in batches of similar source length, on all cores of a CPU."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from entente.data.batches import Batch, EvaluationBatches, Rows
from entente.data.text import clean, is_in_capitals, sources_of
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Hypothesis, greedy, length_penalty, search
from entente.fast.attach import packed
from entente.models.seq2seq import Seq2Seq, evaluating
from entente.process import single_threaded
from entente.settings import SamplingSettings, SearchSettings

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Iterator[Any]], Iterable[Any]]
MAX_TOKENS = 2048  # of a batch


class Translation(NamedTuple):
    text: str
    log_probability: float  # of all its pieces, in nats
    length: int  # of pieces, counting the end symbols that were reached
    ended: bool  # whether all of it ended within the length limit


def translation_of(vocabulary: Vocabulary, settings: SearchSettings, hypotheses: Sequence[Hypothesis]) -> Translation:
    """Returns the translation of a line whose sentences have these hypotheses."""
    text = vocabulary.text([token for hypothesis in hypotheses for token in hypothesis.tokens])
    total = sum(hypothesis.score * length_penalty(settings, hypothesis.length) for hypothesis in hypotheses)
    lengths, ends = [hypothesis.length for hypothesis in hypotheses], [hypothesis.ended for hypothesis in hypotheses]
    return Translation(text, total, sum(lengths), all(ends))


def translate_lines(
    model: Seq2Seq,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    settings: SearchSettings,
    prefixes: Sequence[str] = (),
    sampling: SamplingSettings | None = None,
    first: int = 0,
) -> list[list[Translation]]:
    """Returns the n best translations of each line; for the arguments, see `translate`. If there is only one, without a prefix
    and not drawn at random, each of the `sources_of` a line is translated, and put in capitals if the line is."""
    is_plain = settings.n_best == 1 and not prefixes and not sampling
    parts = [sources_of(line, is_plain) for line in lines]
    results = iter(translate(model, vocabulary, [*chain.from_iterable(parts)], settings, prefixes, sampling, first))
    n_best = [
        [translation_of(vocabulary, settings, each) for each in zip(*(next(results) for _ in texts), strict=True)]
        for texts in parts
    ]
    return [
        [each._replace(text=each.text.upper()) for each in translations] if is_plain and is_in_capitals(line) else translations
        for translations, line in zip(n_best, lines, strict=True)
    ]


def translate(
    model: Seq2Seq,
    vocabulary: Vocabulary,
    sentences: Sequence[str],
    settings: SearchSettings,
    prefixes: Sequence[str] = (),
    sampling: SamplingSettings | None = None,
    first: int = 0,
) -> list[list[Hypothesis]]:
    """Returns the n best hypotheses of each sentence, in input order. An empty sentence has one empty translation. prefixes:
    how the translation of each sentence begins, or none. sampling: how to draw translations instead of searching for them; then
    `first` is the number of the first sentence."""
    device = next(model.parameters()).device
    cleaned = {i: text for i, sentence in enumerate(sentences) if (text := clean(sentence))}
    places, ids = [*cleaned], vocabulary.encode_src([*cleaned.values()])
    beginnings = [vocabulary.tgt.encode(clean(prefixes[i])) for i in places] if prefixes else [[]] * len(ids)
    batches = EvaluationBatches(Rows(ids), Rows([[BOS, *beginning] for beginning in beginnings]), MAX_TOKENS)
    settings = greedy(settings) if sampling else settings

    def decode(batch: Batch) -> list[tuple[int, list[Hypothesis]]]:
        rows = [places[row] for row in batch.index.tolist()]
        numbers = [first + row for row in rows]
        n_best = search(model, batch.src.to(device), settings, BOS, EOS, batch.tgt[:, 1:], sampling, numbers)
        return [*zip(rows, n_best, strict=True)]

    hypotheses = dict(chain.from_iterable(parallel_map(batches, decode, model)))
    return [hypotheses.get(i, [Hypothesis([], 0.0, True)]) for i in range(len(sentences))]


def parallel_map(
    items: Iterable[Item], work: Callable[[Item], Result], model: nn.Module, report: Report = iter
) -> list[Result]:
    """Returns `work(item)` for each item, in order, with the model in evaluation mode. On a CPU, `work` runs on
    `torch.get_num_threads()` single-threaded workers, because the products of a search step are too small to split among cores;
    under autocast, which is set per thread, on the caller's thread. `report` wraps the iterator of results."""
    threads = torch.get_num_threads()
    on_cpu = next(model.parameters()).device.type == "cpu"
    with evaluating(model), packed(model):
        if threads == 1 or not on_cpu or torch.is_autocast_enabled("cpu"):
            return [*report(map(work, items))]
        pool = ThreadPoolExecutor(threads)
        with single_threaded():
            try:
                return [*report(pool.map(work, items))]
            finally:
                pool.shutdown(cancel_futures=True)
