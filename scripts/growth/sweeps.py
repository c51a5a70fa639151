"""Measures the points of each sweep. Writes growth.json (all measurements, the settings, the machine) after each point, and
finally growth.md (tables with the slope of each plotted line) and plots (growth.png, growth.svg).

Each point is measured on the CPU in a process of its own, so that other points do not affect its peak memory. For a model, the
process trains on one batch of random ids and decodes it. A corpus has two points: a process reads generated text and takes one
training step, then a second process does the same with the caches that the first has written.
"""

import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal

import matplotlib
import numpy as np
import torch
from annotated_types import Interval, MultipleOf
from matplotlib.figure import Figure
from pydantic import Field
from rich.console import Console

from benchmark.cases import script
from benchmark.operations import PARTS, forward_operations
from benchmark.report import machine
from benchmark.turns import Contestant, Measured, in_turn
from entente.config.schema import problems
from entente.console import escape
from entente.data.corpora import AtLeastOne
from entente.data.tokenizer import MAX_PIECES
from entente.files import path_of, writable, write_json, write_text
from entente.process import Threads
from entente.training.run_directory import output_dir_problems
from entente.training.settings import add_defaults

HEADS, LAYERS = 4, 3  # Transformer: heads per layer, and layers per stack (encoder, decoder)
WORDS, PAIRS_PER_BLOCK = 50_000, 20_000  # number of different words in a generated corpus; pairs written at a time
OTHER_LANGUAGE = str.maketrans("aeiou", "eioua")  # makes a target sentence from a source sentence by replacing vowels
Length = Annotated[int, Interval(ge=2, le=MAX_PIECES)]
Pieces = Annotated[int, Interval(ge=400, le=1_000_000)]  # SentencePiece needs 260 pieces, and one for each distinct letter
Width = Annotated[int, Interval(ge=HEADS, le=8192), MultipleOf(HEADS), Field(description=f"a multiple of {HEADS} up to 8192")]
Point = dict[str, Any]  # keys: sweep, x, line, and either the measures or `failed`, the reason why there are none

# The measures of a model and of a corpus, with their headings. The first three of each are plotted.
MODEL_MEASURES = {"training": "training, µs a token", "decoding": "decoding, µs a token", "memory": "memory, MiB"}
MODEL_MEASURES |= {"parameters": "parameters", **{part: f"{part}, % of multiplications" for part in PARTS}}
CORPUS_MEASURES = {"ready": "corpus prepared, s", "seconds": "first step done, s", "peak_mb": "memory, MiB"}
SWEEPS = {  # for each sweep: the setting that lists its points, the label of its x axis, its measures
    "length": ("lengths", "sentence length, tokens", MODEL_MEASURES),
    "vocabulary": ("vocabularies", "vocabulary, pieces", MODEL_MEASURES),
    "width": ("widths", "width", MODEL_MEASURES),
    "corpus": ("pairs", "corpus, pairs", CORPUS_MEASURES),
}
EXPLANATION = """A training step is a forward pass, a backward pass and an update by Adam. Decoding is greedy and runs to the
last token. A model's times are medians. Memory is the peak memory of training; only the corpus sweep includes the memory of the
imports. A corpus consists of two files of generated text. Its times are counted from the start of the process, first without
caches, then with them. Slopes are measured on logarithmic axes, at the beginning and at the end of a line: 0 means constant
cost, and 1 means cost proportional to size."""


@dataclass(frozen=True)
class Growth:
    """The settings of configs/growth.yaml."""

    models: Sequence[Literal["transformer", "birnn"]]
    lengths: Sequence[Length]
    vocabularies: Sequence[Pieces]
    widths: Sequence[Width]
    pairs: Sequence[Annotated[int, Interval(ge=100, le=100_000_000)]]
    length: Length = 20
    vocabulary: Pieces = 4000
    width: Width = 128
    tokens: AtLeastOne = 2000
    repeats: AtLeastOne = 3
    burst: Annotated[float, Interval(gt=0, le=3600)] = 0.5
    threads: Threads = None
    output: str = "outputs/growth"
    output_dir: str = "outputs"


def check(config: Mapping[str, Any]) -> list[str]:
    """Returns all problems of the configuration, one line each."""
    return problems(Growth, "", config) or [
        "output" + line.removeprefix("output_dir") for line in output_dir_problems(config["output"])
    ]


def model_config(name: str, width: int) -> dict[str, Any]:
    transformer = {"d_model": width, "n_heads": HEADS, "n_layers": LAYERS, "d_ff": 4 * width}
    birnn = {"d_embedding": width, "d_hidden": width, "d_attention": width}
    return {"name": name, **(transformer if name == "transformer" else birnn)}


def run_contestant(file: str, spec: Mapping[str, Any], threads: int | None, pairs: int, **how: Any) -> Measured:
    point = Contestant("point", script(file), {**spec, "threads": threads})
    return in_turn([point], pairs, threads or torch.get_num_threads(), begin=lambda name: None, **how)["point"]


def model_point(settings: Growth, model: str, length: int, vocabulary: int, width: int) -> Point:
    config = model_config(model, width)
    spec = {"model": config, "vocabulary": vocabulary, "length": length, "tokens": settings.tokens, "burst": settings.burst}
    found = run_contestant("one_model", spec, settings.threads, settings.repeats, request={})
    if found.left_out:
        return {"failed": found.left_out}
    times = {key: statistics.median(burst[key] for burst in found.bursts) for key in ("training", "decoding")}
    point = {**times, "memory": found.warm_up["memory"], "parameters": found.about["parameters"]}
    return {**point, **(shares(config, length, vocabulary) if model == "transformer" else {})}


def shares(model: Mapping[str, Any], length: int, vocabulary: int) -> dict[str, float]:
    """Returns each part's percentage of the multiplications in a Transformer's forward pass."""
    counts = forward_operations(model, vocabulary, b=1, s=length, t=length, n=length)
    return {part: round(100 * count / sum(counts.values())) for part, count in counts.items()}


def corpus_points(settings: Growth, pairs: int) -> list[Point]:
    """Measures two runs in the same folder: the first writes the caches, the second reads them."""
    held_out = min(1000, pairs // 20)
    with tempfile.TemporaryDirectory(prefix="corpus-", dir=path_of(settings.output)) as folder:
        write_corpus(Path(folder), pairs)
        data: dict[str, Any] = {"name": "files", "src": "fr", "tgt": "en", "root": folder, "valid": None, "test": None}
        data |= {"train": {"src": "src.txt", "tgt": "tgt.txt"}, "split": {"valid": held_out, "test": held_out, "seed": 1}}
        data |= {"tokenizer": {"vocab_size": settings.vocabulary, "type": "bpe", "joint": True}, "max_words": 100}
        data |= {"batch": {"max_tokens": settings.tokens}}
        trainer = {"max_steps": 1, "validate_every": 1, "accelerator": "cpu", "threads": settings.threads}
        views = {"attention": False, "heads": 0, "translations": 0, "diagnosis": 0}
        parts = {"data": data, "model": model_config("transformer", settings.width), "trainer": trainer, "views": views}
        parts |= {part: {} for part in ("optim", "search", "checkpoint")}
        own = {"seed": 1, "name": "growth", "variant": "baseline", "overfit": False, "output_dir": folder, "resume": None}
        spec = {"task": "train", "config": add_defaults({**own, **parts})}
        found = run_contestant("ours", spec, settings.threads, 1, request={"steps": 1}, fresh=True)
    if found.left_out:
        return [{"line": "first time", "failed": found.left_out}]
    return [{"line": "first time", **found.warm_up}, {"line": "with caches", **found.bursts[0]}]


def write_corpus(folder: Path, pairs: int) -> None:
    """Writes src.txt and tgt.txt, word-for-word translations of each other. Word frequencies follow the Zipf-Mandelbrot law
    (p ~ 1 / (rank + 2.7)), and frequent words are short. Sentence lengths are log-normal, with median 12 and mean 14 words."""
    generator = np.random.default_rng(1)
    syllables = [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "é", "ou", "an")]
    by_length = chain.from_iterable(product(syllables, repeat=n) for n in (1, 2, 3))
    words = np.array(["".join(word) for word in islice(by_length, WORDS)], dtype=object)
    chances = 1 / (np.arange(WORDS) + 2.7)
    up_to = np.cumsum(chances) / chances.sum()
    with (folder / "src.txt").open("w", encoding="utf-8") as src, (folder / "tgt.txt").open("w", encoding="utf-8") as tgt:
        for start in range(0, pairs, PAIRS_PER_BLOCK):
            lengths = np.exp(generator.normal(math.log(12), 0.6, min(PAIRS_PER_BLOCK, pairs - start))).astype(int) + 1
            drawn = words[np.searchsorted(up_to, generator.random(lengths.sum()))].tolist()
            text = "".join(f"{' '.join(drawn[a:b])}.\n" for a, b in pairwise([0, *np.cumsum(lengths)]))
            src.write(text)
            tgt.write(text.translate(OTHER_LANGUAGE))


def measure_points(settings: Growth) -> Iterator[Point]:
    usual = {"length": settings.length, "vocabulary": settings.vocabulary, "width": settings.width}
    for sweep, (points, _, _) in SWEEPS.items():
        for x in getattr(settings, points):
            if sweep == "corpus":
                found = corpus_points(settings, x)
            else:
                found = [{"line": model, **model_point(settings, model, **{**usual, sweep: x})} for model in settings.models]
            yield from ({"sweep": sweep, "x": x, **point} for point in found)


def measure(config: dict[str, Any]) -> None:
    """Measures every point. Writes growth.json after each point, and the tables and plots at the end."""
    settings, points = Growth(**config), list[Point]()
    report = {**machine(), "settings": asdict(settings), "points": points}
    console, folder = Console(stderr=True), path_of(settings.output)
    with writable(f"output={settings.output}"), console.status("measuring"):
        folder.mkdir(parents=True, exist_ok=True)
        for point in measure_points(settings):
            points.append(point)
            write_json(folder / "growth.json", report)
            console.print(f"{point['sweep']} {point['x']:,}, {point['line']}: {point.get('failed', 'measured')}")
        write_text(folder / "growth.md", table(report))
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8}):
            figure = draw(points)
            figure.savefig(folder / "growth.png", dpi=150)
            figure.savefig(folder / "growth.svg", metadata={"Date": None})
    print(table(report))


def by_line(points: Sequence[Point], sweep: str) -> dict[str, list[Point]]:
    """Returns the points of a sweep, grouped by the line they are plotted on and sorted by x."""
    found: dict[str, list[Point]] = {}
    for point in sorted((point for point in points if point["sweep"] == sweep), key=lambda point: point["x"]):
        found.setdefault(point["line"], []).append(point)
    return found


def slope(points: Sequence[Point], measure: str) -> str:
    """Returns the slopes at the beginning and end of a line, on logarithmic axes, as text; a dash if it has too few points."""
    sound = [(point["x"], point[measure]) for point in points if "failed" not in point]
    slopes = [f"{math.log(y1 / y0) / math.log(x1 / x0) + 0.0:.2f}" for (x0, y0), (x1, y1) in pairwise(sound) if x0 < x1]
    return f"slope {slopes[0]}" + (f" to {slopes[-1]}" if len(slopes) > 1 else "") if slopes else "–"


def table(report: Mapping[str, Any]) -> str:
    """Returns the content of growth.md."""
    settings = report["settings"]
    head = "Measured by `{command}` at commit {commit}, with torch {torch}, on {cores} cores of {cpu}.".format(**report)
    usual = ", ".join(f"{name} {settings[name]}" for name in ("length", "vocabulary", "width"))
    fixed = f"Settings that a section does not vary have these values: {usual}, {settings['tokens']} tokens per batch."
    said = [f"# How cost grows\n\n{head}\n\n{EXPLANATION}\n{fixed}\n"]
    for sweep, (_, words, measures) in SWEEPS.items():
        rows: list[list[str]] = []
        for line, points in by_line(report["points"], sweep).items():
            for point in points:
                figures = [f"{point[name]:,.5g}" if name in point else "" for name in measures]
                rows.append([f"{point['x']:,}", line, point.get("failed", figures[0]), *figures[1:]])
            rows.append(["", f"*{line}*", *(slope(points, name) for name in [*measures][:3]), *[""] * (len(measures) - 3)])
        if rows:
            table = escape.table([words, "", *measures.values()], rows, left=2)
            said.append(f"## {words.capitalize()}\n\n{table}\n")
    return "\n".join(said)


def draw(points: Sequence[Point]) -> Figure:
    """Plots one column of panels per sweep and one row per measure, on logarithmic axes."""
    sweeps = [sweep for sweep in SWEEPS if by_line(points, sweep)]
    figure = Figure((2.9 * len(sweeps) + 0.3, 6.6), layout="constrained")
    for row, (column, sweep) in product(range(3), enumerate(sweeps)):
        name, title = [*SWEEPS[sweep][2].items()][row]
        axes = figure.add_subplot(3, len(sweeps), row * len(sweeps) + column + 1, xscale="log", yscale="log")
        axes.set_title(title, loc="left")
        axes.set_xlabel(SWEEPS[sweep][1] if row == 2 else "")
        for line, all_points in by_line(points, sweep).items():
            sound = [(point["x"], point[name]) for point in all_points if "failed" not in point]
            axes.plot(*zip(*sound, strict=True), marker="o", markersize=2.5, label=f"{line}: {slope(all_points, name)}")
        axes.legend(frameon=False)
    return figure
