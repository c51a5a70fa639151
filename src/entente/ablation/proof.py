"""Proof of effect: before a variant trains, baseline and variant are built from one seed and compared on one batch.

A variant whose option nobody reads trains like the baseline, and its row in a table of results says "as good". So whatever an
ablation can change is looked at first, and one that changes none of it is refused.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente import checkpoint
from entente.data.batches import Batch
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.models import Seq2Seq
from entente.models.seq2seq import evaluating, parameter_count
from entente.schema import fill, flat
from entente.translator import Optim

SENTENCES = 16  # of validation, of whatever lengths, so that there is padding
TOLERANCE = 1e-6  # of the largest value: below it, sums in another order
APART = ("name", "variant", "output_dir", "resume", "views", "also_evaluate", "model")  # no effect, or compared in effect
RATES = ("optim.lr", "optim.warmup", "optim.schedule", "optim.decay_from")
IN_EFFECT = (*RATES, "optim.label_smoothing")  # compared as rates and loss
Aspect = tuple[bool, str]  # does it differ, and how


def proof(baseline: Mapping[str, Any], variant: Mapping[str, Any], data: TranslationData) -> dict[str, Any]:
    """{"variant", "differs": [aspect, ...], "equal": [aspect, ...], aspect: how, in words}. InputError if nothing differs."""
    one, two = Side(baseline, data), Side(variant, data)
    aspects: dict[str, Aspect] = {
        "parameters": _parameters(one.model, two.model),
        "modules": _modules(one.model, two.model),
        "evaluation output": _tensors({"logits": one.logits}, {"logits": two.logits}, "logit"),
        "training loss": (abs(one.loss - two.loss) > TOLERANCE * abs(one.loss), f"{one.loss:.6f}, then {two.loss:.6f}"),
        "gradients": _tensors(one.gradients, two.gradients, "gradient"),
        "learning rates": _rates(one.rates, two.rates),
        "other settings": _settings(baseline, variant),
    }
    name = str(variant["variant"])
    if not any(differs for differs, _ in aspects.values()):
        raise InputError(
            f"ablation {name}: equal to the baseline in {', '.join(aspects)}, so it takes nothing away; "
            "correct its file, or the code that should read what it sets"
        )
    return {
        "variant": name,
        "differs": [aspect for aspect, (differs, _) in aspects.items() if differs],
        "equal": [aspect for aspect, (differs, _) in aspects.items() if not differs],
        **{aspect: how for aspect, (_, how) in aspects.items()},
    }


class Side:
    """A configuration's model as its seed makes it, and what it does to the batch: `logits` (N, V) in evaluation mode, `loss`
    and `gradients` in training mode with the random numbers of the seed, `rates` of all steps."""

    def __init__(self, config: Mapping[str, Any], data: TranslationData) -> None:
        self.model = checkpoint.build(config["model"], data.vocabulary, config["seed"])
        optim = fill(Optim, "optim", config["optim"])
        budget = config["trainer"]["max_steps"]
        self.rates = [optim.lr * optim.factor(step, budget) for step in range(budget)]
        batch = data.sample(SENTENCES)
        with evaluating(self.model), torch.no_grad():
            self.logits = _logits(self.model, batch)[0]
        self.model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"])
            logits, target = _logits(self.model, batch)
        loss = F.cross_entropy(logits, target, label_smoothing=optim.label_smoothing)
        loss.backward()
        self.loss = loss.item()
        self.gradients = {path: torch.zeros_like(p) if p.grad is None else p.grad for path, p in self.model.named_parameters()}


def _logits(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    target = batch.tgt[:, 1:]
    real = target != model.pad_id
    return model.output(model(batch.src, batch.tgt[:, :-1])[real]), target[real]


def _parameters(one: nn.Module, two: nn.Module) -> Aspect:
    before, after = dict(one.named_parameters()), dict(two.named_parameters())
    both = [path for path in after if path in before and before[path].shape == after[path].shape]
    if unequal := [path for path in both if not torch.equal(before[path], after[path])]:
        raise RuntimeError(f"{unequal[0]} starts from another value than in the baseline")  # law 9
    lost = [path for path in before if path not in after]
    new = [path for path in after if path not in before]
    other = [path for path in after if path in before and path not in both]
    counts = f"{parameter_count(one):,}, then {parameter_count(two):,}; {len(both)} matrices and vectors start equal"
    words = [f"{word} {_some(paths)}" for word, paths in (("without", lost), ("with", new), ("other sizes:", other)) if paths]
    return bool(words), "; ".join([counts, *words])


def _modules(one: nn.Module, two: nn.Module) -> Aspect:
    before, after = (
        {path: f"{type(m).__name__}({m.extra_repr()})" for path, m in model.named_modules() if path} for model in (one, two)
    )
    changed = [path for path in before.keys() & after.keys() if before[path] != after[path]]
    words = [f"without {_some(lost)}" for lost in [[path for path in before if path not in after]] if lost]
    words += [f"with {_some(new)}" for new in [[path for path in after if path not in before]] if new]
    words += [f"{path}: {before[path]}, then {after[path]}" for path in sorted(changed)[:1]]
    words += [f"and {len(changed) - 1} more"] * (len(changed) > 1)
    return bool(words), "; ".join(words) or f"the same {len(before)}"


def _tensors(one: Mapping[str, Tensor], two: Mapping[str, Tensor], what: str) -> Aspect:
    """Of those that both have; a difference of less than TOLERANCE of the largest value is none."""
    gaps = {
        path: float((two[path] - value).abs().max() / max(float(value.abs().max()), float(two[path].abs().max()), 1e-30))
        for path, value in one.items()
        if path in two and two[path].shape == value.shape
    }
    if not gaps:
        return True, f"no {what} in common"
    worst = max(gaps, key=lambda path: gaps[path])
    place = f" ({worst})" if len(one) > 1 else ""
    return gaps[worst] > TOLERANCE, f"largest difference {gaps[worst]:.2g} of the largest {what}{place}"


def _rates(one: list[float], two: list[float]) -> Aspect:
    steps = [step for step, (a, b) in enumerate(zip(one, two, strict=False)) if a != b]
    if not steps:
        return False, f"the same over {len(one)} steps"
    return True, f"step {steps[0] + 1}: {one[steps[0]]:.3g}, then {two[steps[0]]:.3g}"


def _settings(one: Mapping[str, Any], two: Mapping[str, Any]) -> Aspect:
    before, after = dict(flat(one)), dict(flat(two))
    keys = [key for key in {**before, **after} if key.partition(".")[0] not in APART and key not in IN_EFFECT]
    leaves = [key for key in keys if not isinstance(before.get(key), Mapping) and not isinstance(after.get(key), Mapping)]
    other = [key for key in leaves if before.get(key) != after.get(key)]
    return bool(other), f"{', '.join(other)} differ" if other else "the same"


def _some(paths: list[str]) -> str:
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
