"""Check a corpus before training on it. Prints its sizes, its faulty pairs by rule, and advice. With `output`, writes the
training text without these pairs, and next to it removed.tsv, which says where they were, and why they were left out.

entente data data=multi30k data.root=FOLDER
entente data data=files data.train.src=my.fr data.train.tgt=my.en
entente data data=files data.train=pairs.tsv output=clean.tsv
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count, product
from pathlib import Path

import numpy as np

from entente import escape
from entente.commands.settings import InspectSettings
from entente.console import Task, print_table
from entente.data.corpora import READERS, Corpus, Sources, read_corpus
from entente.data.faults import RULES, SURE, Fault, Line, find_faults
from entente.data.pairs import match_key
from entente.data.text import SEPARATORS, clean, count_words
from entente.data.tokenizer import Vocabulary, texts
from entente.errors import InputError
from entente.files import write_text
from entente.process import prepare_process
from entente.settings import ColumnSettings, DataSettings

EXAMPLES = 3  # printed per rule
SIDES = ("src", "tgt")
REMOVED = "removed.tsv"


def main(settings: InspectSettings) -> None:
    prepare_process(None)
    output, cache = Path(settings.output) if settings.output else None, Path(settings.output_dir) / "cache"
    sources = READERS[settings.data.name](settings.data)
    if output:
        _check(output, sources)
    corpus = read_corpus(settings.data, cache)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)  # fails before minutes of work
    with Task("inspecting the pairs"):
        numbers = measure(corpus, Vocabulary.train(corpus.train, settings.data.tokenizer, cache, corpus.tags))
        lines = [Line(split, text.where, *pair) for split, texts in sources.items() for text in texts for pair in text.pairs]
        faults, corresponds = find_faults(lines, SURE if settings.rules is None else settings.rules)
    rows = {what: [measured[what] for measured in numbers.values()] for what in numbers["train"]}
    cells = [
        [what, *(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in row)] for what, row in rows.items()
    ]
    print_table([["", *corpus.splits], *cells])
    print(f"\nFaulty pairs{'' if faults else ': none'}")
    for rule, n in Counter(fault.rule for fault in faults).items():
        print(f"  {rule}: {n:,} ({RULES[rule]})")
        for fault in [fault for fault in faults if fault.rule == rule][:EXAMPLES]:
            line = lines[fault.row]
            place = f"{line.where}, line {line.number:,}: {fault.detail}".removesuffix(": ")
            print(f"    {escape.line(place)}")
            for side in (line.src, line.tgt):
                print(f"      {escape.line(side, 74)}")
    print("\nAdvice")
    for sentence in advice(corpus, lines, faults, corresponds) or ["Nothing unusual: the corpus can be used as it is."]:
        print(f"- {sentence}")
    if output:
        kept, removed = write_clean(output, lines, faults, settings.data)
        print(f"{kept:,} pairs are in {output}, and {removed:,} in {output.parent / REMOVED}, with place and reason.")
    elif len(sources["train"]) == 1 and any(lines[fault.row].split == "train" for fault in faults):
        print("Set output=clean.tsv to write the training text without these pairs, and a list of them.")


def _check(output: Path, sources: Sources) -> None:
    """Raises InputError if the clean text cannot be written, or not without losing another."""
    if output.suffix != ".tsv" or output.name == REMOVED:
        raise InputError(f"output={output}: give a file for the clean pairs whose name ends in .tsv, and is not {REMOVED}")
    if len(sources["train"]) > 1:
        raise InputError("output with data.extra: clean one text at a time")
    read = {path.resolve() for texts in sources.values() for text in texts for path in text.files}
    if clash := read & {output.resolve(), (output.parent / REMOVED).resolve()}:
        raise InputError(f"output={output}: would overwrite {clash.pop()}, which is read; choose another name or folder")
    if (removed := output.parent / REMOVED).exists() and not output.exists():
        raise InputError(f"{removed}: belongs to another text; choose another folder for {output}, or remove it")


def write_clean(output: Path, lines: Sequence[Line], faults: Sequence[Fault], settings: DataSettings) -> tuple[int, int]:
    """Writes the training pairs without faults to a file that the same settings read, but for data.train, and the others to
    REMOVED in its folder. Returns their numbers."""
    columns, reasons = getattr(settings, "columns", ColumnSettings()), defaultdict[int, list[str]](list)
    for fault in faults:
        reasons[fault.row].append(str(fault))
    names = [columns.src, columns.tgt]
    numbers = [name - 1 for name in names if isinstance(name, int)]
    free = (place for place in count() if place not in numbers)
    places = [name - 1 if isinstance(name, int) else next(free) for name in names]

    def row_of(*sides: str) -> str:
        cells = dict(zip(places, sides, strict=True))
        return "\t".join(cells.get(place, "") for place in range(max(places) + 1)) + "\n"

    heading = [name if isinstance(name, str) else side for name, side in zip(names, SIDES, strict=True)]
    train = [(line, ", ".join(reasons[row])) for row, line in enumerate(lines) if line.split == "train"]
    kept = [row_of(clean(line.src), clean(line.tgt)) for line, reason in train if not reason]
    removed = [(line.where, str(line.number), reason, line.src, line.tgt) for line, reason in train if reason]
    rows = ("\t".join(SEPARATORS.sub(" ", cell) for cell in cells) + "\n" for cells in removed)
    write_text(output, "".join(kept if len(numbers) == 2 else [row_of(*heading), *kept]))
    write_text(output.parent / REMOVED, "where\tline\treason\tsrc\ttgt\n" + "".join(rows))
    return len(kept), len(removed)


def advice(corpus: Corpus, lines: Sequence[Line], faults: Sequence[Fault], corresponds: bool) -> list[str]:
    """Returns a line of advice for each kind of problem that the corpus has."""
    shifted = dict.fromkeys((lines[fault.row].where, fault.detail) for fault in faults if fault.rule == "shifted")
    shifts = [f"{where}: {detail} are misaligned. Is one side shifted by a line?" for where, detail in shifted]
    copied, faulty = leaks(corpus), len({fault.row for fault in faults})
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in corpus.dropped.items())
    rules: dict[str, object] = {
        f"Dropped pairs: {reasons}. Check the empty ones; data.max_words and data.max_ratio limit length and ratio.": reasons,
        f"Pairs with a sentence from an earlier split: {copied:,}. Remove the copies there, which inflate scores.": copied,
        f"Faulty pairs: {faulty:,} of {len(lines):,}. Read some of them before you train.": faulty,
        "Pairs score no better than mismatched ones. Read some: are the lines shifted, or too few?": not corresponds,
    }
    return [*shifts, *(sentence for sentence, condition in rules.items() if condition)]


def measure(corpus: Corpus, vocabulary: Vocabulary) -> dict[str, dict[str, float]]:
    """Returns measurements of the corpus, keyed by split and then by the name of the measurement."""
    numbers: dict[str, dict[str, float]] = {name: {"pairs": len(part)} for name, part in corpus.splits.items()}
    for side, (name, part) in product(SIDES, corpus.splits.items()):
        lengths = np.array([count_words(text) for block in texts(part, side) for text in block])
        pieces = sum(len(ids) for block in texts(part, side) for ids in getattr(vocabulary, side).encode_all(block))
        numbers[name] |= {
            f"{side} words": int(lengths.sum()),
            f"{side} length in words, median": int(np.median(lengths)),
            f"{side} length in words, 95%": int(np.percentile(lengths, 95)),
            f"{side} length in words, longest": int(lengths.max()),
            f"{side} pieces per word": pieces / int(lengths.sum()),
        }
    return numbers


def leaks(corpus: Corpus) -> int:
    """Returns the number of pairs with a side that occurred in an earlier split."""
    count, earlier = 0, [set[str](), set[str]()]
    for part in corpus.splits.values():
        keys = [[match_key(corpus.without_tag(text)) for block in texts(part, side) for text in block] for side in SIDES]
        count += sum(src in earlier[0] or tgt in earlier[1] for src, tgt in zip(*keys, strict=True))
        for sentences, new in zip(earlier, keys, strict=True):
            sentences.update(new)
    return count
