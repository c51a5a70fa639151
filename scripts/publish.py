"""Writes the results of a suite, without weights and TensorBoard events:  python scripts/publish.py outputs/SUITE FOLDER

FOLDER/comparison.*          the comparison, as `entente compare` writes it
       runs.jsonl.xz         one run per line: directory, variant, seed, config, metrics, training, its curves as `history`
                             and, for each test split (or valid, if there is none), sacreBLEU's counts of each sentence and a
                             digest of the sentences. Runs that diverged have no metrics, and `diverged`; others that have not
                             finished are left out
       translations.tsv.xz   the same splits, with columns split, source, reference, and one per variant (first seed); the
                             columns of variants of which there are only rows stay as they are in FOLDER

Entente reads runs.jsonl.xz: in a suite's folder, its rows stand for the directories of these runs. The files are also meant for
people and for pandas (`pandas.read_json(file, lines=True)`).
"""

import json
import lzma
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from entente.ablation.comparison import splits_of
from entente.ablation.report import report
from entente.ablation.runs import ROWS, Run, Suite, read_suite
from entente.console import exit_codes, start_log
from entente.errors import InputError
from entente.files import open_atomic, read_file

SAMPLES = 2000
TRANSLATIONS, SIDES = "translations.tsv.xz", ("source", "reference")


def publish(suite: Suite, folder: Path) -> None:
    splits = [split for split in splits_of(suite) if "@" not in split]
    _write_compressed(folder / ROWS, [_line(run, splits) for run in suite.runs if run.metrics or run.diverged])
    columns = _stored(folder / TRANSLATIONS)
    for run in (suite.of(variant)[0] for variant in suite.variants):
        for split in (split for split in splits if split in run.metrics and not run.row):  # a row has no translations
            texts = run.translations(split)
            for side in SIDES:
                if columns.setdefault((split, side), texts[side]) != texts[side]:
                    raise InputError(f"{folder / TRANSLATIONS}: has other sentences of {split}; give another folder")
            columns[split, run.variant] = texts["translation"]
    names = [*SIDES, *(variant for variant in suite.variants if any((split, variant) in columns for split in splits))]
    lines = ["\t".join(["split", *names])]
    for split in (split for split in splits if (split, SIDES[0]) in columns):
        blank = [""] * len(columns[split, SIDES[0]])
        lines += map("\t".join, zip([split] * len(blank), *(columns.get((split, name), blank) for name in names), strict=True))
    if len(lines) > 1:
        _write_compressed(folder / TRANSLATIONS, lines)


def _stored(path: Path) -> dict[tuple[str, str], list[str]]:
    """Returns the columns of a file of translations, if there is one, by split and name."""
    if not path.exists():
        return {}
    (_, *names), *rows = [line.split("\t") for line in read_file(path, lzma.decompress).decode().split("\n")[:-1]]
    columns: dict[tuple[str, str], list[str]] = {}
    for split, *cells in rows:
        for name, cell in zip(names, cells, strict=True):
            columns.setdefault((split, name), []).append(cell)
    return columns


def _line(run: Run, splits: Sequence[str]) -> str:
    """Returns a run as one line of JSON, with null in place of values that are not finite."""
    counts = {split: run.counts(split) for split in splits if split in run.metrics}
    content: dict[str, Any] = {
        "directory": run.directory.name,
        "variant": run.config["variant"],
        "seed": run.seed,
        "config": run.config,
        "metrics": run.metrics,
        "training": run.training,
        "counts": {split: each for split, (each, _) in counts.items()},
        "sentences": {split: digest for split, (_, digest) in counts.items()},
        "history": {tag: [(step, _rounded(value)) for step, value in curve] for tag, curve in run.history.items()},
    }
    content |= {"diverged": True} if run.diverged else {}
    return json.dumps(content, ensure_ascii=False)


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None  # TensorBoard's events store float32


def _write_compressed(path: Path, lines: Iterable[str]) -> None:
    with open_atomic(path) as file:
        file.write(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) != 3:
            raise InputError("give a suite and a folder: python scripts/publish.py outputs/SUITE FOLDER")
        root, target = map(Path, sys.argv[1:])
        suite = read_suite(root)
        publish(suite, target)
        report(suite, target, SAMPLES)
