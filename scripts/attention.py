"""Where models look: python scripts/attention.py checkpoint=[outputs/RUN1,outputs/RUN2] sentence="Jane visite l'Afrique." """

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.training.settings import Attention, problems_of  # after the overrides are known to compose, which is quick

    return problems_of(Attention, config)


def main(config: dict[str, Any]) -> None:
    from entente.commands.attention import picture_attention

    picture_attention(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "attention", check)
