"""Train one run: python scripts/train.py [model=birnn] [ablation=no_residual] [seed=2] [trainer.max_steps=2000] ..."""

from functools import partial
from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from hydra.core.hydra_config import HydraConfig

    from entente.ablation.variants import chosen, refuse_unusable
    from entente.training.train import check_run  # after the overrides are known to compose, which is quick

    if HydraConfig.initialized():
        refuse_unusable([chosen()])
    return check_run(config)


def main(config: dict[str, Any]) -> None:
    from entente.ablation.proof import proof
    from entente.ablation.variants import BASELINE, chosen, refuse_contradiction, without_ablation
    from entente.training.settings import completed
    from entente.training.train import train

    variant = chosen() != BASELINE and config["resume"] in (None, "auto")
    if variant:
        refuse_contradiction(config)
    train(config, prove=partial(proof, completed(without_ablation())) if variant else None)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "train", check)
