"""Evaluates a model on a split: scores its translations with sacreBLEU, whose signatures make scores comparable (Post 2018),
and computes the likelihood of the references.

Shapes: B batch, T target length, N real target tokens of a batch, D width of the decoder's output.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Column, Table
from sacrebleu.metrics import BLEU, CHRF, TER

from entente import distributed
from entente.console import show_share
from entente.data.batches import Batch, EvaluationSplit, to_device
from entente.data.tokenizer import BOS, EOS, SEPARATORS, Vocabulary
from entente.decoding.search import CUT, Hypothesis, search
from entente.decoding.translate import parallel_map
from entente.errors import Diverged
from entente.files import write_text
from entente.models.seq2seq import Loss, Seq2Seq
from entente.settings import SearchSettings

log = logging.getLogger("entente")

# A batch's total NLL in nats, number of target tokens, and translations by row
Result = tuple[float, int, dict[int, Hypothesis]]
METRICS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
LENGTHS = (5, 10, 15, 20, 30, 50)  # upper limits of the source length buckets, in words (split at white space)


@dataclass(frozen=True)
class Evaluation:
    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    nll: float  # mean per reference token in nats, counting end symbols, without label smoothing
    cut: int  # number of hypotheses that did not end within their length limit

    def metrics(self) -> dict[str, Any]:
        scores = corpus_scores(self.hypotheses, self.references, METRICS)
        by_length = bleu_by_length(self.sources, self.hypotheses, self.references)
        counts = {"sentences": len(self.references), "cut": self.cut}
        return {**scores, "nll": self.nll, **counts, "bleu_by_source_length": by_length}

    def quality(self, scores: Mapping[str, float]) -> tuple[float, float]:
        """Returns a key that is larger for better models: BLEU and, for equal BLEU, the negative NLL. chrF takes the place of
        BLEU if no reference has four tokens: without a 4-gram, BLEU is 0 for all models. scores: BLEU and chrF."""
        tokenize = BLEU().tokenizer
        metric = "bleu" if any(len(tokenize(text).split()) >= 4 for text in self.references) else "chrf"
        return scores[metric], -self.nll


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], names: Iterable[str]) -> dict[str, Any]:
    """Returns the named scores and their signatures. BLEU (Papineni et al. 2002) and chrF (Popović 2015) range from 0 to 100;
    higher is better. TER (Snover et al. 2006) is in percent; lower is better."""
    scores: dict[str, Any] = {"signature": {}}
    for name in names:
        metric = METRICS[name]()
        scores[name] = float(metric.corpus_score(hypotheses, [references]).score)
        scores["signature"][name] = str(metric.get_signature())
    return scores


def bleu_by_length(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the BLEU of each non-empty source length bucket (Bahdanau et al. 2015, figure 2)."""
    buckets = []
    for words, rows in length_buckets(sources).items():
        scores = corpus_scores([hypotheses[row] for row in rows], [references[row] for row in rows], ["bleu"])
        buckets.append({"words": words, "sentences": len(rows), "bleu": scores["bleu"]})
    return buckets


def length_buckets(sources: Sequence[str]) -> dict[str, list[int]]:
    """Returns the rows of each non-empty source length bucket, keyed by its range of lengths in words, such as "6-10"."""
    buckets: dict[str, list[int]] = {}
    lengths = [max(1, len(source.split())) for source in sources]
    for low, high in zip((0, *LENGTHS), (*LENGTHS, math.inf), strict=True):
        if rows := [row for row, n in enumerate(lengths) if low < n <= high]:
            buckets[f"{low + 1}-{high}" if high < math.inf else f"{low + 1}+"] = rows
    return buckets


def batch_loss(model: Seq2Seq, batch: Batch, label_smoothing: float = 0.0) -> tuple[Loss, int]:
    """Returns the mean loss over the N real target tokens of a batch, and N."""
    hidden = model(batch.src, batch.tgt[:, :-1]).flatten(0, 1)[batch.real]  # (N, D)
    target = batch.tgt[:, 1:].flatten()[batch.real]  # (N,)
    return model.loss(hidden, target, label_smoothing), len(target)


def evaluate(model: Seq2Seq, vocabulary: Vocabulary, split: EvaluationSplit, settings: SearchSettings) -> Evaluation:
    """Translates a split and computes the likelihood of its references. The processes of a run divide the batches among
    themselves, and each returns what a single process would. Raises Diverged, in all processes alike, if the loss of a batch is
    not finite or the batch cannot be translated."""
    device, rank, processes = next(model.parameters()).device, distributed.rank(), distributed.world_size()

    @torch.inference_mode()  # decorates the function because the mode is set per thread, and workers are threads
    def decode(batch: Batch) -> Result | Diverged:
        batch = to_device(batch, device)
        loss, tokens = batch_loss(model, batch)
        if not loss.nll.isfinite():
            return Diverged(f"the loss of {split.name} is {float(loss.nll)}; give a smaller optim.lr")
        try:
            best = [n_best[0] for n_best in search(model, batch.src, settings, BOS, EOS)]
        except Diverged as error:
            return error
        return float(loss.nll) * tokens, tokens, dict(zip(batch.index.tolist(), best, strict=True))

    batches = range(rank, len(split), processes)  # those of this process
    report = partial(show_share, total=len(batches), of="the batches")
    parts = distributed.gather(parallel_map(split.batches[batches.start : batches.stop : processes], decode, model, report))
    results: list[Any] = [*filter(None, chain.from_iterable(zip_longest(*parts)))]  # in the order of the batches
    if errors := [result for result in results if isinstance(result, Diverged)]:
        raise errors[0]
    losses, counts, translations = zip(*results, strict=True)
    decoded = {row: hypothesis for batch in translations for row, hypothesis in batch.items()}
    rows = sorted(decoded)  # every row, unless the split is limited to some batches
    sources, references = ([texts[row] for row in rows] for texts in (split.sources, split.references))
    hypotheses = [vocabulary.text(decoded[row].tokens) for row in rows]
    cut = sum(not hypothesis.ended for hypothesis in decoded.values())
    return Evaluation(sources, references, hypotheses, sum(losses) / sum(counts), cut)


def write_translations(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """Writes translations/SPLIT.tsv for each split, with a header line."""
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(SEPARATORS.sub(" ", part) for part in line) + "\n" for line in lines)
        write_text(directory / "translations" / f"{split}.tsv", "source\treference\ttranslation\n" + text)


def scores_table(metrics: Mapping[str, Any]) -> list[list[str]]:
    rows = [["split", "sentences", "BLEU", "chrF", "TER", "NLL"]]
    for split, m in metrics.items():
        rows.append([split, str(m["sentences"]), *(f"{m[name]:.2f}" for name in ("bleu", "chrf", "ter")), f"{m['nll']:.4f}"])
    return rows


def rich_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table for a terminal, with numbers in all columns but the first."""
    table = Table(*(Column(name, justify="right" if i else "left") for i, name in enumerate(headings)))
    for row in rows:
        table.add_row(*row)
    return table


def show(metrics: Mapping[str, Any], title: str) -> None:
    log.info("%s", title)
    headings, *rows = scores_table(metrics)
    Console(markup=False, emoji=False).print(rich_table(headings, rows))
    for split, m in metrics.items():
        if m["cut"]:
            log.info("%s: %d of %d translations were %s", split, m["cut"], m["sentences"], CUT)
