"""What an evaluation leaves: a table, and files of translations."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from entente.evaluation import Evaluation
from entente.files import file_in, write_text

log = logging.getLogger("entente")


def write_translations(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """translations/SPLIT.tsv of each split, under a line of headings."""
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(part.replace("\t", " ") for part in line) + "\n" for line in lines)
        write_text(file_in(directory / "translations", split, ".tsv"), "source\treference\ttranslation\n" + text)


def show(metrics: Mapping[str, Any], title: str) -> None:
    """The table at a run's end."""
    log.info("%s", title)
    table = Table()
    table.add_column("split")
    for column in ("sentences", "BLEU", "chrF", "TER", "NLL"):
        table.add_column(column, justify="right")
    for split, m in metrics.items():
        table.add_row(
            split, str(m["sentences"]), *(f"{m[k]:.{d}f}" for k, d in (("bleu", 2), ("chrf", 2), ("ter", 2), ("nll", 4)))
        )
    Console(markup=False, emoji=False).print(table)
