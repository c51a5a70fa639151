"""Which configuration a variant is a difference from: the one that the same overrides compose without it."""

from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from entente.cli import plain
from entente.errors import InputError
from entente.schema import nearest

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
