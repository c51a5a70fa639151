"""Evaluates a model on a split: scores its translations with sacreBLEU, whose signatures make scores comparable (Post 2018),
and computes the likelihood of the references.

Shapes: B batch, T target length, N real target tokens of a batch, D width of the decoder's output.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sacrebleu.metrics import BLEU, CHRF, TER

from entente import distributed
from entente.console import log, print_table, show_progress, show_share
from entente.data.batches import Batch, EvaluationSplit, to_device
from entente.data.text import SEPARATORS, TOKENIZERS, count_words
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import CUT, Hypothesis, search
from entente.decoding.translate import parallel_map
from entente.errors import Diverged, InputError, reason
from entente.files import write_text
from entente.models.seq2seq import Loss, Seq2Seq
from entente.settings import EvaluationSettings, RunSettings, SearchSettings

# A batch's total NLL in nats, number of target tokens, and translations by row
Result = tuple[float, int, dict[int, Hypothesis]]
METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
LENGTHS = (5, 10, 15, 20, 30, 50)  # upper limits of the source length buckets, in words


class Evaluation(NamedTuple):
    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    nll: float  # mean per reference token in nats, counting end symbols, without label smoothing
    cut: int  # number of hypotheses that did not end within their length limit
    tokenize: str = "13a"  # sacreBLEU's tokenizer for BLEU

    def metrics(self, names: Iterable[str] = METRICS) -> dict[str, Any]:
        """Returns the entries for metrics.json, with BLEU and the scores that `names` lists."""
        scores = self.scores(*dict.fromkeys(["bleu", *names]))
        counts = {"sentences": len(self.references), "cut": self.cut}
        return {**scores, "nll": self.nll, **counts, "bleu_by_source_length": self.bleu_by_length()}

    def scores(self, *names: str) -> dict[str, Any]:
        """Returns the named scores and their signatures. BLEU (Papineni et al. 2002) and chrF (Popović 2015) range from 0 to
        100; higher is better. TER (Snover et al. 2006) is in percent; lower is better."""
        scores: dict[str, Any] = {"signature": {}}
        for name in names:
            show_progress(METRICS[name])  # TER takes minutes for long sentences in a wrong order
            metric = metric_of(name, self.tokenize)
            scores[name] = float(metric.corpus_score(self.hypotheses, [self.references]).score)
            scores["signature"][name] = str(metric.get_signature())
        return scores

    def bleu_by_length(self) -> list[dict[str, Any]]:
        """Returns the BLEU of each non-empty source length bucket (Bahdanau et al. 2015, figure 2)."""
        lengths, buckets = [max(1, count_words(source)) for source in self.sources], []
        for low, high in zip((0, *LENGTHS), (*LENGTHS, math.inf), strict=True):
            if rows := [row for row, n in enumerate(lengths) if low < n <= high]:
                hypotheses, references = ([side[row] for row in rows] for side in (self.hypotheses, self.references))
                bleu = self._replace(hypotheses=hypotheses, references=references).scores("bleu")["bleu"]
                words = f"{low + 1}-{high}" if high < math.inf else f"{low + 1}+"
                buckets.append({"words": words, "sentences": len(rows), "bleu": bleu})
        return buckets


def bleu_tokenizer(run: RunSettings, evaluation: EvaluationSettings) -> str:
    """Returns sacreBLEU's tokenizer for the translations of a run. Raises InputError if it cannot be used here."""
    language = re.split("[-_]", run.data.tgt.lower())[0]  # of zh-Hans or zho_Hans
    tokenize = evaluation.tokenize or TOKENIZERS.get(language, BLEU.TOKENIZER_DEFAULT)
    try:
        metric_of("bleu", tokenize)
    except Exception as error:  # some tokenizers need packages that are not installed
        raise InputError(f"evaluation.tokenize={tokenize}: cannot be used ({reason(error)}); give another, or null") from None
    return tokenize


@cache
def metric_of(name: str, tokenize: str) -> Any:
    return BLEU(tokenize=tokenize, force=True) if name == "bleu" else {"chrf": CHRF, "ter": TER}[name]()


def batch_loss(model: Seq2Seq, batch: Batch, label_smoothing: float = 0.0) -> tuple[Loss, int]:
    """Returns the mean loss over the N real target tokens of a batch, and N."""
    hidden = model(batch.src, batch.tgt[:, :-1]).flatten(0, 1)[batch.real]  # (N, D)
    target = batch.tgt[:, 1:].flatten()[batch.real]  # (N,)
    return model.loss(hidden, target, label_smoothing), len(target)


def evaluate(
    model: Seq2Seq, vocabulary: Vocabulary, split: EvaluationSplit, settings: SearchSettings, tokenize: str = "13a"
) -> Evaluation:
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
    return Evaluation(sources, references, hypotheses, sum(losses) / sum(counts), cut, tokenize)


def write_translations(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """Writes translations/SPLIT.tsv for each split, with a header line."""
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(SEPARATORS.sub(" ", part) for part in line) + "\n" for line in lines)
        write_text(directory / "translations" / f"{split}.tsv", "source\treference\ttranslation\n" + text)


def scores_table(metrics: Mapping[str, Any]) -> list[list[str]]:
    names = [name for name in METRICS if all(name in m for m in metrics.values())]
    rows = [["split", "sentences", *(METRICS[name] for name in names), "NLL"]]
    for split, m in metrics.items():
        rows.append([split, str(m["sentences"]), *(f"{m[name]:.2f}" for name in names), f"{m['nll']:.4f}"])
    return rows


def show(metrics: Mapping[str, Any], title: str) -> None:
    log.info("%s", title)
    print_table(scores_table(metrics))
    for split, m in metrics.items():
        if m["cut"]:
            log.info("%s: %d of %d translations were %s", split, m["cut"], m["sentences"], CUT)
