"""Train variants x seeds, all else equal: python scripts/ablate.py suite=quick seeds=[1,2,3] jobs=2 [overrides of train.py]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.ablation import suite

    return suite.check(config)


def main(config: dict[str, Any]) -> None:
    from entente.ablation.suite import ablate

    ablate(config, Path(__file__).with_name("train.py"))


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "ablate", check)
