"""Checks, before a variant is trained, that it computes something else than the baseline.

If the code ignored the setting that a variant changes, the variant would show "no difference". Therefore the settings must
differ and, where only the model, the loss or the data do, both models, built from the same seed, are compared on one batch in
float64. Parameters that differ prove nothing by themselves, since they may be unused.

Shapes: N real target tokens of the batch, V vocabulary.
"""

from collections.abc import Mapping
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
        (base_data, base_translator), (data, translator) = prepare(baseline), prepare(variant)
        batches: list[Batch] = [next(iter(each.train_dataloader())) for each in (base_data, data)]
        if not (torch.equal(batches[0].src, batches[1].src) and torch.equal(batches[0].tgt, batches[1].tgt)):
            return
        models = base_translator.model.double(), translator.model.double()
        samples = base_data.sample(SENTENCES), data.sample(SENTENCES)
        behaviours = [_behaviour(*run) for run in zip(models, samples, (baseline, variant), strict=True)]
        if not all(_equal(*pair) for pair in zip(*behaviours, strict=True)):
            return
        aspects = "evaluation output and gradients"
    raise InputError(
        f"ablation {variant.variant}: equal to the baseline in {aspects}, so it has no effect; if the experiment already "
        "has these settings, add experiment=ablation_baseline; else fix the ablation's file or the code that ignores it"
    )


def _behaviour(model: Seq2Seq, batch: Batch, settings: RunSettings) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the logits (N, V) in evaluation mode, and the gradients in training mode, with dropout drawn from the seed."""
    with evaluating(model), torch.no_grad():
        logits = model.output(model(batch.src, batch.tgt[:, :-1]).flatten(0, 1)[batch.real])
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        batch_loss(model, batch, settings.optim.label_smoothing)[0].smoothed.backward()
    return {"logits": logits}, {path: p.grad for path, p in model.named_parameters() if p.grad is not None}


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Compares tensors by name as if each side were one vector, because a tensor of only rounding errors would always differ if
    compared alone. A tensor that one side lacks counts as 0. Tensors of unequal shape are left out."""
    zero = torch.zeros(())
    pairs = [(first.get(path, zero), second.get(path, zero)) for path in {**first, **second}]
    pairs = [(a, b) for a, b in pairs if a.shape == b.shape or a is zero or b is zero]
    gap, *norms = map(get_total_norm, ([b - a for a, b in pairs], *zip(*pairs, strict=True)))
    return bool(norms and gap <= TOLERANCE * max(norms))  # False for NaN, which is no evidence of equality
