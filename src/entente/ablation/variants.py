"""Which configuration a variant is a difference from: the one that the same overrides compose without it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from entente.cli import plain
from entente.errors import InputError
from entente.schema import flat, nearest

BASELINE = "baseline"


def refuse_unknown(variants: Sequence[str]) -> None:
    """InputError with each that is no file of configs/ablation."""
    known = GlobalHydra.instance().config_loader().get_group_options("ablation")
    near = {name: nearest(name, known) for name in variants if name not in known}
    if near:
        raise InputError(
            *(
                f"{name}: no file of configs/ablation" + (f"; did you mean {other}?" if other else "")
                for name, other in near.items()
            )
        )


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a training run, from within a command of ours."""
    return plain(hydra.compose("train", list(overrides)))[0]


def without_ablation() -> dict[str, Any]:
    """The configuration of the run under way, its ablation taken away."""
    overrides = [one for one in HydraConfig.get().overrides.task if not one.startswith("ablation=")]
    return composed([*overrides, f"ablation={BASELINE}"])


def sets(ablation: str) -> dict[str, object]:
    """What an ablation's file sets, by dotted key."""
    folders = [Path(source.path) for source in HydraConfig.get().runtime.config_sources if source.schema == "file"]
    file = next(path for folder in folders if (path := folder / "ablation" / f"{ablation}.yaml").exists())
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {key: value for key, value in flat(content) if not isinstance(value, Mapping) and key not in ("variant", "defaults")}


def refuse_contradiction(config: Mapping[str, Any]) -> None:
    """InputError where a command line says otherwise than its ablation: the run would not be what its name says."""
    ablation = HydraConfig.get().runtime.choices["ablation"]
    has = dict(flat(config))
    wrong = [(key, value) for key, value in sets(ablation).items() if has.get(key) != value and "${" not in str(value)]
    if wrong:
        raise InputError(*(f"{k}={has.get(k)}: ablation={ablation} sets it to {v}; leave out one of both" for k, v in wrong))
