"""Train and evaluate one run. Its directory, outputs/NAME, holds the configuration, TensorBoard events, checkpoints,
translations and scores.

  entente train model=birnn trainer.max_steps=2000
  entente train ablation=no_residual seed=2
  entente train data=files data.train=pairs.tsv data.valid=valid.tsv
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from entente import checkpoint
from entente.ablation.effect import check_effect
from entente.cli import Composition, check, compose, compose_checked, key_of
from entente.commands.ablations import baseline_of, changes_of
from entente.console import log
from entente.data.corpora import read_corpus
from entente.data.text import count_words
from entente.data.tokenizer import texts
from entente.distributed import share
from entente.errors import InputError
from entente.files import read_yaml
from entente.recipe import RECIPES, for_corpus, with_steps
from entente.settings import RunSettings
from entente.trained import TrainedModel, load
from entente.training.train import train as train_run
from entente.training.trainer import launched
from entente.validation import flat, to_text, validate

# Settings of `trainer` that, like output_dir, may be changed with resume=DIRECTORY, for example on another machine.
OF_THE_MACHINE = ("threads", "accelerator", "devices", "num_nodes", "strategy", "accumulate")
FREE = ("model.dropout", "model.attention_dropout")  # settings of the model that may differ from those of `init`
SAMPLE = 10_000  # maximum number of pairs whose words are counted


def main(settings: RunSettings, composition: Composition) -> Path:
    settings = resumed_settings(settings, composition)
    with launched(settings.trainer):
        return train_run(settings if settings.resume not in (None, "auto") else completed(settings, composition))


def completed(settings: RunSettings, composition: Composition) -> RunSettings:
    """Returns the settings with those that follow from the corpus and from `init`. Checks that an ablation has an effect."""
    if composition.choices.get("recipe") in RECIPES:
        settings, composition = for_this_corpus(settings, composition)
    ablation = composition.choices.get("ablation", "baseline")
    baseline = baseline_of(composition) if ablation != "baseline" else None
    if settings.init:
        fixed = [*map(key_of, composition.overrides), *changes_of(ablation, composition.config_dir)]
        model = composition.choices["model"]
        settings = with_ancestor(settings, model, dict.fromkeys(fixed))
        baseline = baseline and with_ancestor(baseline, model, ())
    if baseline:
        # Without a number of steps, it would be counted or measured.
        compared = [run if run.trainer.max_steps else with_steps(run, 1000) for run in (baseline, settings)]
        share(lambda: check_effect(*compared))
    return settings


def with_ancestor(settings: RunSettings, model: str, fixed: Iterable[str]) -> RunSettings:
    """Returns the settings with the model and tokenizer of the run's ancestor, `init`. model: the option of the config group
    `model`. fixed: the keys that the user or an ablation has set. Raises InputError for those that contradict the ancestor."""
    ancestor = checkpoint.load(str(settings.init)).settings.stored()
    values = settings.stored()
    requested = dict(flat(values))
    dropouts = {key.partition(".")[2]: requested[key] for key in FREE if key in requested and key in dict(flat(ancestor))}
    values["model"] = {**ancestor["model"], **dropouts}
    values["data"]["tokenizer"] = ancestor["data"]["tokenizer"]
    adopted = dict(flat(values))
    if model != (name := ancestor["model"]["name"]):
        raise InputError(f"model={model}: the model of init={settings.init} is a {name}; give model={name}")
    if problems := [
        f"{key}={to_text(requested[key])}: the model and the tokenizer of init={settings.init} have "
        f"{to_text(adopted.get(key))}; leave {key} out"
        for key in fixed
        if key.startswith(("model.", "data.tokenizer."))
        if requested.get(key) != adopted.get(key)
    ]:
        raise InputError(*problems)
    return validate(RunSettings, {**values, "resume": settings.resume}, where=f"init={settings.init}: ")


def for_this_corpus(settings: RunSettings, composition: Composition) -> tuple[RunSettings, Composition]:
    """Reads the corpus, and composes the configuration again, with the settings that follow from its size."""
    corpus = read_corpus(settings.data, Path(settings.output_dir) / "cache")
    rows = range(0, len(corpus.train), -(-len(corpus.train) // SAMPLE))  # evenly, since many texts are sorted by length
    weights = np.ones(len(corpus.train)) if corpus.weights is None else corpus.weights
    src, tgt = (chain.from_iterable(texts(corpus.train.select(rows), side)) for side in ("src", "tgt"))
    sides = [*map(corpus.without_tag, src)], [*tgt]
    words = max(float(np.average([*map(count_words, lines)], weights=weights[rows])) for lines in sides)
    characters = len({character for lines in sides for line in lines for character in line})
    epochs = settings.trainer.epochs if "trainer.epochs" in map(key_of, composition.overrides) else None
    recipe = for_corpus(pairs := int(weights.sum()) - corpus.varied, words, characters, epochs)
    if settings.overfit:  # an epoch is one batch
        recipe["trainer"] = {}
    composition = compose("train", composition.overrides, composition.config_dir, recipe)
    settings = validate(RunSettings, composition.values)
    if not settings.init:  # which has its own pieces
        pieces, tokens = settings.data.tokenizer.vocab_size, settings.data.batch.max_tokens
        values = f"{pieces:,} pieces, dropout {settings.model.dropout}, batches of {tokens:,} tokens"
        log.info("%s training pairs: %s (recipe=%s)", f"{pairs:,}", values, composition.choices["recipe"])
    return settings, composition


def train(overrides: Sequence[str] = ()) -> TrainedModel:
    """Trains a run as `entente train` does, with overrides such as ["model=birnn", "seed=2"], and returns its best model.
    Raises InputError if the settings are invalid, Diverged if the loss diverges, and Interrupted if a signal stops the run."""
    if isinstance(overrides, str):
        raise InputError(f'{overrides!r}: give a list of settings, each as "KEY=VALUE"')
    composition, problems = compose_checked("train", overrides, None)
    settings = check("train", composition.values, problems)
    trainer = resumed_settings(settings, composition).trainer
    if (trainer.devices, trainer.num_nodes) != (1, 1):
        raise InputError("trainer.devices, trainer.num_nodes: set both to 1, or train with the command `entente train`")
    return load(main(settings, composition))


def resumed_settings(settings: RunSettings, composition: Composition) -> RunSettings:
    """Returns the settings, or with resume=DIRECTORY those stored with that run, of which only output_dir and the settings in
    OF_THE_MACHINE may be overridden. Raises InputError for other overrides, or if there is no such run."""
    if settings.resume in (None, "auto"):
        return settings
    path = Path(str(settings.resume)) / "config.yaml"
    if not path.is_file():
        raise InputError(f"resume={settings.resume}: not a run's directory (it has no config.yaml); give one, or resume=auto")
    keys = {key_of(override): override for override in composition.overrides}
    free = {"resume", "output_dir", *(f"trainer.{name}" for name in OF_THE_MACHINE)}
    if others := [override for key, override in keys.items() if key not in free and not key.startswith("hydra")]:
        alternative = f"init={settings.resume} starts a new run from its model"
        problem = f"resume={settings.resume} continues with that run's own settings ({alternative}); leave out"
        raise InputError(*(f"{problem} {override}" for override in others))
    stored = validate(RunSettings, read_yaml(path) or {}, where=f"{path}: ").stored()
    stored["trainer"] |= {name: getattr(settings.trainer, name) for name in OF_THE_MACHINE if f"trainer.{name}" in keys}
    stored |= {"resume": str(path.parent)} | ({"output_dir": settings.output_dir} if "output_dir" in keys else {})
    return validate(RunSettings, stored, where=f"{path}: ")
