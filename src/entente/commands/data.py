"""Prints what a corpus is like before anyone trains on it, and what to do about it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import doc
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.table import Column, Table

from entente.commands.trained import OutputDir
from entente.console import escape
from entente.data.corpora import Corpus, read_corpus
from entente.data.inspection import Inspection, inspect
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.files import path_of, scratch, writable, write_text
from entente.process import prepare_process
from entente.training.settings import data_problems

log = logging.getLogger("entente")

TEMPLATES = Environment(loader=PackageLoader("entente.commands", "."), undefined=StrictUndefined, trim_blocks=True)
TABLES = {  # the columns of each table, by its title
    "Sizes; lengths of sentences in words (separated by spaces)": ("pairs", "words", "characters", "median", "95%", "longest"),
    "Words per word of the other side; pieces per word; % bytes, % unseen words": (
        *("ratio 5%", "ratio 50%", "ratio 95%", "pieces", "bytes", "unseen"),
    ),
}
MISALIGNED = "Misalignment score (0: a typical pair; 1: one put together at random)"
WORST, EXAMPLES = 200, 10  # pairs in misalignment.tsv, and kinds of each list that are printed
SUSPECT = 0.75  # a score that hardly any pair reaches in a corpus of careful translations


def check_data(data: Mapping[str, Any]) -> None:
    """Raises InputError with every problem in the part `data`."""
    if found := data_problems(data):
        raise InputError(*found)


@dataclass(frozen=True, kw_only=True)
class InspectData:
    """The settings of `entente data`."""

    data: Mapping[str, Any]
    output: Annotated[str | None, doc("a folder for lists as TSV: misalignment.tsv, duplicates.tsv, leaks.tsv, odd.tsv")] = None
    output_dir: OutputDir = "outputs"

    relations: ClassVar[tuple[Callable[..., None], ...]] = (check_data,)


def inspect_data(settings: InspectData) -> None:
    """Reads a corpus, prints tables, examples and advice, and writes the full lists if `output` is given."""
    prepare_process(None)
    data, output = settings.data, path_of(settings.output) if settings.output else None
    if output:
        with writable(f"output={output}"), scratch(output):
            pass  # fails here rather than after minutes
    log.info("reading the corpus: %s", data["name"])
    corpus = read_corpus(data)
    log.info("learning the vocabulary, or loading it from the cache")
    cache = path_of(settings.output_dir) / "cache" / "tokenizer"
    found = inspect(corpus, Vocabulary.train(corpus.train, **data["tokenizer"], cache_dir=cache))
    scored: dict[str, list[int]] = {}
    for row in np.argsort(-found.score, kind="stable")[: WORST * found.score.any()]:
        scored.setdefault(f"{found.score[row]:.3f}", []).append(row)
    lists = {**found.findings, MISALIGNED: {score: np.array(rows) for score, rows in scored.items()}}
    console = Console(markup=False, emoji=False, highlight=False)
    for title, columns in TABLES.items():
        head = (Column(name, justify="right") for name in columns)
        table = Table(
            Column("split", no_wrap=True),
            "side",
            *head,
            title=title,
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
        )
        for place in product(found.splits, ("src", "tgt")):
            values = (found.sides[place][name] for name in columns)
            table.add_row(*place, *(f"{n:,.2f}" if isinstance(n, float) else f"{n:,}" for n in values))
        console.print(table, "")
    for title, kinds in lists.items():
        console.print(title if any(map(len, kinds.values())) else f"{title}: none", style="bold")
        for kind, rows in islice(((kind, rows) for kind, rows in kinds.items() if len(rows)), EXAMPLES):
            counts = {split: int(((at.start <= rows) & (rows < at.stop)).sum()) for split, at in found.splits.items()}
            console.print(f"  {kind}: {', '.join(f'{n:,} in {split}' for split, n in counts.items() if n)}")
            for split, number, *pair in locate(corpus, found.splits, rows[:3]):
                for where, text in zip((f"{split} {number}:", ""), pair, strict=True):
                    console.print(f"    {where:{len(split) + 9}}{text}", no_wrap=True, overflow="ellipsis")
        console.print()
    console.print("Advice", style="bold")
    for line in advice(data, corpus, found, str(output or "")) or ["Nothing stands out: train on it as it is."]:
        console.print(f"- {line}")
    if output:
        with writable(f"output={output}"):
            for title, kinds in lists.items():
                lines = ("\t".join([kind, *one]) for kind, rows in kinds.items() for one in locate(corpus, found.splits, rows))
                text = "\n".join(["what\tsplit\tline\tsrc\ttgt", *lines, ""])
                write_text(output / f"{title.partition(' ')[0].lower()}.tsv", text)


def locate(corpus: Corpus, splits: Mapping[str, slice], rows: np.ndarray) -> Iterator[list[str]]:
    """Yields the split of each pair, its line in the file that it was read from, and its sentences."""
    for row in rows:
        split, at = next((split, int(row - at.start)) for split, at in splits.items() if row < at.stop)
        line = corpus.numbers[split][at] if split in corpus.numbers else at + 1
        yield [split, str(line), *(escape.line(corpus.splits[split][at][side]) for side in ("src", "tgt"))]


def advice(data: Mapping[str, Any], corpus: Corpus, found: Inspection, output: str) -> list[str]:
    """Returns sentences that say what to do."""

    def count(kind: str) -> int:
        return sum(len(rows) for kinds in found.findings.values() for name, rows in kinds.items() if name.startswith(kind))

    train = found.splits["train"]
    shorter, longer = np.sort(found.words[:, train], axis=0)
    numbers = {
        "train": train.stop,
        "leaked": len(np.unique(np.concatenate([*found.findings["Leaks between splits"].values()]))),
        "uneven": int((longer > 3 * shorter).sum()),
        "limit": SUSPECT,
        "suspect": int((found.score[train] > SUSPECT).sum()),
    }
    template = TEMPLATES.get_template("data.j2")
    text = template.render(data=data, dropped=corpus.dropped, sides=found.sides, count=count, output=output, **numbers)
    return [line for line in text.splitlines() if line.strip()]
