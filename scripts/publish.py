"""Writes the results of a suite, without weights and TensorBoard events:  python scripts/publish.py outputs/SUITE FOLDER

FOLDER/comparison.*          the comparison, as `entente compare` writes it
       runs.jsonl.gz         one finished run per line: variant, seed, config, metrics, training, its curves as `history` and,
                             for each test split, sacreBLEU's counts of each sentence and a digest of the sentences
       translations.tsv.gz   the test splits, with columns split, source, reference, and one per variant (first seed)

Entente reads runs.jsonl.gz: in a suite's folder, its rows stand for the directories of these runs. The files are also meant for
people and for pandas (`pandas.read_json(file, lines=True)`).
"""

import gzip
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path

from entente.ablation.report import report
from entente.ablation.runs import ROWS, Run, Suite, read_suite
from entente.console import exit_codes, start_log
from entente.errors import InputError
from entente.files import open_atomic

SAMPLES = 2000


def publish(suite: Suite, folder: Path) -> None:
    _write_compressed(folder / ROWS, [_line(run) for run in suite.runs if run.metrics])
    firsts = [suite.of(variant)[0] for variant in suite.variants]
    runs = [run for run in firsts if run.metrics and not run.row]  # a row has no translations
    lines = [["split", "source", "reference", *(run.variant for run in runs)]]
    for split in dict.fromkeys(split for run in runs for split in _test_splits(run)):
        texts = [run.translations(split) if split in run.metrics else None for run in runs]
        first = next(text for text in texts if text)
        columns = [text["translation"] if text else [""] * len(first["source"]) for text in texts]
        lines += [[split, *row] for row in zip(first["source"], first["reference"], *columns, strict=True)]
    if runs:
        _write_compressed(folder / "translations.tsv.gz", map("\t".join, lines))


def _test_splits(run: Run) -> list[str]:
    return [split for split in run.metrics if split != "valid" and "@" not in split]


def _line(run: Run) -> str:
    """Returns a run as one line of JSON, with null in place of values that are not finite."""
    counts = {split: run.counts(split) for split in _test_splits(run)}
    content = {
        "variant": run.config["variant"],
        "seed": run.seed,
        "config": run.config,
        "metrics": run.metrics,
        "training": run.training,
        "counts": {split: each for split, (each, _) in counts.items()},
        "sentences": {split: digest for split, (_, digest) in counts.items()},
        "history": {tag: [(step, _rounded(value)) for step, value in curve] for tag, curve in run.history.items()},
    }
    return json.dumps(content, ensure_ascii=False)


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None  # TensorBoard's events store float32


def _write_compressed(path: Path, lines: Iterable[str]) -> None:
    """Writes the lines to a gzip file whose header has no time stamp or file name, so that equal lines give equal bytes."""
    content = "".join(f"{line}\n" for line in lines).encode()
    with open_atomic(path) as file:
        file.write(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) != 3:
            raise InputError("give a suite and a folder: python scripts/publish.py outputs/SUITE FOLDER")
        root, target = map(Path, sys.argv[1:])
        suite = read_suite(root)
        publish(suite, target)
        report(suite, target, SAMPLES)
