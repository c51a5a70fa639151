"""Check a corpus before training on it. Prints its sizes, its repeated, shared, odd and misaligned sentences, and advice.

entente data data=multi30k data.root=FOLDER
entente data data=files data.train.src=my.fr data.train.tgt=my.en
entente data data=files data.train=pairs.tsv output=report
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from entente import escape
from entente.commands.settings import InspectSettings
from entente.console import Task
from entente.data.corpora import Corpus, read_corpus
from entente.data.inspection import SUSPECT, Finding, find, measure
from entente.data.tokenizer import Vocabulary
from entente.files import write_text
from entente.process import prepare_process

KINDS, EXAMPLES = 10, 3  # maximum number of kinds printed per list, and of examples per kind


def main(settings: InspectSettings) -> None:
    """Reads a corpus and prints measurements, examples of findings, and advice. Writes all findings to `output`, if given."""
    prepare_process(None)
    output = Path(settings.output) if settings.output else None
    cache = Path(settings.output_dir) / "cache"
    corpus = read_corpus(settings.data, cache)
    if output:
        output.mkdir(parents=True, exist_ok=True)  # fails before minutes of work if there can be no such folder
    with Task("inspecting the pairs"):
        numbers = measure(corpus, Vocabulary.train(corpus.train, settings.data.tokenizer, cache))
        lists = find(corpus)
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table("", *(Column(split, justify="right", overflow="fold") for split in corpus.splits), box=None, pad_edge=False)
    for what in numbers["train"]:
        values = [measured[what] for measured in numbers.values()]
        table.add_row(what, *(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in values))
    console.print(table)
    console.print("\nPairs are numbered from 1 in each split, after some have been dropped or held out.")
    console.print("Misalignment is about 0 for a typical pair and 1 for a mismatched one; it can exceed 1.")
    for name, items in lists.items():
        console.print(f"\n{name.capitalize()}{'' if items else ': none'}", style="bold")
        for kind, count in list(Counter(label for label, *_ in items).items())[:KINDS]:
            console.print(f"  score {kind}" if name == "misalignment" else f"  {kind}: {count:,}")
            for _, split, number, *pair in rows(corpus, [item for item in items if item[0] == kind][:EXAMPLES]):
                console.print(f"    {split} {number}:", "\n     ".join(pair), no_wrap=True, overflow="ellipsis")
        if output:
            lines = ["what\tsplit\tpair\tsrc\ttgt", *map("\t".join, rows(corpus, items)), ""]
            write_text(output / f"{name}.tsv", "\n".join(lines))
    console.print("\nAdvice", style="bold")
    for line in advice(corpus, lists) or ["Nothing unusual: the corpus can be used as it is."]:
        console.print(f"- {line}")
    console.print(f"The full lists are in {output}." if output else "Set output=FOLDER to write the full lists.")


def rows(corpus: Corpus, items: Iterable[Finding]) -> Iterator[list[str]]:
    """Yields a row for each finding: its label, the split, the pair's number in the split, and its two sentences."""
    for label, split, row in items:
        yield [label, split, str(row + 1), *map(escape.line, corpus.splits[split][row].values())]


def advice(corpus: Corpus, lists: Mapping[str, list[Finding]]) -> list[str]:
    """Returns a line of advice for each kind of problem that the corpus has."""
    n = Counter(label for items in lists.values() for label, *_ in items)
    equal, garbled, hidden = n["equal sides"], n["wrong encoding"], n["invisible character"]
    copies = sum(label == "pair already in train" for label, *_ in lists["duplicates"])
    train, leaked = len(corpus.train), len({(split, row) for _, split, row in lists["leaks"]})
    suspect = sum(float(score) > SUSPECT for score, *_ in lists["misalignment"])
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in corpus.dropped.items())
    rules = {
        f"Dropped pairs: {dropped}. Check the empty ones; data.max_words and data.max_ratio limit length and ratio.": dropped,
        f"With only {train:,} training pairs, start with a small model, such as model.n_layers=2.": train < 10_000,
        f"Pairs that repeat an earlier one: {copies:,}. Remove them unless they should have more weight.": copies > train / 100,
        f"Pairs with a sentence from an earlier split: {leaked:,}. Remove the copies there, which inflate scores.": leaked,
        f"Pairs with equal sides: {equal:,}. Unless they are names, remove them: they teach the model to copy.": equal,
        f"Pairs in the wrong encoding: {garbled:,}. Convert the original files to UTF-8 again, or remove the pairs.": garbled,
        f"Pairs with HTML entities: {n['HTML entity']:,}. Convert these to characters, or remove the pairs.": n["HTML entity"],
        f"Pairs with invisible characters: {hidden:,}. Remove these characters from the files.": hidden,
        f"Pairs with a misalignment score above {SUSPECT}: {suspect:,}. Read the worst ones, and remove wrong pairs.": suspect,
        "Pairs score no better than mismatched ones. Read some: are the lines shifted, or too few?": not lists["misalignment"],
    }
    return [sentence for sentence, condition in rules.items() if condition]
