"""Translates text: cleaning, tokens, search, in batches of sentences of similar length, on all cores of a CPU."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn

from entente.data.batches import EvaluationBatches, Rows
from entente.data.files import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Hypothesis, Search, search
from entente.fast.attach import packed
from entente.models.seq2seq import Seq2Seq, evaluating

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Iterator[Any]], Iterable[Any]]


def translate(
    model: Seq2Seq, vocabulary: Vocabulary, sentences: list[str], how: Search, max_tokens: int = 2048
) -> list[list[Hypothesis]]:
    """Returns the n best hypotheses of each sentence, in the order given. An empty sentence has one empty translation."""
    device = next(model.parameters()).device
    places, ids = with_text(sentences, vocabulary)
    rows = Rows(ids)
    batches = EvaluationBatches(rows, rows, max_tokens)
    decoded = work_through(batches, lambda batch: search(model, batch.src.to(device), how, BOS, EOS), model)
    found = (places[row] for batch in batches for row in batch.index.tolist())
    return in_order(sentences, dict(zip(found, chain.from_iterable(decoded), strict=True)))


def with_text(sentences: list[str], vocabulary: Vocabulary) -> tuple[list[int], list[list[int]]]:
    """Returns which sentences are not empty, and their source ids."""
    cleaned = {i: text for i, sentence in enumerate(sentences) if (text := clean(sentence))}
    return [*cleaned], vocabulary.encode_src([*cleaned.values()])


def in_order(sentences: list[str], found: dict[int, list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each sentence; where none was decoded, one that is empty."""
    return [found.get(i, [Hypothesis([], 0.0, True)]) for i in range(len(sentences))]


def work_through(
    items: Iterable[Item], work: Callable[[Item], Result], model: nn.Module, report: Report = iter
) -> list[Result]:
    """What `work` returns for each item, in order, in evaluation mode. On a CPU it is called on `torch.get_num_threads()`
    workers of one thread each, because the products of a search step are too small to be split among the cores; not under
    autocast, which other threads would not have. Until the end torch has one thread, and the model's weights must not change.
    `report` is given the results as they come, and returns them."""
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
