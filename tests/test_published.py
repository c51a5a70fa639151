"""The pages quote published comparisons without a mistake, and one shows every intervention."""

import csv
import json
import lzma
import re
from collections import defaultdict
from pathlib import Path

import yaml

from entente.ablation.comparison import deviation, mean
from entente.ablation.report import interval, number, spread
from entente.attention.changes import CLASSES
from entente.attention.interventions import parse

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "outputs" / "published"
SCORE = r"\d[\d.,]* ± \d[\d.,]*\d"
IN_TEXT = re.compile(rf"({SCORE}) \(`(\w+)`\)")
ROW = re.compile(r"^\|.*?`(\w+)`\)? \|(.*)$", re.M)
CELL = re.compile(rf"{SCORE}|[+−][\d.,]+ \[.*?\]")


def published() -> dict[str, set[str]]:
    """Returns the scores and differences of each variant in all comparisons, and its validation NLL at the end, as the tables
    show them."""
    values, ends = defaultdict(set), defaultdict(list)
    for path in PUBLISHED.glob("grammar/*/runs.jsonl.xz"):
        for run in map(json.loads, lzma.decompress(path.read_bytes()).splitlines()):
            ends[path, run["variant"]].append(run["history"]["valid/nll"][-1][1])
    for (_, variant), nlls in ends.items():
        values[variant].add(spread({"nll": mean(nlls), "nll_sd": deviation(nlls)}, "nll", 3))
    for path in PUBLISHED.glob("*/*/comparison.csv"):
        for text in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            row = {key: float(value) for key, value in text.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value or "")}
            for split in {key.removesuffix(" bleu") for key in row if key.endswith(" bleu")}:
                difference = number(row.get(f"{split} difference"), sign=True)
                values[text["variant"]] |= {
                    spread(row, f"{split} bleu"),
                    spread(row, f"{split} nll", 3),
                    difference + interval(row.get(f"{split} low"), row.get(f"{split} high")),
                }
    return values


def test_the_pages_quote_the_comparisons() -> None:
    values, wrong, right = published(), [], 0
    for page in (ROOT / "README.md", *PUBLISHED.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        quotes = [(name, quote) for quote, name in IN_TEXT.findall(text)]
        quotes += [(name, cell) for name, cells in ROW.findall(text) for cell in CELL.findall(cells)]
        known = [(name, quote) for name, quote in quotes if name in values]
        wrong += [f"{page.name}: {name} {quote}" for name, quote in known if quote not in values[name]]
        right += len(known)
    assert not wrong and right > 250


def test_a_page_shows_every_intervention() -> None:
    lines = re.findall(r"^    (\{[^}]*\}) +#", (PUBLISHED / "interventions.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = {type(parse(yaml.safe_load(line.replace("KIND", "cross")))) for line in lines}
    assert shown == {*CLASSES.values()}
