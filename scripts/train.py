"""Train one run: python scripts/train.py [model=birnn] [ablation=no_residual] [seed=2] [trainer.max_steps=2000] ..."""

from pathlib import Path
from typing import Any

from entente.cli import run


def main(config: dict[str, Any]) -> None:
    from entente.training import train  # after the configuration is known to be right, which is quick

    train(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "train")
