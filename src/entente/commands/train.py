"""`entente train`: one run. An ablation is compared with its baseline before it trains."""

from functools import partial
from typing import Any

from hydra.core.hydra_config import HydraConfig

from entente.ablation.proof import proof
from entente.ablation.variants import BASELINE, chosen, refuse_contradiction, refuse_unusable, without_ablation
from entente.training.settings import completed
from entente.training.train import check_run, train


def check(config: dict[str, Any]) -> list[str]:
    if HydraConfig.initialized():
        refuse_unusable([chosen()])
    return check_run(config)


def main(config: dict[str, Any]) -> None:
    variant = chosen() != BASELINE and config.get("resume") in (None, "auto")
    if variant:
        refuse_contradiction(config)
    train(config, prove=partial(proof, completed(without_ablation())) if variant else None)
