"""Measures how time and memory grow with length, vocabulary, width and corpus size:
python scripts/growth.py [pairs=[]] [models=[birnn]]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from growth import sweeps  # a slow import, delayed until Hydra has composed the configuration

    return sweeps.check(config)


def main(config: dict[str, Any]) -> None:
    from growth.sweeps import measure

    measure(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "growth", check)
