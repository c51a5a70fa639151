"""Proof of effect: before a variant trains, it is built from the same seed as the baseline, and what both do is compared.

A variant whose option is not read trains like the baseline, and its row in a table of results says "as good". An ablation is
therefore refused unless it changes some behaviour. Other parameters or modules alone prove nothing: they may not be used.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente import checkpoint
from entente.config.schema import fill
from entente.data.batches import Batch
from entente.data.module import TranslationData
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import Search, search
from entente.errors import InputError
from entente.models import Seq2Seq
from entente.models.seq2seq import evaluating, parameter_count
from entente.training.settings import RunSettings, TrainerSettings
from entente.training.train import build_trainer, prepared
from entente.training.translator import Optim

SENTENCES = 16  # of validation, of whatever lengths, so that there is padding
BATCHES = 16  # of training, of which the tokens are compared
TOLERANCE = 1e-9  # of the norm; everything is computed in float64, where sums in another order differ by 1e-15
STRUCTURE = ("parameters", "modules")  # described, and no proof
Aspect = tuple[bool, str]  # does it differ, and how


def proof(baseline: Mapping[str, Any], variant: Mapping[str, Any], data: TranslationData) -> dict[str, Any]:
    """Returns {"variant", "differs": [aspect, ...], "equal": [aspect, ...], aspect: how, in words}. `data` is the variant's.
    InputError if no behaviour differs."""
    shared = all(baseline[key] == variant[key] for key in ("data", "overfit", "seed"))
    one, two = Side(baseline, data if shared else prepared(RunSettings.of(baseline))[0]), Side(variant, data)
    name = str(variant["variant"])
    aspects: dict[str, Aspect] = {
        "parameters": _parameters(one.model, two.model, name),
        "modules": _modules(one.model, two.model),
        "evaluation output": _tensors({"logits": one.logits}, {"logits": two.logits}, "logit"),
        "training loss": (not abs(one.loss - two.loss) <= TOLERANCE * abs(one.loss), f"{one.loss:.6f}, then {two.loss:.6f}"),
        "gradients": _tensors(one.gradients, two.gradients, "gradient"),
        "learning rates": _rates(one.rates, two.rates),
        "optimiser step": _tensors({"step": one.steps}, {"step": two.steps}, "step"),
        "precision": _values(one.precision, two.precision),
        "batches read": _batches(one, two),
        "weights evaluated": _values(_evaluated(baseline), _evaluated(variant)),
        "translations": _translations(one, two),
    }
    if not any(differs for aspect, (differs, _) in aspects.items() if aspect not in STRUCTURE):
        behaviours = ", ".join(aspect for aspect in aspects if aspect not in STRUCTURE)
        raise InputError(
            f"ablation {name}: equal to the baseline in {behaviours}, so it takes nothing away; "
            "correct its file, or the code that should read what it sets"
        )
    return {
        "variant": name,
        "differs": [aspect for aspect, (differs, _) in aspects.items() if differs],
        "equal": [aspect for aspect, (differs, _) in aspects.items() if not differs],
        **{aspect: how for aspect, (_, how) in aspects.items()},
    }


class Side:
    """What a configuration does to the first sentences of validation: `logits` (N, V) in evaluation mode, `loss` and
    `gradients` in training mode with the random numbers of the seed. `rates` are the learning rates of all steps."""

    def __init__(self, config: Mapping[str, Any], data: TranslationData) -> None:
        self.config, self.data, self.batch = config, data, data.sample(SENTENCES)
        self.model = checkpoint.build(config["model"], data.vocabulary, config["seed"]).double()
        optim, trainer = fill(Optim, "optim", config["optim"]), config["trainer"]
        self.rates = [optim.lr * optim.factor(step, trainer["max_steps"]) for step in range(trainer["max_steps"])]
        self.steps = _steps(optim, trainer["gradient_clip"])
        self.precision = str(build_trainer(fill(TrainerSettings, "trainer", trainer), None).precision)  # in one spelling
        with evaluating(self.model), torch.no_grad():
            self.logits = _logits(self.model, self.batch)[0]
        self.model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"])
            logits, target = _logits(self.model, self.batch)
        loss = F.cross_entropy(logits, target, label_smoothing=optim.label_smoothing)
        loss.backward()
        self.loss = loss.item()
        self.gradients = {path: torch.zeros_like(p) if p.grad is None else p.grad for path, p in self.model.named_parameters()}


def _logits(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    target = batch.tgt[:, 1:]
    real = target != model.pad_id
    return model.output(model(batch.src, batch.tgt[:, :-1])[real]), target[real]


def _steps(optim: Optim, clip: float) -> Tensor:
    """What the optimiser makes of the same weights and gradients, of norms from 0.01 to 10,000, at a learning rate of 1."""
    weights = nn.Parameter(torch.linspace(-1, 1, 7, dtype=torch.float64))
    optimiser = replace(optim, lr=1.0).adamw([weights])
    after = []
    for power in range(-2, 5):
        direction = torch.cos(power + torch.arange(7, dtype=torch.float64))
        weights.grad = 10.0**power * direction / direction.norm()
        if clip:
            torch.nn.utils.clip_grad_norm_([weights], clip)
        optimiser.step()
        after.append(weights.detach().clone())
    return torch.stack(after)


def _parameters(one: nn.Module, two: nn.Module, name: str) -> Aspect:
    before, after = dict(one.named_parameters()), dict(two.named_parameters())
    both = [path for path in after if path in before and before[path].shape == after[path].shape]
    if unequal := [path for path in both if not torch.equal(before[path], after[path])]:
        raise InputError(
            f"ablation {name}: {unequal[0]} does not start equal to the baseline's; leave the seed as it is"
        )  # law 9
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
    """Compares those that both have, as one vector: a part that is zero but for rounding has no scale of its own."""
    common = [path for path, value in one.items() if path in two and two[path].shape == value.shape]
    if not common:
        return True, f"no {what} in common"
    gaps = {path: float((two[path] - one[path]).norm()) for path in common}
    norm = max(sum(float(side[path].square().sum()) for path in common) ** 0.5 for side in (one, two))
    gap = sum(value**2 for value in gaps.values()) ** 0.5 / (norm or 1.0)
    place = f", most in {max(common, key=lambda path: gaps[path])}" if len(one) > 1 and gap else ""
    return not gap <= TOLERANCE, f"{what}s differ by {gap:.2g} of their norm{place}"


def _rates(one: list[float], two: list[float]) -> Aspect:
    steps = [step for step, (a, b) in enumerate(zip(one, two, strict=False)) if abs(a - b) > TOLERANCE * max(one)]
    if not steps:
        return False, f"the same over {min(len(one), len(two))} steps"
    return True, f"step {steps[0] + 1}: {one[steps[0]]:.3g}, then {two[steps[0]]:.3g}"


def _values(one: object, two: object) -> Aspect:
    return one != two, f"{one}, then {two}" if one != two else str(one)


def _batches(one: Side, two: Side) -> Aspect:
    differs, how = _values(*(_read(side.config, side.data) for side in (one, two)))
    if one.data is two.data:
        return differs, how
    before, after = _tokens(one.data), _tokens(two.data)
    if len(before) == len(after) and all(map(np.array_equal, before, after)):
        return differs, how
    return True, f"{how}; other tokens"


def _read(config: Mapping[str, Any], data: TranslationData) -> str:
    trainer, words = config["trainer"], []
    limit, steps = trainer["limit_batches"], f"{trainer['max_steps']:,} steps, {trainer['accumulate']} to a step"
    for split in ("valid", *data.corpus.tests):
        n = len(data.evaluation_batches(split))
        words.append(f"{split} {min(n, int(limit * n) if isinstance(limit, float) else limit) / n:.3g}")
    return f"{steps}; of each split, the part {', '.join(words)}"


def _tokens(data: TranslationData) -> list[np.ndarray]:
    """Of the first training batches, and of all that is evaluated."""
    train = [side.numpy() for batch in islice(data.train_dataloader(), BATCHES) for side in (batch.src, batch.tgt)]
    return train + [rows.values() for split in ("valid", *data.corpus.tests) for rows in data.ids(split)]


def _evaluated(config: Mapping[str, Any]) -> str:
    """Which weights may become the best ones; in words that are the same where these are."""
    trainer, saved = config["trainer"], config["checkpoint"]
    last, every = trainer["max_steps"], min(trainer["validate_every"], trainer["max_steps"])
    words = f"the best of those after every {every} steps and step {last}"
    if trainer["patience"] and trainer["patience"] < math.ceil(last / every):
        words += f", with a patience of {trainer['patience']}"
    mean = sorted({*range(saved["every"], last, saved["every"]), last})[-saved["average"] :]
    return words + (f", or the mean of {', '.join(map(str, mean))}" if len(mean) > 1 else "")


def _translations(one: Side, two: Side) -> Aspect:
    """How the baseline's weights translate by the settings of each search."""
    hows = [replace(fill(Search, "search", side.config["search"]), n_best=1) for side in (one, two)]  # the one evaluated
    if hows[0] == hows[1]:
        return False, "the same search"
    found = []
    with evaluating(one.model), torch.no_grad():
        for how in hows:
            best = [n_best[0] for n_best in search(one.model, one.batch.src, how, BOS, EOS)]
            found.append(
                [hypothesis if how.beam > 1 else hypothesis._replace(score=0.0) for hypothesis in best]
            )  # greedy search compares none
    changed = sum(a != b for a, b in zip(*found, strict=True))
    return changed > 0, f"{changed} of {len(found[0])} sentences translated otherwise or with another score"


def _some(paths: list[str]) -> str:
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
