"""Reads the files in configs/ablation, each of which sets what one ablation changes, and composes a variant's baseline."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entente.ablation.runs import BASELINE
from entente.cli import CONFIGS, Composition, compose
from entente.errors import InputError
from entente.files import read_yaml
from entente.settings import RunSettings
from entente.validation import flat, validate


def ablation_files(config_dir: str | None) -> dict[str, Path]:
    """Returns the file of each ablation by name. config_dir: the user's own folder with config groups."""
    files = {path.stem: path for path in sorted(CONFIGS.glob("ablation/*.yaml"))}
    own = sorted(Path(config_dir).glob("ablation/*.yaml")) if config_dir else []
    if taken := [path for path in own if path.stem in files]:  # Hydra would read ours
        raise InputError(*(f"{path}: there is already an ablation of this name; rename the file" for path in taken))
    return files | {path.stem: path for path in own}


def changes(name: str, config_dir: str | None) -> dict[str, object]:
    """Returns the settings that an ablation changes, by dotted key."""
    from omegaconf import OmegaConf

    path = ablation_files(config_dir)[name]
    read_yaml(path)  # raises an error that names the line
    content: Any = OmegaConf.to_container(OmegaConf.load(path))  # unlike PyYAML, it takes 1e-2 for a number, as Hydra does
    return {key: value for key, value in flat(content) if not isinstance(value, Mapping) and key != "defaults"}


def baseline_of(composition: Composition) -> RunSettings:
    """Returns the settings of a run without its ablation. Raises InputError if an override contradicts the ablation's file,
    since the run would not match its name."""
    ablation, folder = composition.choices["ablation"], composition.config_dir
    values = dict(flat(composition.values))
    contradictions = [
        f"{key}={values.get(key)}: ablation={ablation} sets it to {value}; leave out one of the two"
        for key, value in changes(ablation, folder).items()
        if values.get(key) != value and "${" not in str(value)
    ]
    if contradictions:
        raise InputError(*contradictions)
    overrides = [override for override in composition.overrides if not override.startswith("ablation=")]
    return validate(RunSettings, compose("train", [*overrides, f"ablation={BASELINE}"], folder, composition.recipe).values)
