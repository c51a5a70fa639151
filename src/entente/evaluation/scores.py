"""Scores of translations, by sacreBLEU, with the signatures that make them comparable (Post 2018)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

METRICS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
LENGTHS = (5, 10, 15, 20, 30, 50)  # upper ends of the source length buckets, in white space words


@dataclass(frozen=True)
class Evaluation:
    """A split's translations and what they are worth. nll: mean negative log-likelihood of a reference token in nats, end
    symbol counted, without label smoothing; its exponential is the perplexity."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    nll: float

    def metrics(self) -> dict[str, Any]:
        """Everything that metrics.json holds of a split."""
        return {
            **corpus_scores(self.hypotheses, self.references, METRICS),
            "nll": self.nll,
            "sentences": len(self.references),
            "bleu_by_source_length": bleu_by_length(self.sources, self.hypotheses, self.references),
        }


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], names: Iterable[str]) -> dict[str, Any]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015), 0 to 100, higher is better; TER (Snover et al. 2006) in percent,
    lower is better, and slow where translations are long and wrong."""
    scores: dict[str, Any] = {"signature": {}}
    for name in names:
        metric = METRICS[name]()
        scores[name] = float(metric.corpus_score(hypotheses, [references]).score)
        scores["signature"][name] = str(metric.get_signature())
    return scores


def bleu_by_length(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """BLEU of the sentences of each source length that occurs (Bahdanau et al. 2015, figure 2)."""
    rows = []
    for low, high in zip((0, *LENGTHS), (*LENGTHS, None), strict=True):
        chosen = [i for i, s in enumerate(sources) if low < max(1, len(s.split())) <= (high or float("inf"))]
        if chosen:
            scores = corpus_scores([hypotheses[i] for i in chosen], [references[i] for i in chosen], ["bleu"])
            words = f"{low + 1}-{high}" if high else f"{low + 1}+"
            rows.append({"words": words, "sentences": len(chosen), "bleu": scores["bleu"]})
    return rows
