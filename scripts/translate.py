"""Translate: python scripts/translate.py checkpoint=outputs/RUN [input=FILE] [output=FILE] [search.n_best=5]"""

from pathlib import Path
from typing import Any

from entente.cli import run


def main(config: dict[str, Any]) -> None:
    from entente.inference import translate_text  # after the configuration is known to be right, which is quick

    translate_text(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "translate")
