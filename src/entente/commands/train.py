"""Implements `entente train`. Before it trains an ablation, it proves that the ablation differs from the baseline."""

import os
from functools import partial
from threading import Thread
from typing import Any

from hydra.core.hydra_config import HydraConfig

from entente.ablation import variants
from entente.ablation.proof import proof
from entente.process import PARENT, stop_with
from entente.training.train import check_run, train


def check(config: dict[str, Any]) -> list[str]:
    found = variants.unusable([variants.chosen_ablation()]) if HydraConfig.initialized() else []
    return found or check_run(config)


def main(config: dict[str, Any]) -> None:
    if parent := os.environ.pop(PARENT, None):  # removed, because the processes that this one may start have another parent
        Thread(target=stop_with, args=[int(parent)], daemon=True).start()
    prove = None
    if variants.chosen_ablation() != variants.BASELINE and config.get("resume") in (None, "auto"):
        prove = partial(proof, variants.baseline_config(config))
    train(config, prove)
