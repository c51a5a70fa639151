"""Check a corpus before training on it: its sizes, its faulty pairs by rule, and advice. With `output`, write a clean text.

entente data data=multi30k data.root=FOLDER
entente data data=files data.train.src=my.fr data.train.tgt=my.en
entente data data=files data.train=pairs.tsv output=clean.tsv      # and removed.tsv: what was left out, where, and why
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from entente import escape
from entente.commands.settings import InspectSettings
from entente.console import Task
from entente.data.corpora import READERS, Corpus, read_corpus
from entente.data.faults import RULES, SURE, Fault, Line, by_row, find_faults, shifts
from entente.data.files import clean
from entente.data.inspection import leaks, measure
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.files import write_text
from entente.process import prepare_process
from entente.settings import DataSettings

EXAMPLES = 3  # printed per rule
REMOVED = "removed.tsv"


def main(settings: InspectSettings) -> None:
    """Reads a corpus; prints measurements, faulty pairs and advice. Writes the sound training pairs to `output`, if given."""
    prepare_process(None)
    output = Path(settings.output) if settings.output else None
    if output and (output.suffix != ".tsv" or output.name == REMOVED):
        raise InputError(f"output={output}: give a file for the clean pairs whose name ends in .tsv, and is not {REMOVED}")
    if output and getattr(settings.data, "extra", None):
        raise InputError("output with data.extra: clean one text at a time")
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)  # fails before minutes of work if there can be no such folder
    cache = Path(settings.output_dir) / "cache"
    corpus = read_corpus(settings.data, cache)
    with Task("inspecting the pairs"):
        numbers = measure(corpus, Vocabulary.train(corpus.train, settings.data.tokenizer, cache, corpus.tags))
        lines = [*read_lines(settings.data)]
        faults = find_faults(lines, settings.rules or SURE)
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table("", *(Column(split, justify="right", overflow="fold") for split in corpus.splits), box=None, pad_edge=False)
    for what in numbers["train"]:
        values = [measured[what] for measured in numbers.values()]
        table.add_row(what, *(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in values))
    console.print(table)
    console.print(f"\nFaulty pairs{'' if faults else ': none'}", style="bold")
    for rule, count in Counter(fault.rule for fault in faults).items():
        console.print(f"  {rule}: {count:,} ({RULES[rule]})")
        for fault in [fault for fault in faults if fault.rule == rule][:EXAMPLES]:
            line = lines[fault.row]
            place = f"{line.where}, line {line.number:,}: {fault.detail}".removesuffix(": ")
            for text in (f"    {place}", *(f"      {escape.line(side)}" for side in (line.src, line.tgt))):
                console.print(text, no_wrap=True, overflow="ellipsis")
    console.print("\nAdvice", style="bold")
    for sentence in advice(corpus, lines, faults) or ["Nothing unusual: the corpus can be used as it is."]:
        console.print(f"- {sentence}")
    if output:
        kept, removed = write_clean(output, lines, faults)
        console.print(f"{kept:,} pairs are in {output}, and {removed:,} in {output.parent / REMOVED}, with place and reason.")
    elif faults:
        console.print("Set output=clean.tsv to write the text without these pairs, and a list of them.")


def read_lines(settings: DataSettings) -> Iterator[Line]:
    for split, texts in READERS[settings.name](settings).items():
        for text in texts:
            for number, (src, tgt) in enumerate(text.pairs, start=text.first):
                yield Line(split, text.where, number, src, tgt)


def write_clean(output: Path, lines: Sequence[Line], faults: Sequence[Fault]) -> tuple[int, int]:
    """Writes the training pairs without faults to a file, and the others to REMOVED in its folder. Returns their numbers."""
    faulty = by_row(faults)
    kept, removed = ["src\ttgt\n"], [["where", "line", "reason", "src", "tgt"]]
    for row, line in enumerate(lines):
        if line.split == "train" and row not in faulty:
            kept.append(f"{clean(line.src)}\t{clean(line.tgt)}\n")
        elif line.split == "train":
            reasons = ", ".join(map(str, faulty[row]))
            removed.append([line.where, str(line.number), reasons, escape.line(line.src), escape.line(line.tgt)])
    write_text(output, "".join(kept))
    write_text(output.parent / REMOVED, "".join("\t".join(cells) + "\n" for cells in removed))
    return len(kept) - 1, len(removed) - 1


def advice(corpus: Corpus, lines: Sequence[Line], faults: Sequence[Fault]) -> list[str]:
    """Returns a line of advice for each kind of problem that the corpus has."""
    train, copied = len(corpus.train), leaks(corpus)
    faulty = len({fault.row for fault in faults})
    dropped: Mapping[str, int] = corpus.dropped
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
    rules = {
        f"Dropped pairs: {reasons}. Check the empty ones; data.max_words and data.max_ratio limit length and ratio.": dropped,
        f"With only {train:,} training pairs, start with a small model, such as model.n_layers=2.": train < 10_000,
        f"Pairs with a sentence from an earlier split: {copied:,}. Remove the copies there, which inflate scores.": copied,
        f"{faulty / max(1, len(lines)):.1%} of the pairs are faulty. Read some of them before you train.": faulty,
    }
    return [*shifts(faults, lines), *(sentence for sentence, condition in rules.items() if condition)]
