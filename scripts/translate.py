"""Translate: python scripts/translate.py checkpoint=outputs/RUN [input=FILE] [output=FILE] [search.n_best=5]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.training.settings import Translate, problems_of  # after the overrides are known to compose, which is quick

    return problems_of(Translate, config)


def main(config: dict[str, Any]) -> None:
    from entente.commands.translate import translate_text

    translate_text(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "translate", check)
