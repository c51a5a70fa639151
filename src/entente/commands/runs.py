"""List the runs of a folder by data and test set, the best first. Damaged ones are named at the end.

entente runs output_dir=outputs
entente runs output_dir=outputs/quick
entente runs | grep birnn
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml

from entente import escape
from entente.cli import defaults
from entente.commands.settings import RunsSettings
from entente.errors import InputError, reason
from entente.files import read_file
from entente.settings import DataSettings
from entente.validation import flat

HEADINGS = ("run", "variant", "model", "steps", "state", "valid BLEU", "test BLEU")
# The parts of config.yaml that are read. Most runs share most parts, so that each is parsed only once.
PART = re.compile(r"^(?:variant|overfit|model|trainer|data):.*\n(?:(?:[ -].*)?\n)*", re.MULTILINE)
PROGRESS = re.compile(r" step (\d+)/\d+(?:.*BLEU ([\d.]+))?")  # in train.log
DATA = {kind.model_fields["name"].default: kind for kind in get_args(get_args(DataSettings)[0])}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is 8 times faster


class Row(NamedTuple):
    """A run. test: the name and size of its first test set, or "" before the run is evaluated. valid, bleu: BLEU on the
    validation split and on this test set, or -1."""

    data: str
    test: str
    valid: float
    bleu: float
    cells: list[str]


def main(settings: RunsSettings) -> None:
    root, rows, problems = Path(settings.output_dir), list[Row](), list[str]()
    if not root.is_dir():
        raise InputError(f"output_dir={root}: no such folder; give the folder of your runs")
    for folder in folders_of_runs(root):
        try:
            rows.append(read_row(folder))
        except (InputError, yaml.YAMLError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{folder}: damaged ({reason(error)})")
    tests = {row.data: row.test for row in rows if row.test}  # a run that is not evaluated yet joins the others
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[", ".join(filter(None, (row.data, row.test or tests.get(row.data))))].append(row)
    lines = [] if rows or problems else [f"{root}: no runs"]
    for title, group in sorted(groups.items()):
        lines += [title, *table([row.cells for row in sorted(group, key=lambda row: (-row.bleu, -row.valid))]), ""]
    print(*(escape.line(line) for line in [*lines, *problems]), sep="\n")


def folders_of_runs(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        if {"config.yaml", "train.log"} & {*files}:
            names.clear()  # do not search inside a run
            yield Path(folder)
        names.sort()


def read_row(folder: Path) -> Row:
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    parts = {part.partition(":")[0]: part for part in PART.findall(text)}
    config = {name: parse(part)[name] for name, part in parts.items()}
    data, total = describe(parts["data"]) + ", overfit=true" * config["overfit"], str(config["trainer"]["max_steps"])
    metrics = read_file(folder / "metrics.json") if (folder / "metrics.json").exists() else {}
    if metrics:
        steps, state, valid = str(read_file(folder / "training.json")["steps"]), "finished", metrics["valid"]["bleu"]
    else:
        log, output = (read_text(path) for path in (folder / "train.log", folder.with_name(f"{folder.name}.log")))
        lines = PROGRESS.findall(log)
        steps, valid = lines[-1][0] if lines else "0", float(next((bleu for _, bleu in reversed(lines) if bleu), -1))
        state = "diverged" if output.rstrip().rpartition("\n")[2].startswith("diverged:") else "unfinished"
    split = next((split for split in metrics if split != "valid"), "")
    test = f"{split} of {metrics[split]['sentences']:,} sentences" if split else ""
    bleu = metrics[split]["bleu"] if split else -1
    numbers = [f"{value:.2f}" if value >= 0 else "" for value in (valid, bleu)]
    steps += f"/{total}" * (steps != total)
    return Row(data, test, valid, bleu, [str(folder), config["variant"], config["model"]["name"], steps, state, *numbers])


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


@cache
def parse(part: str) -> Any:
    return yaml.load(part, LOADER)


@cache
def describe(part: str) -> str:
    """Returns the settings of the data as on a command line, without defaults and what does not decide which pairs are read."""
    data = parse(part)["data"]
    values = dict(flat(defaults(DATA[data["name"]])))
    settings = {key: value for key, value in flat(data) if not isinstance(value, Mapping) and values.get(key) != value}
    texts = [f"data.{key}={value}" for key, value in settings.items() if not key.startswith(("tokenizer.", "batch."))]
    return " ".join([f"data={data['name']}", *texts])


def table(rows: list[list[str]]) -> list[str]:
    """Returns lines with aligned columns, of which the last two hold numbers."""
    columns = [[heading, *column] for heading, column in zip(HEADINGS, zip(*rows, strict=True), strict=True)]
    for i, column in enumerate(columns):
        width = max(map(len, column))
        columns[i] = [cell.rjust(width) if i > 4 else cell.ljust(width) for cell in column]
    return ["  ".join(["", *cells]).rstrip() for cells in zip(*columns, strict=True)]
