"""Measures attention: statistics of each head, and its agreement with gold word alignments and with occlusion.

Shapes: L layers, H heads, G heads plus their mean, W source words, E target words, T target pieces, N sources, V vocabulary.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from entente.attention import record
from entente.attention.alignment import Alignments, Head, Pair, Words, heads_of, merge_pieces, predicted_links, with_mean
from entente.console import print_table, show_share
from entente.data.alignments import Gold, Link
from entente.data.batches import split_of
from entente.data.tokenizer import BOS, EOS, SPECIAL, Vocabulary
from entente.models.seq2seq import Seq2Seq, pad

if TYPE_CHECKING:
    from entente.data.module import TranslationData  # imports Lightning, which takes 2 seconds

BATCH = 32  # sentences recorded in one pass
SOURCES = 64  # variants of a source sentence that `occlusion` reads in one pass
ENDS = (SPECIAL[BOS], SPECIAL[EOS])
CORRELATIONS = ("pearson", "spearman", "same_first")  # between attention and occlusion, see `correlations`


class Numbers(NamedTuple):
    """Statistics of every head (L, H) of one kind of attention: means over the rows that may attend to more than one key."""

    entropy: Tensor  # entropy of a row divided by its maximum: 0 if all weight is on one piece, 1 if uniform
    end: Tensor  # weight on the end symbol </s> (in the decoder's self-attention, on <s>)
    punctuation: Tensor  # weight on pieces without a letter or digit
    diagonal: Tensor  # distance from the diagonal, |column / last column - row / last row|, weighted by attention


def numbers_of(map: record.AttentionMap) -> Tensor:
    """Returns the four statistics of every row that may attend to more than one key, as (4, L, H, rows)."""
    allowed = torch.ones(map.weights.shape[-2:], dtype=torch.bool) if map.allowed is None else map.allowed
    w = map.weights / map.weights.sum(-1, keepdim=True).clamp(min=record.EPSILON)  # rows do not sum to 1 in some ablations
    n_rows, n_columns = w.shape[-2:]
    end = torch.tensor([float(label in ENDS) for label in map.columns])
    signs = torch.tensor([float(label not in ENDS and not any(c.isalnum() for c in label)) for label in map.columns])
    distance = (torch.linspace(0, 1, n_columns) - torch.linspace(0, 1, n_rows)[:, None]).abs()
    numbers = torch.stack([record.entropy_share(map.weights, allowed), w @ end, w @ signs, (w * distance).sum(-1)])
    return numbers[..., allowed.sum(-1) > 1]


def measure(model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> tuple[dict[str, Numbers], Alignments]:
    """Returns statistics of each kind of attention under teacher forcing, and the links implied by attention to the source."""
    values: defaultdict[str, list[Tensor]] = defaultdict(list)
    links: list[Tensor] = []
    starts = range(0, len(pairs), BATCH)
    for start in show_share(starts, len(starts), "the sentences"):
        block = pairs[start : start + BATCH]
        batch = record.record_batch(model, vocabulary, [pair.src for pair in block], [pair.tgt for pair in block])
        for pair, maps in zip(block, batch, strict=True):
            for map in maps:
                values[map.kind].append(numbers_of(map))
                if map.kind in record.TO_SOURCE:
                    links.append(predicted_links(map, *pair.words(vocabulary)))
    numbers = {kind: Numbers(*torch.cat(of_kind, dim=-1).mean(-1)) for kind, of_kind in values.items()}
    return numbers, Alignments(links, [pair.gold for pair in pairs if pair.gold] if links else [])


def occlusion(model: Seq2Seq, src: Sequence[int], tgt: Sequence[int], source: Words, target: Words) -> Tensor:
    """Returns how much the probability of each target word (the product of its pieces' probabilities) changes when one source
    word is left out: (E, W), from 0 to 1. src ends with EOS; tgt has neither BOS nor EOS. Attention alone does not explain a
    prediction (Jain & Wallace 2019), so it is compared with these changes."""
    belongs = source.shares.argmax(-1).tolist()  # index of the word that each piece belongs to
    pieces = list(zip(src, belongs, strict=False))
    rows = [list(src), *([*(p for p, word in pieces if word != w), src[-1]] for w in range(len(source.labels)))]
    log_probabilities = []  # of the target pieces given each source, (N, T)
    with record.observing(model) as device:
        for i in range(0, len(rows), SOURCES):
            sources = pad(rows[i : i + SOURCES], model.pad_id).to(device)
            read = torch.tensor([[BOS, *tgt[:-1]]] * len(sources), device=device)
            logits = model.output(model(sources, read)).float()  # (N, T, V)
            log_probabilities.append(logits.log_softmax(-1)[:, range(len(tgt)), list(tgt)].cpu())
    belong = (target.shares == target.shares.amax(-1, keepdim=True)).float()  # (T, E)
    words = (torch.cat(log_probabilities) @ belong).exp()  # (1 + W, E)
    return (words[0] - words[1:]).abs().T


def correlations(attention: Tensor, change: Tensor) -> Tensor:
    """Returns the CORRELATIONS between the rows of attention (..., E, W) and change (E, W), for each target word (..., E, 3):
    `pearson`, `spearman` (of ranks), and `same_first`, whether both have their maximum at the same source word. They are NaN
    for a row whose values in either tensor are all equal."""
    from scipy.stats import rankdata  # slow to import

    a, c = attention.double(), change.double().expand(attention.shape)
    ranks = [torch.from_numpy(rankdata(x, axis=-1)) for x in (a, c)]
    centred = ([x - x.mean(-1, keepdim=True) for x in pair] for pair in ((a, c), ranks))
    pearson, spearman = (F.cosine_similarity(x, y, dim=-1, eps=0) for x, y in centred)
    of_words = torch.stack([pearson, spearman, (a.argmax(-1) == c.argmax(-1)).double()], dim=-1)
    differ = (a.amax(-1) > a.amin(-1)) & (c.amax(-1) > c.amin(-1))
    return of_words.where(differ[..., None], torch.nan)


def by_head(values: Tensor) -> list[dict[str, Any]]:
    """Converts correlations (L, G, E, 3) to one report per head for metrics.json: means over the words that have any."""
    rows = zip(heads_of(values.shape[:2]), values.nanmean(-2).flatten(0, 1).tolist(), strict=True)
    return [head.report() | dict(zip(CORRELATIONS, of_head, strict=True)) for head, of_head in rows]


def mean_correlations(model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Returns the correlations of each head: means over the target words of all sentences."""
    values: list[Tensor] = []
    for pair in show_share(pairs, len(pairs), "the sentences, without each of their words"):
        source, target = pair.words(vocabulary)
        if len(source.labels) > 1 and target.labels:
            maps = record.record_batch(model, vocabulary, [pair.src], [pair.tgt])[0]
            [words] = [merge_pieces(map, source, target).weights for map in maps if map.kind in record.TO_SOURCE]
            change = occlusion(model, pair.src, pair.tgt, source, target)
            values.append(correlations(with_mean(words[..., :-1, :-1]), change))  # [:-1] drops the end symbol
    return by_head(torch.cat(values, dim=-2)) if values else []


class Measured(NamedTuple):
    report: dict[str, Any]  # the entries for metrics.json
    links: list[list[Link]]  # of each sentence according to `best`
    best: Head  # the best head or layer mean of this split or the validation split (see `Alignments.best`)


def measure_split(
    model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair], occluded: int, valid: Measured | None
) -> Measured:
    """Measures a split, with occlusion on its first `occluded` pairs. valid: measurements whose best head is used, not this
    split's."""
    numbers, alignments = measure(model, vocabulary, pairs)
    best, report = valid.best if valid else alignments.best(), dict[str, Any]()
    for kind, of_kind in numbers.items():
        report[kind] = {name: values.tolist() for name, values in of_kind._asdict().items()}
    if alignments.gold:
        rows = {head: head.report() | alignments.agreement(head)._asdict() for head in alignments.heads()}
        report["word_alignment"] = {
            "oracle": alignments.oracle()._asdict(),
            "best": rows[best] | {"chosen_on": "valid" if valid else "these sentences themselves"},
            "heads": [*rows.values()],
        }
    if occluded and alignments.predicted and (changes := mean_correlations(model, vocabulary, pairs[:occluded])):
        report["occlusion"] = changes
    return Measured(report, alignments.links(best), best)


def show(report: Mapping[str, Any], of: str) -> None:
    """Prints the report of a `Measured`. of: the name of the split or model measured."""
    kinds = {name: report[kind] for kind, name in record.NAME_OF_KIND.items() if kind in report}
    if kinds:
        rows = [
            {"": f"{name} {i + 1}.{j + 1}"} | {number: numbers[number][i][j] for number in Numbers._fields}
            for name, numbers in kinds.items()
            for i, j in np.ndindex(np.shape(numbers["entropy"]))
        ]
        _print(f"{of}: attention of each head, averaged over queries", rows)
    if scores := report.get("word_alignment"):
        rows = [{"layer": "oracle", "head": "", "step": ""} | scores["oracle"], *scores["heads"]]
        best = "best on {chosen_on}: layer {layer}, head {head}, {step}".format_map(scores["best"])
        _print(f"{of}: attention to the source as word alignment", rows, best)
    if rows := report.get("occlusion", []):
        _print(f"{of}: correlation of attention with the effect of leaving out a source word", rows)


def _print(title: str, rows: Sequence[Mapping[str, Any]], caption: str | None = None) -> None:
    lines = [[f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    print_table([[*rows[0]], *lines], title, caption)


def pairs_of(data: "TranslationData", split: str, n: int | None = None) -> list[Pair]:
    """Returns the pairs of a split, or the first n, with their gold links if the corpus has any."""
    src, tgt = data.ids(split)
    rows = range(len(src))[:n]
    gold: Sequence[Gold | None] = [None] * len(rows)
    if links := data.corpus.gold.get(split_of(split)):
        sources = zip(links, data.pairs(split)[: len(rows)]["src"], strict=False)
        gold = [of_pair._replace(src=data.vocabulary.src.place(text, of_pair.src)) for of_pair, text in sources]
    return [Pair(src[i].tolist(), tgt[i].tolist()[1:-1], gold[i]) for i in rows]
