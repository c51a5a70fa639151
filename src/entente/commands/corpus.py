"""`entente corpus`: sentences of the embedded corpus with their gold alignments."""

from functools import partial
from typing import Any

from entente.config.schema import fill, problems
from entente.errors import InputError
from entente_grammar.show import Show, show

check = partial(problems, Show, "")


def main(config: dict[str, Any]) -> None:
    settings = fill(Show, "", config)
    try:
        show(settings.n, settings.split, settings.seed)
    except ValueError as error:
        raise InputError(str(error)) from error
