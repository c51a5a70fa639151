"""Score a checkpoint: python scripts/evaluate.py checkpoint=outputs/RUN [split=test] [search.beam=5]"""

from pathlib import Path
from typing import Any

from entente.cli import run


def main(config: dict[str, Any]) -> None:
    from entente.inference import evaluate_checkpoint  # after the configuration is known to be right, which is quick

    evaluate_checkpoint(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "evaluate")
