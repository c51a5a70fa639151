"""Evaluation of a model on a split: translations, and the negative log-likelihood of the references. Validation, the
end of a run and the command all call `evaluate`, so the same weights give the same digits in each.

Shapes: B batch, T target length, N real target tokens of a batch, D width of the decoder's output.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from entente.data.batches import Batch, to_device
from entente.data.module import EvaluationSplit
from entente.data.tokenizer import BOS, EOS, PAD, Vocabulary
from entente.decoding.search import Search, search
from entente.decoding.workers import Workers
from entente.errors import Diverged
from entente.evaluation.scores import Evaluation
from entente.fast.loss import Loss, projected_cross_entropy
from entente.models.seq2seq import Seq2Seq, evaluating

Progress = Callable[[int, int], None]  # batches begun, and how many there are


def batch_loss(model: Seq2Seq, batch: Batch, label_smoothing: float = 0.0) -> tuple[Loss, int]:
    """Returns the mean loss over the N real target tokens of a batch, and N. Padding is left out before the projection."""
    target: Tensor = batch.tgt[:, 1:]
    real = target != PAD
    hidden, target = model(batch.src, batch.tgt[:, :-1])[real], target[real]  # (N, D), (N,)
    return projected_cross_entropy(hidden, model.output.weight, target, label_smoothing), len(target)


def evaluate(
    model: Seq2Seq, vocabulary: Vocabulary, split: EvaluationSplit, how: Search, progress: Progress | None = None
) -> Evaluation:
    """Decodes every sentence of a split and scores its references. Raises Diverged where the loss is not finite."""
    device = next(model.parameters()).device

    @torch.inference_mode()  # which is set per thread, and workers are threads
    def decode(batch: Batch) -> tuple[float, int, dict[int, list[int]]]:
        loss, tokens = batch_loss(model, batch)
        if not loss.nll.isfinite():
            raise Diverged(f"the loss of {split.name} is {float(loss.nll)}; give a smaller optim.lr")
        hypotheses = search(model, batch.src, how, BOS, EOS)
        rows = zip(batch.index.tolist(), hypotheses, strict=True)
        return float(loss.nll) * tokens, tokens, {row: n_best[0].tokens for row, n_best in rows}

    with evaluating(model), Workers(decode, model) as workers:
        for number, batch in enumerate(split, start=1):
            workers.add(to_device(batch, device))
            if progress:
                progress(number, len(split))
        losses, counts, found = zip(*workers.results(), strict=True)
    decoded = {row: tokens for batch in found for row, tokens in batch.items()}
    rows = sorted(decoded)  # every row, unless the split is limited to some batches
    return Evaluation(
        sources=[split.sources[row] for row in rows],
        references=[split.references[row] for row in rows],
        hypotheses=[vocabulary.tgt.decode(decoded[row]) for row in rows],
        nll=sum(losses) / sum(counts),
    )
