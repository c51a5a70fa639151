"""Compares the speed of Entente with that of other programs: python scripts/benchmark.py benchmark.cases=[transformer,beam]"""

from pathlib import Path

from entente.config.command_line import run_named

if __name__ == "__main__":
    run_named(
        Path(__file__).resolve().parents[1] / "configs", "benchmark", "benchmark.settings:check", "benchmark.report:benchmark"
    )
