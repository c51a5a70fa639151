"""How cost grows: with sentences, vocabulary, width and corpus.

OUTPUT/growth.md            a table for each of the four, with the slopes and what they come from
       growth.png, .svg     the same as lines
       growth.json          every figure, the settings, the versions and the command; written after each point

Every point is a process of its own, on the CPU, so that its peak memory is its own. A model's point trains on one batch of
random ids through Lightning's trainer, then decodes it greedily, to the last token of every sentence. For a corpus's point text
is written, then goes the whole road of a run to the first optimiser step, and goes it again with the caches that it left.

Units: seconds, bytes. L tokens of a sentence, V pieces, D width.
"""

import inspect
import itertools
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import lightning as L
import matplotlib
import numpy as np
import torch
from annotated_types import Ge, Interval
from lightning.pytorch.callbacks import Callback
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from entente import checkpoint
from entente.benchmark.wire import peak_kb
from entente.config.schema import defaults, problems
from entente.data.batches import Batch
from entente.data.tokenizer import BOS, EOS, LONGEST, SPECIAL, Vocabulary
from entente.decoding.search import Search, search
from entente.errors import InputError
from entente.fast.packed import packed
from entente.files.reading import path_of
from entente.files.writing import whole, writable, write_json, write_text
from entente.models.seq2seq import evaluating, parameter_count
from entente.process import Threads, prepare_process
from entente.training.optim import Optim
from entente.training.run_directory import no_folder
from entente.training.settings import RunSettings
from entente.training.train import prepared
from entente.training.trainer import TrainerSettings, build_trainer
from entente.training.translator import Translator

HEADS, LAYERS = 4, 3  # of the Transformer; as many layers in the decoder as in the encoder
A_PAIR = 600  # bytes on the disk, text and caches; measured: 350
A_MODEL = 15.0  # seconds, guessed

Count = Annotated[int, Ge(1)]
Length = Annotated[int, Interval(ge=2, le=LONGEST)]
Pieces = Annotated[int, Interval(ge=400, le=1_000_000)]  # SentencePiece needs 260 and the letters
Width = Annotated[int, Interval(ge=HEADS, le=8192)]


def one_model(models: Sequence[str]) -> None:
    if not models:
        raise ValueError("models=[]: give one at least, models=[transformer]")


def longest_fits(tokens: int, length: int, lengths: Sequence[int]) -> None:
    longest = max([length, *lengths])
    if tokens < longest:
        raise ValueError(f"tokens={tokens}: a batch holds one sentence at least; give {longest} or more, or shorter lengths")


def heads_share_width(models: Sequence[str], width: int, widths: Sequence[int]) -> None:
    if "transformer" not in models:
        return
    for name, values in (("width", [width]), ("widths", widths)):
        if odd := [str(value) for value in values if value % HEADS]:
            shared = f"the Transformer's {HEADS} heads share the width; give multiples of {HEADS}"
            raise ValueError(f"{name}={','.join(odd)}: {shared}")


@dataclass(frozen=True)
class Growth:
    """configs/growth.yaml"""

    models: Sequence[Literal["transformer", "birnn"]]
    lengths: Sequence[Length]
    vocabularies: Sequence[Pieces]
    widths: Sequence[Width]
    pairs: Sequence[Annotated[int, Interval(ge=100, le=100_000_000)]]
    length: Length = 20
    vocabulary: Pieces = 4000
    width: Width = 128
    tokens: Count = 2000
    repeats: Count = 3
    burst: Annotated[float, Interval(gt=0, le=3600)] = 0.5
    threads: Threads = None
    output: str = "outputs/growth"
    output_dir: str = "outputs"

    relations = (one_model, longest_fits, heads_share_width)


def check(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the configuration, one line each."""
    return problems(Growth, "", config) or ["output" + line.removeprefix("output_dir") for line in no_folder(config["output"])]


class Sweep(NamedTuple):
    """What grows: the setting that says where it stands otherwise, the one that lists its points, words for it, and why cost
    grows as it does."""

    setting: str
    points: str
    words: str
    reason: str


SWEEPS = (
    Sweep(
        "length",
        "lengths",
        "sentence length, tokens",
        "attention compares every token with every other: L² a sentence, L a token, beside work that is the same for each, so "
        "that lines are flat first and bend upwards. Of longer sentences a batch holds fewer, so that what goes token by token "
        "(decoding, and a recurrent network in training too) does less at a time: slope 1 where a step takes as long for few "
        "rows as for many",
    ),
    Sweep(
        "vocabulary",
        "vocabularies",
        "vocabulary, pieces",
        "the projection takes V × D a token, its softmax V, and Adam's update of the embedding V × D a step: slope 1 once they "
        "outweigh the layers, which know nothing of V",
    ),
    Sweep(
        "width",
        "widths",
        "width",
        "the layers multiply by matrices of D × D and D × 4 D: slope 2 once these outweigh what is D a token (projection, "
        "attention, norms) and what a call takes whatever its size",
    ),
)
OF_PAIRS = (
    "every pair is read, cleaned, split off, encoded once, and hashed to find its cache: slope 1 beside the imports and the "
    "tokenizer's training, which sees a bounded sample; memory holds the text and what an epoch's order takes"
)
NAMES = {"transformer": "Transformer", "birnn": "BiRNN"}
MEASURES = {  # of a model's point: words, unit, its size
    "train": ("training", "µs a target token", 1e-6),
    "decode": ("greedy decoding", "µs a target token", 1e-6),
    "memory": ("memory", "MiB above torch alone", 2**20),
}


# A point, in a process of its own


def peak_memory() -> int:
    """Of this process, resident, in bytes."""
    return int(peak_kb() * 1024)


class Bursts(Callback):
    """Calls of one kind timed in bursts of at least `seconds`, the first burst a warm-up. `first` is when the first call ended,
    by time.time."""

    def __init__(self, repeats: int, seconds: float) -> None:
        self._left, self._seconds = 1 + repeats, seconds
        self._calls, self._begin = 0, time.perf_counter()
        self._figures: list[float] = []
        self.first = 0.0

    @property
    def done(self) -> bool:
        return self._left == 0

    @property
    def median(self) -> float:
        """Seconds a call."""
        return statistics.median(self._figures[1:])

    def tick(self) -> None:
        """After each call."""
        now = time.perf_counter()
        self.first = self.first or time.time()
        self._calls += 1
        if now - self._begin >= self._seconds:
            self._figures.append((now - self._begin) / self._calls)
            self._calls, self._begin, self._left = 0, now, self._left - 1

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.tick()
        trainer.should_stop = self.done


class Numbers:
    """So many pieces without text, for random ids."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def model_config(name: str, width: int) -> dict[str, Any]:
    if name == "transformer":
        return {"name": name, "d_model": width, "n_heads": HEADS, "n_layers": LAYERS, "d_ff": 4 * width}
    return {"name": name, "d_embedding": width, "d_hidden": width, "d_attention": width}


def trainer_config(max_steps: int, threads: int | None) -> dict[str, Any]:
    own = {"max_steps": max_steps, "validate_every": max_steps + 1, "accelerator": "cpu", "threads": threads}
    return {**defaults(TrainerSettings), **own}


def random_batch(length: int, vocabulary: int, tokens: int) -> Batch:
    """As many sentences of `length` tokens, the end symbol counted, as `tokens` holds."""
    rows = tokens // length
    ids = torch.randint(len(SPECIAL), vocabulary, (2, rows, length), generator=torch.Generator().manual_seed(1))
    ids[:, :, -1] = EOS
    return Batch(ids[0], torch.cat([torch.full((rows, 1), BOS), ids[1]], dim=1), torch.arange(rows))


def model_point(
    model: str, length: int, vocabulary: int, width: int, tokens: int, repeats: int, burst: float, threads: int | None
) -> dict[str, Any]:
    prepare_process(threads)
    idle = peak_memory()
    pieces = cast(Any, Numbers(vocabulary))
    words = Vocabulary(pieces, pieces, joint=True)
    steps = 2**31
    net = checkpoint.build(model_config(model, width), words, seed=1)
    translator = Translator(net, words, Optim(), Search(), max_steps=steps)
    batch = random_batch(length, vocabulary, tokens)
    counted = batch.src.numel()  # as many as there are target tokens to predict

    training = Bursts(repeats, burst)
    build_trainer(TrainerSettings(**trainer_config(steps, threads)), None, [training]).fit(translator, itertools.repeat(batch))
    memory = peak_memory()

    decoding = Bursts(repeats, burst)
    how = Search(length_factor=0, length_offset=length)
    never = -1  # a symbol that no model produces, so that every sentence is decoded to its limit
    with evaluating(net), packed(net):
        while not decoding.done:
            search(net, batch.src, how, BOS, never)
            decoding.tick()
    return {
        "train": training.median / counted,
        "decode": decoding.median / counted,
        "memory": memory,
        "idle": idle,
        "first_step": training.first,
        "parameters": parameter_count(net),
        "threads": torch.get_num_threads(),
    }


def corpus_point(folder: str, pairs: int, vocabulary: int, width: int, tokens: int, threads: int | None) -> dict[str, Any]:
    prepare_process(threads)
    held_out = min(1000, pairs // 20)
    config: dict[str, Any] = {
        "data": {
            **{"name": "files", "src": "fr", "tgt": "en", "root": folder, "train": FILES, "valid": None, "test": None},
            "max_words": 100,
            "split": {"valid": held_out, "test": held_out, "seed": 1},
            "tokenizer": {"vocab_size": vocabulary, "type": "bpe", "joint": True},
            "batch": {"max_tokens": tokens},
        },
        "model": model_config("transformer", width),
        "optim": asdict(Optim()),
        "search": asdict(Search()),
        "trainer": trainer_config(1, threads),
        "seed": 1,
        "overfit": False,
        "output_dir": folder,
    }
    settings = RunSettings.of(config)
    data, translator = prepared(settings)
    ready, memory = time.time(), peak_memory()
    first = Bursts(1, math.inf)
    build_trainer(settings.trainer, None, [first]).fit(translator, datamodule=data)
    return {"prepared": ready, "first_step": first.first, "memory_prepared": memory, "memory": peak_memory()}


POINTS: dict[str, Callable[..., dict[str, Any]]] = {"model": model_point, "corpus": corpus_point}
STAMPS = ("prepared", "first_step")  # by time.time; seconds from the start of the process once they are home


def in_a_process(kind: str, **arguments: Any) -> dict[str, Any]:
    """What a point gives; `failed` is why it gave nothing."""
    started = time.time()
    command = [sys.executable, "-m", "entente.benchmark.growth", kind, json.dumps(arguments)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:  # no memory for another process, say
        return {"failed": f"not started: {error.strerror or error}"}
    if ended.returncode:
        said = ended.stderr.strip().splitlines()[-1:] or ["nothing said"]
        return {"failed": f"killed by signal {-ended.returncode}" if ended.returncode < 0 else said[0]}
    figures = json.loads(ended.stdout.splitlines()[-1])
    return {key: value - started if key in STAMPS else value for key, value in figures.items()}


def bare_memory() -> int:
    """Peak memory of a process that imports torch and does nothing."""
    code = f"import resource, sys, torch\n{inspect.getsource(peak_kb)}print(peak_kb())"
    return int(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) * 1024)


# A corpus

FILES = {"src": "src.txt", "tgt": "tgt.txt"}
WORDS = 50_000  # a side
AT_ONCE = 20_000  # pairs


def write_corpus(folder: Path, pairs: int, seed: int = 1) -> int:
    """src.txt and tgt.txt, a word of one for each word of the other; their size in bytes. Words are drawn by Zipf's law as
    Mandelbrot has it (p ~ 1 / (rank + 2.7)), frequent ones are short; lengths are log-normal: median 12 words, mean 14, one
    sentence in a hundred longer than 48."""
    generator = np.random.default_rng(seed)
    chances = 1 / (np.arange(WORDS) + 2.7)
    up_to = np.cumsum(chances) / chances.sum()
    sides = [_words(generator) for _ in FILES]
    with (folder / FILES["src"]).open("w", encoding="utf-8") as src, (folder / FILES["tgt"]).open("w", encoding="utf-8") as tgt:
        for start in range(0, pairs, AT_ONCE):
            lengths = np.exp(generator.normal(math.log(12), 0.6, min(AT_ONCE, pairs - start))).astype(int) + 1
            drawn = np.searchsorted(up_to, generator.random(lengths.sum()))
            ends = np.cumsum(lengths).tolist()
            for file, words in zip((src, tgt), sides, strict=True):
                text = words[drawn].tolist()
                file.writelines(f"{' '.join(text[a:b])}.\n" for a, b in zip([0, *ends], ends, strict=False))
    return sum((folder / name).stat().st_size for name in FILES.values())


def _words(generator: np.random.Generator) -> np.ndarray:
    """104 words of one syllable, then those of two, then of three."""
    syllables = generator.permutation(
        [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "é", "ou", "an")]
    ).tolist()
    by_length = itertools.chain.from_iterable(itertools.product(syllables, repeat=n) for n in itertools.count(1))
    return np.array(["".join(word) for word in itertools.islice(by_length, WORDS)], dtype=object)


# All points


def measure(config: dict[str, Any]) -> None:
    """Measures every point and writes the table, the picture and the figures."""
    settings = Growth(**config)
    with writable(f"output={settings.output}"):
        _measure(settings, path_of(settings.output))


def _measure(settings: Growth, folder: Path) -> None:
    _refuse_full_disk(settings, folder)
    bare = bare_memory()
    report: dict[str, Any] = {
        "settings": asdict(settings),
        "versions": {
            **checkpoint.provenance(),
            **{name: version(name) for name in ("lightning", "sentencepiece", "datasets", "pyarrow", "numpy")},
        },
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.processor() or platform.machine(),
            "system": platform.platform(),
        },
        "bare": bare,
        "models": [],
        "corpora": [],
    }
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    points = model_points(settings)
    with Progress(*columns, console=console, transient=True) as progress:
        # In guessed seconds, since a corpus takes longer than a model.
        corpora = [*dict.fromkeys(settings.pairs)]  # each once
        task = progress.add_task("", total=sum([A_MODEL * len(points), *map(_seconds, corpora)]))
        for point in points:
            progress.update(task, description=_words_of(point))
            common = {key: getattr(settings, key) for key in ("tokens", "repeats", "burst", "threads")}
            report["models"].append({**point, **in_a_process("model", **point, **common)})
            write_json(folder / "growth.json", report)
            progress.console.print(f"{_words_of(point)}: {_said(report['models'][-1])}", highlight=False, soft_wrap=True)
            progress.advance(task, A_MODEL)
        for pairs in corpora:
            progress.update(task, description=f"{pairs:,} pairs")
            report["corpora"].append(corpus(settings, pairs, folder))
            write_json(folder / "growth.json", report)
            progress.console.print(f"{pairs:,} pairs: {_said(report['corpora'][-1])}", highlight=False, soft_wrap=True)
            progress.advance(task, _seconds(pairs))
    write_text(folder / "growth.md", table(report))
    save(draw(report), folder)
    print(table(report))


def _seconds(pairs: int) -> float:
    """Guessed."""
    return 20 + pairs * 2e-4


def _refuse_full_disk(settings: Growth, folder: Path) -> None:
    """Before the first corpus takes what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = A_PAIR * max(settings.pairs, default=0), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"pairs={max(settings.pairs)}: text and caches take {needed / 1e9:,.1f} GB for a while in {folder}, where "
            f"{free / 1e9:,.1f} are free; give fewer, or another output"
        )


def model_points(settings: Growth) -> list[dict[str, Any]]:
    """Each once, even where sweeps cross."""
    usual = {sweep.setting: getattr(settings, sweep.setting) for sweep in SWEEPS}
    points = [{**usual, sweep.setting: x} for sweep in SWEEPS for x in getattr(settings, sweep.points)]
    return [{"model": model, **point} for i, point in enumerate(points) if point not in points[:i] for model in settings.models]


def corpus(settings: Growth, pairs: int, folder: Path) -> dict[str, Any]:
    """Twice the same road, in the same folder: made, then found."""
    with tempfile.TemporaryDirectory(prefix="corpus-", dir=folder) as name:
        started = time.perf_counter()
        size = write_corpus(Path(name), pairs)
        written = time.perf_counter() - started
        arguments = {key: getattr(settings, key) for key in ("vocabulary", "width", "tokens", "threads")}
        first, again = (in_a_process("corpus", folder=name, pairs=pairs, **arguments) for _ in range(2))
    return {"pairs": pairs, "text": size, "written": written, "first": first, "again": again}


def _words_of(point: Mapping[str, Any]) -> str:
    return ", ".join([point["model"], *(f"{sweep.setting} {point[sweep.setting]}" for sweep in SWEEPS)])


def _said(figures: Mapping[str, Any]) -> str:
    if "first" in figures:
        return f"first time {_said(figures['first'])}; again {_said(figures['again'])}"
    if "failed" in figures:
        return str(figures["failed"])
    memory = f"{figures['memory'] / 2**20:,.0f} MiB"
    if "prepared" in figures:
        return f"prepared in {figures['prepared']:.1f} s, first step after {figures['first_step']:.1f} s, {memory}"
    return f"{figures['train'] * 1e6:.0f} µs a token in training, {figures['decode'] * 1e6:.0f} in decoding, {memory}"


# What it says

Line = tuple[list[float], list[float]]


def lines_of(report: Mapping[str, Any], sweep: Sweep, measure: str) -> dict[str, Line]:
    """By model, what was measured at the sweep's points, in the unit of MEASURES."""
    settings, unit = report["settings"], MEASURES[measure][2]
    found: dict[str, Line] = {}
    for model in settings["models"]:
        points = sorted((p[sweep.setting], p[measure]) for p in of_sweep(report, sweep, model) if "failed" not in p)
        base = report["bare"] if measure == "memory" else 0
        found[model] = [float(x) for x, _ in points], [(y - base) / unit for _, y in points]
    return found


def of_sweep(report: Mapping[str, Any], sweep: Sweep, model: str) -> list[dict[str, Any]]:
    """The points at which all but what grows stands as usual."""
    settings = report["settings"]
    others = [other.setting for other in SWEEPS if other is not sweep]
    return [
        point
        for point in report["models"]
        if point["model"] == model
        and all(point[other] == settings[other] for other in others)
        and point[sweep.setting] in settings[sweep.points]
    ]


OF_CORPUS = {  # of a corpus's point: words, its size
    "prepared": ("prepared, s", 1.0),
    "first_step": ("to the end of the first step, s", 1.0),
    "memory": ("memory, MiB above torch alone", 2**20),
}


def corpus_lines(report: Mapping[str, Any], part: str) -> dict[str, Line]:
    """`first` and `again`."""
    found: dict[str, Line] = {}
    base = report["bare"] if part == "memory" else 0
    for which in RUNS:
        points = sorted((c["pairs"], c[which][part]) for c in report["corpora"] if "failed" not in c[which])
        found[which] = [float(x) for x, _ in points], [(y - base) / OF_CORPUS[part][1] for _, y in points]
    return found


def slope(line: Line) -> str:
    """Of the line on logarithmic axes, in words; straight where no point is more than a tenth beside it."""
    if len(line[0]) < 2 or min(line[1]) <= 0:
        return "–"
    x, y = np.log(line[0]), np.log(line[1])
    fitted = np.polyfit(x, y, 1)
    if len(x) > 2 and np.abs(np.polyval(fitted, x) - y).max() < math.log(1.1):
        return f"straight, slope {_two(fitted[0])}"
    steps = np.diff(y) / np.diff(x)
    return f"slope {_two(steps[0])}" + (f", at the end {_two(steps[-1])}" if len(steps) > 1 else "")


def _two(number: float) -> str:
    """With two digits and a real minus, but none before a zero."""
    return f"{round(number, 2) + 0.0:.2f}".replace("-", "−")


def shares(length: int, vocabulary: int, width: int) -> dict[str, float]:
    """Of the Transformer's multiplications in a forward pass, a target token and a source token: what part is where. Vaswani et
    al. 2017, table 1: a self-attention takes L² D a sentence, a product with a matrix L D²."""
    attention = LAYERS * 3 * 2 * length * width  # three attentions, each scores and means
    layers = LAYERS * (12 + 16) * width**2  # four projections an attention, two products of the feed-forward network, 4 D wide
    counts = {"attention": attention, "layers": layers, "projection": vocabulary * width}
    return {part: count / sum(counts.values()) for part, count in counts.items()}


def table(report: Mapping[str, Any]) -> str:
    """growth.md"""
    settings, versions, machine = report["settings"], report["versions"], report["machine"]
    usual = ", ".join(f"{sweep.setting} {settings[sweep.setting]}" for sweep in SWEEPS)
    idle = [point["idle"] - report["bare"] for point in report["models"] if "failed" not in point]
    of_imports = f", of which what a run imports is {max(idle) / 2**20:,.0f}" if idle else ""
    bursts = f"burst{'s' * (settings['repeats'] > 1)}"
    said = [
        f"# How cost grows\n\n{machine['processor']}, {machine['cores']} cores; torch {versions['torch']}, commit "
        f"{versions['commit']}: `{versions['command']}`\n\nWhere it does not grow itself: {usual}; {settings['tokens']} tokens "
        "a batch. Training is a step, forward, backward and Adam; decoding is greedy, to the last token. Times are medians of "
        f"{settings['repeats']} {bursts} of at least {settings['burst']:g} s, after one that warms up. Memory is the peak of a "
        f"training process, above the {report['bare'] / 2**20:,.0f} MiB of one that only imports torch{of_imports}. Start-up "
        "is from the process's beginning to the end of its first step. A slope is that of the line on logarithmic axes: 0 "
        "where cost stays, 1 where it grows in proportion; of a line that bends, at its beginning and at its end.\n"
    ]
    for sweep in SWEEPS:
        if settings[sweep.points]:
            said.append(_sweep_table(report, sweep))
    if settings["pairs"]:
        said.append(_corpus_table(report))
    return "\n".join(said)


PARTS = "attention / layers / projection, % of multiplications"


def _sweep_table(report: Mapping[str, Any], sweep: Sweep) -> str:
    rows = [
        [sweep.words, "", "training, µs a token", "decoding, µs a token", "memory, MiB", "start-up, s", "parameters", PARTS]
    ]
    for model in report["settings"]["models"]:
        for p in sorted(of_sweep(report, sweep, model), key=lambda point: point[sweep.setting]):
            first = [f"{p[sweep.setting]:,}", NAMES[model]]
            if "failed" in p:
                rows.append([*first, p["failed"], *[""] * 5])
                continue
            times = [f"{p[name] * 1e6:,.1f}" for name in ("train", "decode")]
            memory = (p["memory"] - report["bare"]) / 2**20
            where = shares(*(p[other.setting] for other in SWEEPS)).values() if model == "transformer" else ()
            parts = " / ".join(f"{100 * share:.0f}" for share in where)
            rows.append([*first, *times, f"{memory:,.0f}", f"{p['first_step']:.1f}", f"{p['parameters']:,}", parts])
        slopes = [slope(lines_of(report, sweep, measure)[model]) for measure in MEASURES]
        rows.append([f"*{NAMES[model]}*", "", *(f"*{words}*" for words in slopes), "", "", ""])
    return f"## {sweep.words[0].upper()}{sweep.words[1:]}\n\n{_markdown(rows, 2)}\nWhy: {sweep.reason}.\n"


def _corpus_table(report: Mapping[str, Any]) -> str:
    rows = [["pairs", "", "text, MB", "prepared, s", "first step, s", "memory, MiB", "of it till prepared, MiB"]]
    for c in report["corpora"]:
        for which, words in RUNS.items():
            p, first = c[which], [f"{c['pairs']:,}", words, f"{c['text'] / 1e6:,.1f}"]
            if "failed" in p:
                rows.append([*first, p["failed"], *[""] * 3])
                continue
            memory = [f"{p[key] / 2**20:,.0f}" for key in ("memory", "memory_prepared")]
            rows.append([*first, f"{p['prepared']:.1f}", f"{p['first_step']:.1f}", *memory])
    for which, words in RUNS.items():
        rows.append(["", f"*{words}*", "", *(f"*{slope(corpus_lines(report, part)[which])}*" for part in OF_CORPUS), ""])
    return (
        f"## Corpus\n\n{_markdown(rows, 2)}\nFrom two files of made text to the first step of the Transformer, from the "
        "process's beginning. Memory is all that the process held at its peak; its slope is of what is above torch alone. The "
        f"first time everything is made; again, tokenizer and token ids are found in the cache.\n\nWhy: {OF_PAIRS}.\n"
    )


def _markdown(rows: Sequence[Sequence[str]], words: int) -> str:
    """words: columns of words, at the left; numbers follow."""
    marks = ["---"] * words + ["---:"] * (len(rows[0]) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in [rows[0], marks, *rows[1:]])


RUNS = {"first": "first time", "again": "with caches"}
COLORS = {"transformer": "#0072b2", "birnn": "#d55e00", "first": "#333333", "again": "#999999"}  # Okabe and Ito
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "growth",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
}


def draw(report: Mapping[str, Any]) -> Figure:
    """A column of panels for each thing that grows, a row for each measure; both axes logarithmic."""
    settings = report["settings"]
    sweeps = [sweep for sweep in SWEEPS if settings[sweep.points]]
    across = len(sweeps) + bool(settings["pairs"])
    with matplotlib.rc_context(STYLE):
        figure = Figure((2.9 * across + 0.3, 6.6), layout="constrained")
        if not across:
            return figure
        grid = figure.subplots(3, across, sharex="col", squeeze=False)
        for j, sweep in enumerate(sweeps):
            for i, (measure, (words, unit, _)) in enumerate(MEASURES.items()):
                _panel(grid[i, j], lines_of(report, sweep, measure), f"{words}, {unit}", NAMES)
            grid[2, j].set_xlabel(sweep.words)
        if settings["pairs"]:
            for i, (part, (title, _)) in enumerate(OF_CORPUS.items()):
                _panel(grid[i, -1], corpus_lines(report, part), title, RUNS)
            grid[2, -1].set_xlabel("corpus, pairs")
    return figure


def _panel(axes: Axes, lines: Mapping[str, Line], title: str, names: Mapping[str, str]) -> None:
    """Lines that can be drawn, each named with its slope."""
    drawn = {name: line for name, line in lines.items() if line[0] and min(line[1]) > 0}
    axes.set_title(title, loc="left")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, (x, y) in drawn.items():
        axes.plot(x, y, color=COLORS[name], linewidth=1.1, marker="o", markersize=2.5, label=f"{names[name]}: {slope((x, y))}")
    if drawn:
        every = sorted(itertools.chain.from_iterable(x for x, _ in drawn.values()))
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(every))))
        axes.legend(frameon=False, fontsize=6.5, handlelength=1, loc="upper left")
        values = list(itertools.chain.from_iterable(y for _, y in drawn.values()))
        middle, half = math.sqrt(min(values) * max(values)), max(2.0, 1.15 * math.sqrt(max(values) / min(values)))
        axes.set_ylim(middle / half, middle * half ** (1 + 0.6))  # noise is no growth; and room for the names
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}"))


def _short(number: float) -> str:
    """64000 as 64k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def save(figure: Figure, folder: Path) -> None:
    for form, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
        with whole(folder / f"growth.{form}") as file, matplotlib.rc_context(STYLE):
            figure.savefig(file, format=form, **cast(Any, options))


if __name__ == "__main__":
    print("\n" + json.dumps(POINTS[sys.argv[1]](**json.loads(sys.argv[2]))))
