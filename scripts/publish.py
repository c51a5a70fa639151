"""Writes the results of a suite, without weights and TensorBoard events:  python scripts/publish.py outputs/SUITE FOLDER

FOLDER/comparison.*    the comparison, as `entente compare` writes it
       settings.yaml   a copy of suite.yaml
       runs.jsonl.gz   one run per line: variant, seed, status, config, metrics, training, proof, and its curves as `history`
       translations/   SPLIT.tsv.gz for each test split, with columns source, reference, and one per variant (first seed)

The files are meant for people and for pandas (`pandas.read_json(file, lines=True)`); Entente itself does not read them.
"""

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from entente.ablation.comparison import Compare
from entente.ablation.page import report
from entente.ablation.runs import Run, Suite, read_suite
from entente.console.endings import endings
from entente.errors import InputError
from entente.files import open_atomic, path_of, writable, write_text


def publish(suite: Suite, folder: Path) -> None:
    write_text(folder / "settings.yaml", (suite.directory / "suite.yaml").read_text(encoding="utf-8"))
    _write_compressed(folder / "runs.jsonl.gz", map(_line, suite.runs))
    splits = dict.fromkeys(split for run in suite.runs for split in run.test_splits)
    for split in splits:
        runs = [run for run in suite.runs if run.seed == suite.settings.seeds[0] and split in run.metrics]
        if found := suite.translations(split, runs):
            rows = zip(found[0].source, found[0].reference, *(one.translation for one in found), strict=True)
            lines = map("\t".join, [["source", "reference", *(run.variant for run in runs)], *rows])
            _write_compressed(folder / "translations" / f"{split}.tsv.gz", lines)


def _line(run: Run) -> str:
    """Returns a run as one line of JSON, with null in place of NaN."""
    content: dict[str, Any] = {
        "variant": run.variant,
        "seed": run.seed,
        "status": run.status.model_dump(),
        "config": run.config,
    }
    for name in ("metrics", "training", "proof"):
        if (path := run.directory / f"{name}.json").exists():
            content[name] = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    finite = {tag: [(step, value if value == value else None) for step, value in curve] for tag, curve in run.history.items()}
    return json.dumps({**content, "history": finite}, ensure_ascii=False)


def _write_compressed(path: Path, lines: Iterable[str]) -> None:
    """Writes the lines to a gzip file whose header has no time stamp or file name, so that equal lines give equal bytes."""
    content = "".join(f"{line}\n" for line in lines).encode()
    with open_atomic(path) as file:
        file.write(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    with endings():
        if len(sys.argv) != 3:
            raise InputError("give a suite and a folder: python scripts/publish.py outputs/SUITE FOLDER")
        root, target = map(path_of, sys.argv[1:])
        with writable(str(target), "folder"):
            publish(read_suite(root), target)
        report(Compare(str(root), output=str(target)))
