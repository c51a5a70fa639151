"""Reads the files in configs/ablation, each of which sets what one ablation changes, and composes a variant's baseline."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from entente.ablation.runs import BASELINE
from entente.cli import CONFIGS, Composition, compose
from entente.errors import InputError
from entente.files import read_yaml
from entente.settings import RunSettings
from entente.validation import flat, suggestion, validate

FIRST_LINE = "# @package _global_"


def ablation_files(config_dir: str | None) -> dict[str, Path]:
    """Returns the file of each ablation by name. config_dir: the user's own folder with config groups, which comes first."""
    folders = [CONFIGS, Path(config_dir) if config_dir else CONFIGS]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("ablation/*.yaml"))}


def unusable(names: Sequence[str], config_dir: str | None) -> Iterator[str]:
    """Yields a line for each name that has no valid file."""
    paths = ablation_files(config_dir)
    for name in names:
        if name not in paths:
            yield f"{name}: no such ablation in configs/ablation{suggestion(name, paths)}"
            continue
        content, text = read_yaml(paths[name]), paths[name].read_text(encoding="utf-8")
        if not text.startswith(FIRST_LINE):
            yield f"{paths[name]}: its first line must be {FIRST_LINE}, or its settings land under `ablation`"
        if not isinstance(content, dict) or content.get("variant") != name:
            yield f"{paths[name]}: must set `variant: {name}`, its own name, which identifies its runs"


def changes(name: str, config_dir: str | None) -> dict[str, object]:
    """Returns the settings that an ablation changes, by dotted key."""
    content = flat(read_yaml(ablation_files(config_dir)[name]))
    return {key: value for key, value in content if not isinstance(value, Mapping) and key not in ("variant", "defaults")}


def baseline_of(composition: Composition) -> RunSettings:
    """Returns the settings of a run without its ablation. Raises InputError if the ablation's file is invalid, or if the run's
    other settings contradict it, since the run would not match its name."""
    ablation, folder = composition.choices["ablation"], composition.config_dir
    if not (problems := [*unusable([ablation], folder)]):
        values = dict(flat(composition.values))
        for key, value in changes(ablation, folder).items():
            if values.get(key) != value and "${" not in str(value):
                problems.append(f"{key}={values.get(key)}: ablation={ablation} sets it to {value}; leave out one of the two")
    if problems:
        raise InputError(*problems)
    overrides = [override for override in composition.overrides if not override.startswith("ablation=")]
    return validate(RunSettings, compose("train", [*overrides, f"ablation={BASELINE}"], folder, composition.recipe).values)
