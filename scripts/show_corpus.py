"""Sentences of the embedded corpus with their gold alignments: python scripts/show_corpus.py [n=5] [split=test]"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run
from entente.config.schema import problems
from entente.errors import InputError
from entente_grammar.show import Show, show


def check(config: dict[str, Any]) -> list[str]:
    return problems(Show, "", config)


def main(config: dict[str, Any]) -> None:
    try:
        show(config["n"], config["split"], config["seed"])
    except ValueError as error:
        raise InputError(str(error)) from error


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "show_corpus", check)
