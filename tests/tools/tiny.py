"""A parallel corpus made of six nouns and five verbs, small models that learn it in seconds, and composed configurations."""

import random
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from entente.cli import compose
from entente.settings import RunSettings
from entente.validation import validate

WORDS = {"chat": "cat", "chien": "dog", "oiseau": "bird", "cheval": "horse", "garçon": "boy", "ami": "friend"}
VERBS = {"voit": "sees", "suit": "follows", "entend": "hears", "cherche": "seeks", "aime": "likes"}
SIDES = (("src", "fr"), ("tgt", "en"))
QUIET = ["views.attention=false", "views.heads=0", "views.translations=0", "views.diagnosis=0"]
SMALL = {
    "transformer": ["model.d_model=32", "model.n_heads=2", "model.n_layers=1", "model.d_ff=48", "model.dropout=0.1"],
    "birnn": ["model.d_embedding=24", "model.d_hidden=32", "model.d_attention=16", "model.dropout=0.1"],
}


def write_corpus(folder: Path) -> list[str]:
    """Writes the parallel files of the corpus, and returns the overrides that select them, and one thread of the CPU."""
    generator = random.Random(7)
    for split, size in (("train", 211), ("valid", 23), ("test", 29)):
        picks = [(generator.choice([*WORDS]), generator.choice([*VERBS]), generator.choice([*WORDS])) for _ in range(size)]
        fr = [f"Le {a} {v} le {b}." for a, v, b in picks]
        en = [f"The {WORDS[a]} {VERBS[v]} the {WORDS[b]}." for a, v, b in picks]
        (folder / f"{split}.fr").write_text("\n".join(fr) + "\n", encoding="utf-8")
        (folder / f"{split}.en").write_text("\n".join(en) + "\n", encoding="utf-8")
    files = [f"data.{split}.{side}={split}.{lang}" for split in ("train", "valid", "test") for side, lang in SIDES]
    files += [f"data.root={folder}", "data.tokenizer.vocab_size=340", "data.batch.max_tokens=500"]
    return ["data=files", "recipe=none", *files, "trainer.accelerator=cpu", "trainer.threads=1"]


@cache
def composed(command: str, *overrides: str) -> dict[str, Any]:
    return compose(command, overrides).values


def configuration(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the configuration of a command, such as train, with overrides."""
    return deepcopy(composed(command, *overrides))


def run_settings(overrides: Sequence[str], **changes: Any) -> RunSettings:
    """Returns the settings of a run with overrides. changes: of settings at the top level, such as its name."""
    return validate(RunSettings, configuration("train", overrides) | changes)


def precise_settings(model: str, folder: Path, *overrides: str) -> RunSettings:
    """Returns the settings of a small run on the corpus, in float64, that logs each step."""
    steps = ["trainer.validate_every=101", "trainer.log_every=1", "data.batch.max_tokens=600", "optim.label_smoothing=0.2"]
    run = [f"output_dir={folder}", f"model={model}", *SMALL[model], "trainer.precision=64-true"]
    return run_settings([*write_corpus(folder), *run, *steps, *overrides])
