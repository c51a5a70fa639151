"""Compares the speed of Entente with that of other programs: python scripts/benchmark.py benchmark.cases=[transformer,beam]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from benchmark import settings  # a slow import, delayed until Hydra has composed the configuration

    return settings.check(config)


def main(config: dict[str, Any]) -> None:
    from benchmark.report import benchmark

    benchmark(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "benchmark", check)
