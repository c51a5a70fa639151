"""Entente and other programs, measured in alternation: python scripts/benchmark.py benchmark.cases=[transformer,beam]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from benchmark import settings  # after the overrides are known to compose, which is quick

    return settings.check(config)


def main(config: dict[str, Any]) -> None:
    from benchmark.report import benchmark

    benchmark(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "benchmark", check)
