"""Score a checkpoint: python scripts/evaluate.py checkpoint=outputs/RUN [split=test] [search.beam=5]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.training.settings import Evaluate, problems_of  # after the overrides are known to compose, which is quick

    return problems_of(Evaluate, config)


def main(config: dict[str, Any]) -> None:
    from entente.commands.evaluate import evaluate_checkpoint

    evaluate_checkpoint(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "evaluate", check)
