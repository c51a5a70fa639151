"""Proof of effect: before a variant is trained, it is initialised with the baseline's seed and compared with the baseline.

If the code ignored the setting that a variant changes, the variant would train like the baseline and be reported "as good". An
ablation is therefore refused unless it changes some behaviour. Parameters or modules that differ prove nothing by themselves,
since they may be unused.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente import checkpoint
from entente.data import module, tokenizer
from entente.decoding.search import search
from entente.errors import InputError
from entente.models.seq2seq import evaluating, parameter_count
from entente.training.settings import RunSettings
from entente.training.train import build_trainer, prepare_run

SENTENCES = 16  # number of validation sentences to compare on; their lengths differ, so that there is padding
BATCHES = 16  # training batches whose tokens are compared
TOLERANCE = 1e-9  # relative to the norm; in float64, the order of summation changes results by about 1e-15
STRUCTURE = ("parameters", "modules")  # aspects that are described but prove nothing
Aspect = tuple[bool, str]  # whether the variant and the baseline differ in the aspect, and how


def proof(baseline: Mapping[str, Any], variant: Mapping[str, Any], data: module.TranslationData) -> dict[str, Any]:
    """Returns the content of proof.json: `variant`, the lists of aspects `differs` and `equal`, and a description of
    each aspect under its name. data: the variant's data. Raises InputError if no behaviour differs."""
    before, after = RunSettings.of(baseline), RunSettings.of(variant)
    shared = (before.data, before.overfit, before.seed) == (after.data, after.overfit, after.seed)
    one, two = Behaviour(before, data if shared else prepare_run(before)[0]), Behaviour(after, data)
    read, other_tokens = _compare_words(one.amounts(), two.amounts()), one.data is not two.data and one.tokens() != two.tokens()
    aspects = {
        **_compare_structure(one.model, two.model, after.variant),
        "evaluation output": _compare_tensors({"logits": one.logits}, {"logits": two.logits}, "logit"),
        "training loss": (not abs(one.loss - two.loss) <= TOLERANCE * abs(one.loss), f"{one.loss:.6f}, then {two.loss:.6f}"),
        "gradients": _compare_tensors(one.gradients, two.gradients, "gradient"),
        "learning rates": _compare_rates(one.rates, two.rates),
        "optimiser step": _compare_tensors({"step": one.steps()}, {"step": two.steps()}, "step"),
        "precision": _compare_words(one.precision, two.precision),
        "batches read": (other_tokens or read[0], read[1] + "; other tokens" * other_tokens),
        "weights evaluated": _compare_words(one.candidate_weights(), two.candidate_weights()),
        "translations": _compare_translations(one, two),
    }
    if not any(differs for aspect, (differs, _) in aspects.items() if aspect not in STRUCTURE):
        behaviours = ", ".join(aspect for aspect in aspects if aspect not in STRUCTURE)
        raise InputError(
            f"ablation {after.variant}: equal to the baseline in {behaviours}, so it has no effect; if the experiment already "
            "has these settings, add experiment=ablation_baseline; else fix the ablation's file or the code that ignores it"
        )
    return {
        "variant": after.variant,
        "differs": [aspect for aspect, (differs, _) in aspects.items() if differs],
        "equal": [aspect for aspect, (differs, _) in aspects.items() if not differs],
        **{aspect: how for aspect, (_, how) in aspects.items()},
    }


class Behaviour:
    """The behaviour of a configured model on the first validation sentences: `logits` (N, V) in evaluation mode; `loss` and
    `gradients` in training mode, with random numbers drawn from the configured seed."""

    def __init__(self, settings: RunSettings, data: module.TranslationData) -> None:
        self.settings, self.data, self.batch = settings, data, data.sample(SENTENCES)
        self.model = checkpoint.build(settings.model, data.vocabulary, settings.seed).double()
        with evaluating(self.model), torch.no_grad():
            self.logits = self._logits()
        optim, last = settings.optim, settings.trainer.max_steps
        self.rates = [optim.lr * optim.factor(step, last) for step in range(last)]
        self.precision = str(build_trainer(settings.trainer, None).precision)  # Lightning's own name, whichever alias is set
        self.model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            logits = self._logits()
        target = self.batch.tgt[:, 1:]
        loss = F.cross_entropy(logits, target[target != self.model.pad_id], label_smoothing=optim.label_smoothing)
        loss.backward()
        self.loss = loss.item()
        self.gradients = {path: torch.zeros_like(p) if p.grad is None else p.grad for path, p in self.model.named_parameters()}

    def _logits(self) -> Tensor:
        """Returns the logits of the target tokens that are not padding, (N, V)."""
        real = self.batch.tgt[:, 1:] != self.model.pad_id
        return self.model.output(self.model(self.batch.src, self.batch.tgt[:, :-1])[real])

    def steps(self) -> Tensor:
        """Returns the 40 parameters of a linear layer after each of seven optimiser steps at a learning rate of 1, (7, 40). The
        initial values and the gradients, with norms from 0.01 to 10,000, are the same for every configuration."""
        layer = nn.Linear(7, 5, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(-1, 1, 35).view(5, 7))
            layer.bias.copy_(torch.linspace(-1, 1, 5))
        optimiser = replace(self.settings.optim, lr=1.0).build(layer)
        after = []
        for power in range(-2, 5):
            direction = torch.cos(power + torch.arange(40, dtype=torch.float64))
            direction *= 10.0**power / direction.norm()
            layer.weight.grad, layer.bias.grad = direction[:35].view(5, 7), direction[35:].clone()
            if self.settings.trainer.gradient_clip:
                nn.utils.clip_grad_norm_(layer.parameters(), self.settings.trainer.gradient_clip)
            optimiser.step()
            after.append(torch.cat([p.detach().flatten() for p in layer.parameters()]))
        return torch.stack(after)

    def amounts(self) -> str:
        """Returns a description of how much data is read."""
        trainer, words = self.settings.trainer, []
        for split in ("valid", *self.data.corpus.tests):
            limited = replace(self.data.evaluation(split), limit=trainer.limit_batches)
            words.append(f"{split} {len(limited) / len(limited.batches):.3g}")
        size, devices = trainer.accumulate * trainer.num_nodes, trainer.devices
        per_step = f"{size} x {devices}" if devices == "auto" else str(size * devices)
        return f"{trainer.max_steps:,} steps, batches per step: {per_step}, share of each split: {', '.join(words)}"

    def tokens(self) -> list[list[Any]]:
        """Returns the token ids of the first training batches and of all evaluated splits."""
        train = [ids.tolist() for batch in islice(self.data.train_dataloader(), BATCHES) for ids in (batch.src, batch.tgt)]
        return train + [rows.values.tolist() for split in ("valid", *self.data.corpus.tests) for rows in self.data.ids(split)]

    def candidate_weights(self) -> str:
        """Returns a description of the candidates for the best weights; equal candidates have equal descriptions."""
        trainer, saved = self.settings.trainer, self.settings.checkpoint
        last, every = trainer.max_steps, min(trainer.validate_every, trainer.max_steps)
        words = f"the best of the weights after every {every} steps and after step {last}"
        if trainer.patience and trainer.patience < math.ceil(last / every):
            words += f", with a patience of {trainer.patience}"
        mean = saved.steps_of_mean(last)
        return words + (f", or the mean of {', '.join(map(str, mean))}" if len(mean) > 1 else "")


def _compare_structure(one: nn.Module, two: nn.Module, name: str) -> dict[str, Aspect]:
    """Compares two models: their parameters by name and shape, and their modules by name and arguments."""
    before, after = dict(one.named_parameters()), dict(two.named_parameters())
    both = [path for path in after if path in before and before[path].shape == after[path].shape]
    unequal = [path for path in both if not torch.equal(before[path], after[path])]
    if other := [path for path in unequal if after[path].any()]:  # parameters in both models must start equal, or at zero
        raise InputError(f"ablation {name}: {other[0]} does not start with the baseline's values; leave the seed as it is")
    equal = f"{len(both) - len(unequal)} matrices and vectors start equal" + f", {len(unequal)} at zero" * bool(unequal)
    counts = f"{parameter_count(one):,}, then {parameter_count(two):,}; {equal}"
    sizes = ({path: str([*parameter.shape]) for path, parameter in side.items()} for side in (before, after))
    kinds = ({path: f"{type(m).__name__}({m.extra_repr()})" for path, m in x.named_modules() if path} for x in (one, two))
    differs, how = _compare_named(*sizes)
    return {"parameters": (differs, f"{counts}; {how}"), "modules": _compare_named(*kinds)}


def _compare_named(one: Mapping[str, str], two: Mapping[str, str]) -> Aspect:
    """Describes which keys (paths in the model) only one of the mappings has, and which have different values."""
    lost = [f"without {path}" for path in one if path not in two]
    new = [f"with {path}" for path in two if path not in one]
    changed = [f"{path}: {one[path]}, then {two[path]}" for path in one if path in two and one[path] != two[path]]
    words = [found[0] + (f" and {len(found) - 1} more" if len(found) > 1 else "") for found in (lost, new, changed) if found]
    return bool(words), "; ".join(words) or "the same"


def _compare_tensors(one: Mapping[str, Tensor], two: Mapping[str, Tensor], what: str) -> Aspect:
    """Compares the tensors of both sides, concatenated into one vector per side, because a tensor of only rounding errors would
    always differ if compared alone. A tensor missing on one side counts as 0. Tensors of unequal shape are left out."""
    paths = [path for path in {**one, **two} if not (path in one and path in two and one[path].shape != two[path].shape)]
    if not paths:
        return True, f"no {what} in common"
    nothing = torch.zeros(())
    gaps = {path: float((two.get(path, nothing) - one.get(path, nothing)).norm()) for path in paths}
    norm = max(sum(float(side[path].square().sum()) for path in paths if path in side) ** 0.5 for side in (one, two))
    gap = sum(value**2 for value in gaps.values()) ** 0.5 / (norm or 1.0)
    place = f", most in {max(paths, key=lambda path: gaps[path])}" if len(one) > 1 and gap else ""
    return not gap <= TOLERANCE, f"{what}s differ by {gap:.2g} of their norm{place}"


def _compare_rates(one: list[float], two: list[float]) -> Aspect:
    for step, (a, b) in enumerate(zip(one, two, strict=False), start=1):
        if abs(a - b) > TOLERANCE * max(one):
            return True, f"step {step}: {a:.3g}, then {b:.3g}"
    return False, f"the same over {min(len(one), len(two))} steps"


def _compare_words(one: str, two: str) -> Aspect:
    return one != two, f"{one}, then {two}" if one != two else one


def _compare_translations(one: Behaviour, two: Behaviour) -> Aspect:
    """Compares how the baseline's model translates with its own search settings and with the variant's."""
    hows = [replace(side.settings.search, n_best=1) for side in (one, two)]  # only the best hypothesis is evaluated
    if hows[0] == hows[1]:
        return False, "the same search"
    found = []
    with evaluating(one.model):
        for how in hows:
            best = [n_best[0] for n_best in search(one.model, one.batch.src, how, tokenizer.BOS, tokenizer.EOS)]
            # Greedy search does not rank by score, so a different score alone is not an effect.
            found.append([hypothesis if how.beam > 1 else hypothesis._replace(score=0.0) for hypothesis in best])
    changed = sum(a != b for a, b in zip(*found, strict=True))
    return changed > 0, f"{changed} of {len(found[0])} sentences have a different translation or score"
