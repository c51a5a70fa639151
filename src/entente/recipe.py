"""Settings that follow from the number of steps and, for a text of one's own, from its size.

Trials on validation led to the latter (outputs/published/own_text.md). configs/recipe includes them as `_corpus`, below its own
settings, an experiment, an ablation and the user's settings, each of which may change them.
"""

import math
from typing import Any

from entente.settings import RunSettings

RECIPES = {f"{data}_{model}" for data in ("files", "multi30k", "opus_books") for model in ("transformer", "birnn")}
USUAL = 9_000, 10.0, 100  # pairs, words per sentence and characters of the text that --help and --cfg assume
DROPOUT = {8: 0.1, 16: 0.2, 40: 0.3, math.inf: 0.4}  # by the number of epochs up to which it is used


def for_corpus(pairs: int, words: float, characters: int, epochs: float | None = None) -> dict[str, Any]:
    """Returns the settings for a training text. pairs: of an epoch, each as often as its weight says. words: the mean number of
    words per sentence, on the longer side. characters: how many different ones it has, each of which becomes a piece. epochs:
    those that the user wants, if any."""
    total = pairs * words
    vocabulary = max(4000 if pairs < 10_000 else 8000, 1000 * round(characters / 500))
    epochs = epochs or min(80, 15 * (360_000 / total) ** 0.6)  # ten times the words: two and a half times the steps
    return {
        "data": {"tokenizer": {"vocab_size": vocabulary}, "batch": {"max_tokens": 1024 if total < 200_000 else 2048}},
        "model": {"dropout": next(dropout for limit, dropout in DROPOUT.items() if epochs <= limit)},
        "trainer": {"max_steps": None, "epochs": float(f"{epochs:.2g}")},
    }


def with_steps(settings: RunSettings, steps: int) -> RunSettings:
    """Returns the settings with this number of steps, and with every share of the run replaced by a number of steps."""
    values = settings.model_dump()
    values["trainer"]["max_steps"] = steps
    for section, name in (("optim", "warmup"), ("optim", "decay_from"), ("trainer", "validate_every"), ("checkpoint", "every")):
        if isinstance(share := values[section][name], float):
            values[section][name] = max(1, round(share * steps))
    return RunSettings.model_validate(values)
