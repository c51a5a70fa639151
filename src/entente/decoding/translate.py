"""Translates text: cleans and tokenises it, then searches in batches of similar source length, on all cores of a CPU."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn

from entente.data.batches import Batch, EvaluationBatches, Rows
from entente.data.files import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Hypothesis, search
from entente.fast.attach import packed
from entente.models.seq2seq import Seq2Seq, evaluating
from entente.settings import SearchSettings

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Iterator[Any]], Iterable[Any]]


def translate(
    model: Seq2Seq,
    vocabulary: Vocabulary,
    sentences: Sequence[str],
    settings: SearchSettings,
    max_tokens: int = 2048,
    prefixes: Sequence[str] = (),
) -> list[list[Hypothesis]]:
    """Returns the n best hypotheses of each sentence, in input order. An empty sentence has one empty translation. prefixes:
    how the translation of each sentence begins, or none."""
    device = next(model.parameters()).device
    cleaned = {i: text for i, sentence in enumerate(sentences) if (text := clean(sentence))}
    places, ids = [*cleaned], vocabulary.encode_src([*cleaned.values()])
    beginnings = [vocabulary.tgt.encode(clean(prefixes[i])) for i in places] if prefixes else [[]] * len(ids)
    batches = EvaluationBatches(Rows(ids), Rows([[BOS, *beginning] for beginning in beginnings]), max_tokens)

    def decode(batch: Batch) -> list[tuple[int, list[Hypothesis]]]:
        n_best = search(model, batch.src.to(device), settings, BOS, EOS, batch.tgt[:, 1:])
        return [(places[row], hypotheses) for row, hypotheses in zip(batch.index.tolist(), n_best, strict=True)]

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
        torch.set_num_threads(1)
        try:
            return [*report(pool.map(work, items))]
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
