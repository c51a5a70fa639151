"""Checks, before a variant is trained, that it computes something else than the baseline.

If the code ignored the setting that a variant changes, the variant would show "no difference". Therefore the settings must
differ and, where only the model, the loss or the data do, both models, built from the same seed, are compared on one batch in
float64. Parameters that differ prove nothing by themselves, since they may be unused.

Shapes: N real target tokens of the batch, V vocabulary.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from entente.ablation.runs import Run
from entente.data.batches import Batch
from entente.errors import InputError
from entente.evaluation import batch_loss
from entente.models.seq2seq import Seq2Seq, evaluating
from entente.settings import RunSettings
from entente.training.train import prepare

SENTENCES = 16  # number of validation sentences to compare on; their lengths differ, so that there is padding
TOLERANCE = 1e-9  # relative to the norm; in float64, the order of summation changes results by about 1e-15
COMPARED = ("model.", "data.", "optim.label_smoothing")  # settings whose effect the batch shows


def check_effect(baseline: RunSettings, variant: RunSettings) -> None:
    """Raises InputError if the variant equals the baseline."""
    first, second = (Run(Path(), settings.stored()).learning for settings in (baseline, variant))
    changed = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    aspects = "all settings that affect learning"
    if changed:
        if not all(key.startswith(COMPARED) for key in changed):
            return
        runs = [(*prepare(settings), settings) for settings in (baseline, variant)]
        batches: list[Batch] = [next(iter(data.train_dataloader())) for data, _, _ in runs]
        if not (torch.equal(batches[0].src, batches[1].src) and torch.equal(batches[0].tgt, batches[1].tgt)):
            return
        behaviours = [_behaviour(translator.model.double(), data.sample(SENTENCES), run) for data, translator, run in runs]
        pairs = zip(*behaviours, strict=True)
        if not all(a.shape == b.shape and (b - a).norm() <= TOLERANCE * a.norm() for a, b in pairs):  # false with NaN
            return
        aspects = "evaluation output, training loss and gradient norm"
    raise InputError(
        f"ablation {variant.variant}: equal to the baseline in {aspects}, so it has no effect; if the experiment already "
        "has these settings, add experiment=ablation_baseline; else fix the ablation's file or the code that ignores it"
    )


def _behaviour(model: Seq2Seq, batch: Batch, settings: RunSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the logits (N, V) in evaluation mode, and the loss and the norm of its gradient in training mode, with dropout
    drawn from the seed."""
    with evaluating(model), torch.no_grad():
        logits = model.output(model(batch.src, batch.tgt[:, :-1]).flatten(0, 1)[batch.real])
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        loss = batch_loss(model, batch, settings.optim.label_smoothing)[0].smoothed
        loss.backward()
    return logits, loss.detach(), get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
