"""Implements beam search for any model. Greedy search is beam search of width 1, and so is sampling, which draws each piece
instead of taking the likeliest. The translation of a sentence depends on that sentence only: finished sentences leave the batch
without affecting the others.

Shapes: B sentences, K beam, S source length, T tokens so far, N rows, D width of the decoder's output, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from entente.errors import Diverged
from entente.models.seq2seq import Seq2Seq, State, padding_mask, select
from entente.settings import SamplingSettings, SearchSettings

SEARCH_ROWS = 256  # maximum number of rows in a block of `best` on a CPU
CUT = "cut at the length limit; see search.length_factor and search.length_offset"  # what messages say of such translations
GROUP_SIZE = 64  # columns of logits per group in `largest`


class Hypothesis(NamedTuple):
    tokens: list[int]  # without start and end symbols
    score: float  # log-probability divided by the length penalty
    ended: bool  # whether it reached the end symbol within its length limit

    @property
    def length(self) -> int:
        """The number of pieces, counting the end symbol if it was reached."""
        return len(self.tokens) + self.ended


def draw(settings: SamplingSettings, log_p: Tensor, generators: Sequence[np.random.Generator]) -> tuple[Tensor, Tensor]:
    """Draws a piece for each row of log_p (N, V), with a generator of its own. Returns the log-probabilities, whatever the
    temperature, and the pieces, both (N, 1). The piece with the largest sum of its scaled log-probability and Gumbel noise is
    drawn (Gumbel 1954), so rounding of log_p, which depends on the batch, matters only where two values nearly tie."""
    log_p = log_p.cpu().double()
    scores, size = log_p / settings.temperature, log_p.size(1)
    noise = torch.from_numpy(np.stack([generator.standard_exponential(size) for generator in generators]))
    if settings.top_k and settings.top_k < size:
        scores, kept = scores.topk(settings.top_k)
        pieces = kept.gather(1, (scores - noise.gather(1, kept).log()).argmax(-1, keepdim=True))
    else:
        pieces = (scores - noise.log()).argmax(-1, keepdim=True)
    return log_p.gather(1, pieces), pieces


def search_name(settings: SearchSettings) -> str:
    return f"beam {settings.beam}" if settings.beam > 1 else "greedy search"


def translation_search(settings: SearchSettings) -> SearchSettings:
    """Returns the search with which text is translated unless the user sets another: the run's own, but with a beam of 5 if
    that is greedy, since runs search greedily only to validate quickly."""
    return settings if settings.beam > 1 else settings.model_copy(update={"beam": 5})


def greedy(settings: SearchSettings) -> SearchSettings:
    """Returns the same search with a beam of 1, whose only result is one translation."""
    return settings.model_copy(update={"beam": 1, "n_best": 1})


def length_limit(settings: SearchSettings, length: int) -> int:
    """Returns the length limit of the translation of a source of `length` tokens, both counting the end symbol."""
    return int(length * settings.length_factor) + settings.length_offset


def length_penalty(settings: SearchSettings, length: int) -> float:
    """Returns the divisor of the log-probability of a hypothesis of `length` tokens, counting the end symbol (Wu et al. 2016,
    equation 14)."""
    return float(((5 + length) / 6) ** settings.length_penalty)


def log_probabilities(model: Seq2Seq, hidden: Tensor) -> Tensor:
    """Returns log-probabilities (N, V) for hidden (N, D); the padding symbol has probability 0. The product is in the dtype of
    the weights even under autocast, since bfloat16 could not distinguish the best candidates."""
    with torch.autocast(hidden.device.type, enabled=False):
        logits = model.output(hidden.to(model.output.weight.dtype))
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits[:, model.pad_id] = -torch.inf
    return logits.log_softmax(-1)


def best(model: Seq2Seq, hidden: Tensor, k: int, forced: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the k largest log-probabilities of each row of hidden (N, D), largest first, and their tokens, both (N, k). On a
    CPU, the logits of a block of rows remain in the cache until they are compared. forced: the only possible token of each row,
    or padding if all are possible (N,)."""
    if forced is not None:
        pieces = torch.arange(model.output.out_features, device=hidden.device)
        impossible = (forced != model.pad_id).unsqueeze(1) & (forced.unsqueeze(1) != pieces)
        return log_probabilities(model, hidden).masked_fill(impossible, -torch.inf).topk(k)
    parts = hidden.split(SEARCH_ROWS) if hidden.device.type == "cpu" else (hidden,)
    values, tokens = zip(*(largest(log_probabilities(model, part), k) for part in parts), strict=True)
    return torch.cat(values), torch.cat(tokens)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns `values.topk(k)` for values (N, V), but searches only the k groups of columns with the largest maxima, since no
    other group can contain one of the k largest values."""
    n, rest = divmod(values.size(1), GROUP_SIZE)
    if n < 2 * k:
        return values.topk(k)
    maxima = values[:, : n * GROUP_SIZE].unflatten(1, (n, GROUP_SIZE)).amax(-1)
    if rest:
        maxima = torch.cat([maxima, values[:, -rest:].amax(-1, keepdim=True)], dim=1)
    groups = maxima.topk(k).indices  # (N, k)
    columns = (groups.unsqueeze(-1) * GROUP_SIZE + torch.arange(GROUP_SIZE, device=values.device)).flatten(1)
    beyond = columns >= values.size(1)  # the last group may be incomplete
    top, places = values.gather(1, columns.masked_fill(beyond, 0)).masked_fill(beyond, -torch.inf).topk(k)
    return top, columns.gather(1, places)


@dataclass
class _Finished:
    """The K best finished hypotheses of one sentence, best first; those that were cut come after all that ended."""

    settings: SearchSettings
    limit: int  # maximum number of tokens of a hypothesis
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, tokens: Tensor, total: float, step: int, ended: bool) -> None:
        self.hypotheses.append(Hypothesis(tokens.tolist(), total / length_penalty(self.settings, step), ended))
        # A stable sort: the earlier of two equal hypotheses stays first.
        self.hypotheses.sort(key=lambda hypothesis: (not hypothesis.ended, -hypothesis.score))
        del self.hypotheses[self.settings.beam :]

    def beats(self, n: int, bound: float) -> bool:
        return len(self.hypotheses) >= n and self.hypotheses[n - 1].score >= bound

    def is_open(self, totals: list[float], prefix: Tensor, step: int) -> bool:
        """Returns whether to extend the beams `prefix` (K, T). At the limit, adds them to `hypotheses` and returns False."""
        if step >= self.limit:
            for tokens, total in zip(prefix, totals, strict=True):
                if total > -torch.inf:
                    self.add(tokens, total, step, False)
            return False
        # Totals never rise, so no beam can end with a score above `bound`, the best total under the most favourable penalty.
        now = totals[0] / length_penalty(self.settings, step)
        bound = max(now, totals[0] / length_penalty(self.settings, self.limit))
        return not self.beats(self.settings.n_best, bound) and not self.beats(self.settings.beam, now)


@torch.inference_mode()
def search(
    model: Seq2Seq,
    src: Tensor,
    settings: SearchSettings,
    bos: int,
    eos: int,
    forced: Tensor | None = None,
    sampling: SamplingSettings | None = None,
    numbers: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Returns the n best hypotheses of each sentence of src (B, S), best first. The model should be in evaluation mode. forced:
    the first tokens of each translation (B, P), padded on the right; at least `length_offset` more may follow. sampling: how to
    draw pieces instead, with a beam of 1 and nothing forced; what is drawn is a function of its seed and of the sentence's
    number in `numbers`.

    Each step extends every beam by every token. The K best candidates that have not ended become the new beams. A candidate
    that has ended becomes a finished hypothesis if it is among the K best of all. A sentence is done when it reaches its length
    limit, when no live beam can beat its n best, or when K finished hypotheses score at least as high as the best live beam.

    The model and the choice of candidates run on the device of src, everything else on the CPU, so that a GPU does not wait for
    each candidate. Raises Diverged if a log-probability is NaN."""
    limits = [length_limit(settings, length) for length in padding_mask(src, model.pad_id).sum(1).tolist()]
    beginnings = src.new_empty(src.size(0), 0) if forced is None else forced.to(src.device)
    lengths = padding_mask(beginnings, model.pad_id).sum(1).tolist()
    limits = [max(limit, n + settings.length_offset) if n else limit for limit, n in zip(limits, lengths, strict=True)]
    finished = [_Finished(settings, limit) for limit in limits]
    generators = [np.random.Generator(np.random.Philox(key=[sampling.seed, number])) for number in numbers] if sampling else []
    k = settings.beam
    rows = list(range(src.size(0)))  # indices of the sentences that are not done
    state = model.encode(src)
    token = torch.full((src.size(0), 1), bos, device=src.device)
    prefix = torch.empty(src.size(0), 1, 0, dtype=torch.long)  # (B, beams, T): 1 beam at first, then K
    exact = torch.float32 if src.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    total = torch.zeros(src.size(0), 1, device=src.device, dtype=exact)
    step = 0
    while rows:
        step += 1
        beams = total.size(1)
        hidden, state = model.decode(token, state)
        if sampling:
            drawn = draw(sampling, log_probabilities(model, hidden[:, -1]), [generators[row] for row in rows])
            each, tokens = drawn[0].to(total), drawn[1].to(src.device)
        else:
            # At most one candidate per beam ends, so the best 2 K include K that do not. All are among the best of their beams.
            only = beginnings[rows, step - 1].repeat_interleave(beams) if step <= beginnings.size(1) else None
            each, tokens = best(model, hidden[:, -1], min(2 * k, model.output.out_features), only)
        scores = (total.unsqueeze(-1) + each.unflatten(0, (-1, beams))).flatten(1)
        candidates, flat = scores.topk(min(2 * k, scores.size(1)), dim=-1)
        produced = tokens.view(len(rows), -1).gather(1, flat).cpu()
        candidates, beam = candidates.cpu(), flat.cpu() // each.size(-1)
        if candidates.isnan().any():  # a single NaN or +inf logit makes its whole row NaN
            raise Diverged("the model's log-probabilities are NaN; undo what changed it, or train it with a smaller optim.lr")
        ends = produced == eos
        for i, j in (ends & candidates.isfinite())[:, :k].nonzero().tolist():
            finished[rows[i]].add(prefix[i, int(beam[i, j])], float(candidates[i, j]), step, True)
        alive = candidates.masked_fill(ends, -torch.inf).topk(min(k, candidates.size(1)), dim=-1)
        beam, added, total = beam.gather(1, alive.indices), produced.gather(1, alive.indices), alive.values
        read = prefix.gather(1, beam.unsqueeze(-1).expand(-1, -1, step - 1))
        prefix = torch.cat([read, added.unsqueeze(-1)], dim=-1)
        totals = total.tolist()
        open_rows = [i for i, row in enumerate(rows) if finished[row].is_open(totals[i], prefix[i], step)]
        index = torch.tensor(open_rows, dtype=torch.long)
        origin = beam + torch.arange(len(rows)).unsqueeze(1) * beams
        source = select(state.source, index.to(src.device)) if len(open_rows) < len(rows) else state.source
        state = State(select(state.written, origin[index].flatten().to(src.device)), source)
        token, prefix, total = added[index].view(-1, 1).to(src.device), prefix[index], total[index].to(src.device)
        rows = [rows[i] for i in open_rows]
    return [f.hypotheses[: settings.n_best] for f in finished]
