"""Train one run: python scripts/train.py [model=birnn] [ablation=no_residual] [seed=2] [trainer.max_steps=2000] ..."""

from functools import partial
from pathlib import Path
from typing import Any

from entente.cli import run


def check(config: dict[str, Any]) -> list[str]:
    from hydra.core.hydra_config import HydraConfig

    from entente import training  # after the overrides are known to compose, which is quick
    from entente.ablation.variants import chosen, refuse_unusable

    if HydraConfig.initialized():
        refuse_unusable([chosen()])
    return training.check(config)


def main(config: dict[str, Any]) -> None:
    from entente.ablation.proof import proof
    from entente.ablation.variants import BASELINE, chosen, refuse_contradiction, without_ablation
    from entente.training import completed, train

    variant = chosen() != BASELINE and config["resume"] in (None, "auto")
    if variant:
        refuse_contradiction(config)
    train(config, prove=partial(proof, completed(without_ablation())) if variant else None)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "train", check)
