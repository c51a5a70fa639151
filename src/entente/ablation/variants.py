"""Which configuration a variant is a difference from: the one that the same overrides compose without it."""

from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig

from entente.cli import plain

BASELINE = "baseline"


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a training run, from within a command of ours."""
    return plain(hydra.compose("train", list(overrides)))[0]


def without_ablation() -> dict[str, Any]:
    """The configuration of the run under way, its ablation taken away."""
    overrides = [one for one in HydraConfig.get().overrides.task if not one.startswith("ablation=")]
    return composed([*overrides, f"ablation={BASELINE}"])
