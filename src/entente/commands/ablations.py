"""List the ablations with their models and claims. A claim is what a variant is trained to test.

entente ablations model=birnn
entente ablations model=transformer
entente ablations | grep residual
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from entente.cli import CONFIGS, Composition, compose
from entente.commands.settings import AblationsSettings
from entente.errors import InputError
from entente.files import read_yaml
from entente.settings import BiRNNSettings, RunSettings, TransformerSettings
from entente.validation import flat, validate

# The comment at the top of a file, up to a line that starts with a label other than "Claim:", such as "Defined:".
CLAIM = re.compile(r"# @.*\n# (?:Claim: )?(.+(?:\n# (?![A-Z]\w+(?::| \()).+)*)")


def main(settings: AblationsSettings) -> None:
    for name, path in ablation_files().items():
        claim, models = CLAIM.match(path.read_text(encoding="utf-8")), models_of(read_yaml(path) or {})
        if settings.model in (None, *models):
            text = claim[1].replace("\n#", "") if claim else ""
            print(f"{name:22}{', '.join(models):20}{text}".rstrip())


def models_of(ablation: Mapping[str, Any]) -> list[str]:
    """Returns the names of the models in which an ablation changes a setting."""
    changes, names = ablation.get("model", {}), list[str]()
    for kind in (TransformerSettings, BiRNNSettings):
        with suppress(InputError):  # the model has no such setting
            if not changes or validate(kind, changes) != kind():
                names.append(kind().name)
    return names


# What `train` and `ablate` read from the files of ablations


def ablation_files(config_dir: str | None = None) -> dict[str, Path]:
    """Returns the file of each ablation by name. config_dir: the user's own folder with config groups."""
    files = {path.stem: path for path in sorted(CONFIGS.glob("ablation/*.yaml"))}
    own = sorted(Path(config_dir).glob("ablation/*.yaml")) if config_dir else []
    if taken := [path for path in own if path.stem in files]:  # Hydra would read ours
        raise InputError(*(f"{path}: there is already an ablation of this name; rename the file" for path in taken))
    return files | {path.stem: path for path in own}


def changes_of(name: str, config_dir: str | None) -> dict[str, object]:
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
    if contradictions := [
        f"{key}={values.get(key)}: ablation={ablation} sets it to {value}; leave out one of the two"
        for key, value in changes_of(ablation, folder).items()
        if values.get(key) != value and "${" not in str(value)
    ]:
        raise InputError(*contradictions)
    overrides = [override for override in composition.overrides if not override.startswith("ablation=")]
    return validate(RunSettings, compose("train", [*overrides, "ablation=baseline"], folder, composition.recipe).values)
