"""Beam search over the interface `encode`, `decode`, `output`, written once for every model; greedy search is one beam.

A sentence's translation depends on that sentence alone: its length limit comes from its own source, and rows that are finished
leave the batch without touching the others.

Shapes: B sentences still searched, K beam, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import torch
from annotated_types import Interval, doc
from torch import Tensor

from entente.errors import Diverged
from entente.models.seq2seq import Seq2Seq, State, padding_mask, select

ROWS = 256  # of a step, whose logits are computed and compared together
GROUP = 64  # columns of logits, of which the largest is found first


class Hypothesis(NamedTuple):
    tokens: list[int]  # without start and end symbol
    score: float  # the log-probability over the length penalty
    ended: bool  # whether it reached the end symbol within its limit


def rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    """The key that sorts hypotheses best first: those that ended, then those cut at the length limit, each by score."""
    return not hypothesis.ended, -hypothesis.score


def n_best_within_beam(n_best: int, beam: int) -> None:
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best={n_best} and beam={beam}: allowed is 1 <= n_best <= beam")


@dataclass(frozen=True)
class Search:
    """How to search. length_penalty: alpha of Wu et al. 2016, equation 14. The longest translation has
    `length_factor * source tokens + length_offset` tokens, the end symbol counted. A hypothesis that has not ended there ranks
    below all that have ended, whatever its score: it is the best only if none ended."""

    beam: Annotated[int, Interval(ge=1, le=1000), doc("hypotheses kept at each step; 1 is greedy")] = 1
    length_penalty: Annotated[float, Interval(ge=-10, le=10), doc("0: plain log-probabilities")] = 1.0
    n_best: Annotated[int, Interval(ge=1, le=1000), doc("translations returned of each sentence")] = 1
    length_factor: Annotated[
        float, Interval(ge=0, le=100), doc("longest translation: length_factor * source pieces + length_offset")
    ] = 2.0
    length_offset: Annotated[int, Interval(ge=1, le=100_000), doc("see length_factor")] = 10

    relations = (n_best_within_beam,)

    def limits(self, lengths: Tensor) -> Tensor:
        """The lengths of sources (B,) -> the longest translation of each in tokens, (B,)."""
        return (lengths * self.length_factor).long() + self.length_offset

    def penalty(self, length: int) -> float:
        """What the log-probability of `length` tokens, end symbol counted, is divided by."""
        return float(((5 + length) / 6) ** self.length_penalty)


def log_probabilities(model: Seq2Seq, hidden: Tensor) -> Tensor:
    """hidden (N, D) -> (N, V), in at least float32; the padding symbol is never produced."""
    logits = model.output(hidden)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits[:, model.pad_id] = -torch.inf
    return logits.log_softmax(-1)


def best(model: Seq2Seq, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """hidden (N, D) -> the k largest log-probabilities of each row, largest first, and their tokens, both (N, k). On a CPU,
    rows are split into blocks whose logits are still in the cache when they are compared."""
    parts = hidden.split(ROWS) if hidden.device.type == "cpu" else (hidden,)
    values, tokens = zip(*(largest(log_probabilities(model, part), k) for part in parts), strict=True)
    if (found := torch.cat(values)).isnan().any():  # softmax makes a whole row NaN of a single value that is not finite
        raise Diverged("what the model predicts is not a number; train it again with a smaller optim.lr")
    return found, torch.cat(tokens)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`values.topk(k)` for values (N, V), computed over the k groups of columns with the largest maxima only: a group that
    holds one of the k best has one of the k largest maxima."""
    n, rest = divmod(values.size(1), GROUP)
    if n < 2 * k:
        return values.topk(k)
    maxima = values[:, : n * GROUP].unflatten(1, (n, GROUP)).amax(-1)
    if rest:
        maxima = torch.cat([maxima, values[:, -rest:].amax(-1, keepdim=True)], dim=1)
    groups = maxima.topk(k).indices  # (N, k)
    columns = (groups.unsqueeze(-1) * GROUP + torch.arange(GROUP, device=values.device)).flatten(1)
    beyond = columns >= values.size(1)  # the last group may be short
    found, at = values.gather(1, columns.masked_fill(beyond, 0)).masked_fill(beyond, -torch.inf).topk(k)
    return found, columns.gather(1, at)


@dataclass
class _Finished:
    """The K best finished hypotheses of one sentence, best first, see `rank`."""

    how: Search
    limit: int  # the most tokens that a hypothesis may have
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, tokens: Tensor, total: float, step: int, ended: bool) -> None:
        self.hypotheses.append(Hypothesis(tokens.tolist(), total / self.how.penalty(step), ended))
        self.hypotheses.sort(key=rank)  # stable: the earlier of two equal ones stays first
        del self.hypotheses[self.how.beam :]

    def beats(self, n: int, bound: float) -> bool:
        """Whether no hypothesis that scores at most `bound` can still enter the n best. All found so far have ended."""
        return len(self.hypotheses) >= n and self.hypotheses[n - 1].score >= bound

    def is_open(self, totals: list[float], prefix: Tensor, step: int) -> bool:
        """Whether to extend the live beams, K log-probabilities and tokens (K, T). At the limit they count as not ended."""
        if step >= self.limit:
            for tokens, total in zip(prefix, totals, strict=True):
                if total > -torch.inf:
                    self.add(tokens, total, step, False)
            return False
        # Log-probabilities only fall, so the most a live beam can reach is its own over the most favourable penalty.
        now = totals[0] / self.how.penalty(step)
        bound = max(now, totals[0] / self.how.penalty(self.limit))
        return not self.beats(self.how.n_best, bound) and not self.beats(self.how.beam, now)


@torch.inference_mode()
def search(model: Seq2Seq, src: Tensor, how: Search, bos: int, eos: int) -> list[list[Hypothesis]]:
    """src (B, S) token ids -> for each sentence its n best hypotheses, best first. The model should be in evaluation mode.

    Each step extends every beam by every token and keeps the K best that have not ended; those among the K best overall that
    have ended are kept apart. A sentence is done when nothing alive can still beat its n best; or when K that ended score at
    least what the best alive scores now, so that K = 1 is greedy search; or at its length limit."""
    finished = [_Finished(how, limit) for limit in how.limits(padding_mask(src, model.pad_id).sum(1)).tolist()]
    k = how.beam
    rows = list(range(src.size(0)))  # which sentence each group of beams is
    state = model.encode(src)
    token = torch.full((src.size(0), 1), bos, device=src.device)
    prefix = torch.empty(src.size(0), 1, 0, dtype=torch.long, device=src.device)  # of each beam: one at first, then K
    exact = torch.float32 if src.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    total = torch.zeros(src.size(0), 1, device=src.device, dtype=exact)
    step = 0
    while rows:
        step += 1
        beams = total.size(1)
        hidden, state = model.decode(token, state)
        # At most K candidates end, so the best 2 K hold K that do not. They are among the best 2 K of each beam.
        each, tokens = best(model, hidden[:, -1], min(2 * k, model.output.out_features))
        scores = (total.unsqueeze(-1) + each.unflatten(0, (-1, beams))).flatten(1)
        candidates, flat = scores.topk(min(2 * k, scores.size(1)), dim=-1)
        beam, produced = flat // each.size(-1), tokens.view(len(rows), -1).gather(1, flat)
        ends = produced == eos
        for i, j in (ends & candidates.isfinite())[:, :k].nonzero().tolist():
            finished[rows[i]].add(prefix[i, int(beam[i, j])], float(candidates[i, j]), step, True)
        alive = candidates.masked_fill(ends, -torch.inf).topk(min(k, candidates.size(1)), dim=-1)
        beam, chosen, total = beam.gather(1, alive.indices), produced.gather(1, alive.indices), alive.values
        read = prefix.gather(1, beam.unsqueeze(-1).expand(-1, -1, step - 1))
        prefix = torch.cat([read, chosen.unsqueeze(-1)], dim=-1)
        totals = total.tolist()
        keep = [i for i, row in enumerate(rows) if finished[row].is_open(totals[i], prefix[i], step)]
        kept = torch.tensor(keep, dtype=torch.long, device=src.device)
        origin = beam + torch.arange(len(rows), device=src.device).unsqueeze(1) * beams
        source = select(state.source, kept) if len(keep) < len(rows) else state.source
        state = State(select(state.written, origin[kept].flatten()), source)
        token, prefix, total = chosen[kept].view(-1, 1), prefix[kept], total[kept]
        rows = [rows[i] for i in keep]
    return [f.hypotheses[: how.n_best] for f in finished]
