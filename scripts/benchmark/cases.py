"""Measures the cases of the benchmark. The programs that a case compares, its contestants, get the same settings and data."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from benchmark.batches import write_batches
from benchmark.contestants.ours import pairs_to_decode
from benchmark.results import Result, case_result
from benchmark.settings import Benchmark
from benchmark.turns import OURS, Contestant, Measured, in_turn
from entente import checkpoint
from entente.commands.stored import load_run, stored_corpus
from entente.data.batches import Rows, collate
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.decoding.ctranslate2 import write_ctranslate2
from entente.errors import InputError
from entente.files import path_of
from entente.training.settings import RunSettings
from entente.training.train import prepare_run
from entente.training.translator import Translator

log = logging.getLogger("entente")

PROFILED_STEPS = 3
MARIAN = "Marian (transformers)"
CPU_ONLY = "measured only on the CPU in float32"
COMPUTE_TYPES = ("float32", "int8")  # the precisions in which CTranslate2 is measured
PEER_PRECISIONS = ("32-true", "bf16-mixed")  # precisions that the Marian training loop and the ceiling support
PRECISION = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed", "64": "64-true"}  # Lightning's short names
# The beam size of each decoding case, and whether its model is a trained checkpoint.
DECODING = {"greedy": (1, False), "beam": (5, False), "greedy_trained": (1, True), "beam_trained": (5, True)}


def script(name: str, python: str = sys.executable) -> list[str]:
    """Returns the command that runs the contestant in contestants/NAME.py."""
    return [str(path_of(python)), str(Path(__file__).parent / "contestants" / f"{name}.py")]


@dataclass
class Bench:
    """A benchmark session. `config` is the configuration of the run to measure, `folder` a temporary folder for the files that
    contestants read. `begin` is called with a contestant's name before each of its bursts (timed measurements)."""

    config: dict[str, Any]
    settings: Benchmark
    folder: Path
    begin: Callable[[str], None]

    @cached_property
    def threads(self) -> int:
        return int(self.config["trainer"]["threads"] or torch.get_num_threads())

    @cached_property
    def device(self) -> str:
        wanted = self.config["trainer"]["accelerator"]
        return "cuda" if wanted in ("gpu", "cuda") or (wanted == "auto" and torch.cuda.is_available()) else "cpu"

    @cached_property
    def prepared(self) -> tuple[TranslationData, Translator]:
        return prepare_run(RunSettings.of(self.config))

    @property
    def data(self) -> TranslationData:
        return self.prepared[0]

    @cached_property
    def common(self) -> dict[str, Any]:
        """The settings that Marian, JoeyNMT, EOLE and the ceiling have in common."""
        precision = str(self.config["trainer"]["precision"])
        return {
            "seed": self.config["seed"],
            "threads": self.threads,
            "device": self.device,
            "precision": PRECISION.get(precision, precision),
            "model": self.config["model"],
            "optim": self.config["optim"],
            "clip": self.config["trainer"]["gradient_clip"],
            "vocabulary": len(self.data.vocabulary.tgt),
        }

    @cached_property
    def batches(self) -> dict[str, Any]:
        """The settings of a training contestant: the file with the batches of all bursts, and the longest sequence length."""
        steps = self.settings.steps * (self.settings.pairs + 1) + PROFILED_STEPS
        path = self.folder / "batches.npz"
        batches = islice(self.data.train_dataloader(), steps)
        longest = write_batches(path, ((batch.src.numpy(), batch.tgt.numpy()) for batch in batches))
        return {"task": "train", "batches": str(path), "longest": longest}

    @cached_property
    def text(self) -> dict[str, Any]:
        """The settings with which JoeyNMT reads the data itself: paths of text, tokenizer and vocabulary, and batch size."""
        path, tokenizer, pieces = self.folder / "train", self.folder / "tokenizer.model", self.folder / "pieces.txt"
        vocabulary, train = self.data.vocabulary.tgt, self.data.corpus.train
        for side in ("src", "tgt"):
            Path(f"{path}.{side}").write_text("".join(f"{line}\n" for line in train[side]), encoding="utf-8")
        tokenizer.write_bytes(vocabulary.model)
        names = vocabulary.pieces(range(len(vocabulary)))
        pieces.write_text("".join(f"{piece}\n" for piece in names), encoding="utf-8")
        max_tokens = self.config["data"]["batch"]["max_tokens"]
        return {"text": str(path), "tokenizer": str(tokenizer), "pieces": str(pieces), "max_tokens": max_tokens}

    @property
    def precision_reason(self) -> str:
        """The reason to leave out contestants that support only PEER_PRECISIONS. Empty if the run uses one of these."""
        return "" if self.common["precision"] in PEER_PRECISIONS else f"measured in {' and '.join(PEER_PRECISIONS)} only"

    @property
    def cpu_only_reason(self) -> str:
        """The reason to leave out contestants that support only the CPU and float32. Empty if the run uses these."""
        return CPU_ONLY * (self.device != "cpu" or self.common["precision"] != "32-true")

    def ours(self, task: str, **settings: Any) -> Contestant:
        return Contestant(OURS, script("ours"), {"task": task, "threads": self.threads, "config": self.config, **settings})

    def trainer(self, model: Mapping[str, Any]) -> Contestant:
        return self.ours("train", config={**self.config, "model": dict(model)})

    def marian(self, **settings: Any) -> Contestant:
        return Contestant(MARIAN, script("with_marian"), {**self.common, **settings}, self.precision_reason)

    def joeynmt(self, name: str = "JoeyNMT", file: str = "with_joeynmt", **settings: Any) -> Contestant:
        return self.peer(name, file, "joeynmt", settings)

    def joeynmt_trainers(self, model: Mapping[str, Any]) -> list[Contestant]:
        """Returns two contestants: JoeyNMT with our batches, and JoeyNMT with the batches that its own command makes."""
        own = self.joeynmt("JoeyNMT, its own batches", "train_joeynmt", **self.text, model=dict(model))
        return [self.joeynmt(**self.batches, model=dict(model)), own]

    def eole(self) -> Contestant:
        return self.peer("EOLE", "train_eole", "eole", self.batches)

    def peer(self, name: str, file: str, environment: str, settings: Mapping[str, Any]) -> Contestant:
        """Returns a contestant that runs in another Python environment. It is left out if no interpreter is set for this
        environment, or if the run does not use the CPU in float32."""
        python = getattr(self.settings.peers, environment)
        left_out = self.cpu_only_reason or f"no interpreter given; set benchmark.peers.{environment}=PYTHON" * (python is None)
        return Contestant(name, script(file, python or ""), {**self.common, **settings}, left_out)

    def measure(self, contestants: list[Contestant], request: Mapping[str, Any], **how: Any) -> dict[str, Measured]:
        return in_turn(contestants, self.settings.pairs, self.threads, request, self.begin, **how)


def training(bench: Bench, cases: set[str]) -> Iterator[Result]:
    """Measures the Transformer's training speed and, in the same rounds, the ceiling: the speed of matrix products alone."""
    contestants = [bench.trainer(bench.config["model"])]
    if "transformer" in cases:
        contestants += [bench.marian(**bench.batches), bench.eole(), *bench.joeynmt_trainers(bench.config["model"])]
    if "ceiling" in cases:
        rows = min(2048, bench.config["data"]["batch"]["max_tokens"])
        settings = {**bench.common, "rows": rows, "largest": bench.settings.largest}
        contestants.append(Contestant("ceiling", script("ceiling"), settings, bench.precision_reason))
    found = bench.measure(contestants, {"steps": bench.settings.steps})
    ceiling = found.pop("ceiling", None)
    if "transformer" in cases:
        yield case_result("transformer", "target tokens/s", found, notes=token_notes(found))
    if ceiling:
        side = bench.settings.largest
        large = Measured(ceiling.about, bursts=[burst["large"] for burst in ceiling.bursts])
        products = {"products of the same sizes": ceiling, f"product of {side} x {side} matrices": large}
        yield case_result("ceiling", "GFLOP/s", {OURS: found[OURS], **products}, count="gflop")


def token_notes(found: Mapping[str, Measured]) -> dict[str, str]:
    """Returns a note for each contestant that trained on more or fewer target tokens than ours: its ratio is inexact."""
    tokens = [burst["tokens"] for burst in found[OURS].bursts]
    others = (name for name, one in found.items() if one.bursts and [burst["tokens"] for burst in one.bursts] != tokens)
    return dict.fromkeys(others, "token counts differ from ours")


def birnn(bench: Bench) -> Result:
    model = bench.settings.birnn
    found = bench.measure([bench.trainer(model), *bench.joeynmt_trainers(model)], {"steps": bench.settings.steps})
    return case_result("birnn", "target tokens/s", found, notes=token_notes(found))


def profiles(bench: Bench) -> Result:
    """Profiles training steps of Entente and Marian. The speeds are measured under the profiler."""
    contestants = [bench.trainer(bench.config["model"]), bench.marian(**bench.batches)]
    found = in_turn(contestants, 1, bench.threads, {"steps": PROFILED_STEPS, "profile": True}, bench.begin)
    return case_result("profile", "target tokens/s", found)


def startup(bench: Bench) -> Result:
    """Measures the seconds from the start of a process to the end of its first step. Token ids are prepared beforehand:
    Entente reads them from its cache, Marian from a file of batches."""
    contestants = [bench.trainer(bench.config["model"]), bench.marian(**bench.batches)]
    return case_result("startup", "seconds", bench.measure(contestants, {"steps": 1}, fresh=True), count=None)


def preparation(bench: Bench) -> Result:
    """Measures how fast text is prepared for training: reading it, training the tokenizer, and making the first batch."""
    return case_result("data", "pairs/s", bench.measure([bench.ours("prepare")], {}), count="pairs")


def decoding(bench: Bench, case: str) -> Result:
    """Measures the decoding speed in sentences per second. An untrained model decodes exactly `length` target tokens per
    sentence; a trained model stops at the end symbol."""
    beam, trained = DECODING[case]
    path, length = (bench.settings.checkpoint, 0) if trained else (None, bench.settings.length)
    if trained and not path:
        return Result(case, "sentences/s", [], {OURS: "no model given; set benchmark.checkpoint=outputs/RUN"}, {})
    if path:
        run = load_run(path, "auto")
        pairs = pairs_to_decode(stored_corpus(run, path, bench.settings.trust_data, "benchmark.trust_data"))
    else:
        data, translator = bench.prepared
        run = checkpoint.Run(translator.model.eval(), data.vocabulary, bench.config, checkpoint.provenance(), 0, frozenset())
        pairs = pairs_to_decode(data.corpus)
    texts, references = pairs["src"][: bench.settings.sentences], pairs["tgt"][: bench.settings.sentences]
    ids = run.vocabulary.encode_src(texts)
    how = {"device": bench.device, "beam": beam, "length": length}
    model = {"checkpoint": path, "trust_data": bench.settings.trust_data, "sentences": bench.settings.sentences}
    ours = bench.ours("decode", engine="torch", **how, **model)
    contestants = [ours]
    if not trained:
        given = {**how, **sorted_sources(bench.folder / f"{case}.npz", ids, length)}
        contestants += [bench.marian(**given)] + [bench.joeynmt(**given)] * (beam > 1)
    others = ctranslate2(bench, case, run, ids, how)
    contestants += others
    if trained:  # add CTranslate2 as `entente evaluate` and `entente translate` call it
        left_out = others[0].left_out or CPU_ONLY * (bench.device != "cpu")
        for compute_type in COMPUTE_TYPES:
            engine = {"engine": "ctranslate2", "quantization": "int8" if compute_type == "int8" else None}
            name = f"engine=ctranslate2, {compute_type}"
            contestants.append(replace(ours, name=name, settings={**ours.settings, **engine}, left_out=left_out))
    found = bench.measure(contestants, {})
    notes = {}
    for name, one in found.items():
        outputs = one.warm_up.pop("outputs", None)
        if trained and outputs:
            notes[name] = f"BLEU {sacrebleu.corpus_bleu(as_text(run.vocabulary, outputs), [references]).score:.2f}"
    return case_result(case, "sentences/s", found, count="sentences", notes=notes)


def sorted_sources(path: Path, ids: list[list[int]], length: int, size: int = 100) -> dict[str, Any]:
    """Writes the sentences to a file in batches of `size`, longest first, and returns the settings of a contestant that decodes
    them. Their `longest` is a number of positions that suffices for the sources and for translations of `length` tokens."""
    ids = sorted(ids, key=len, reverse=True)
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    sources = [collate(Rows(part), Rows(part), range(len(part))).src.numpy() for part in parts]
    return {
        "task": "decode",
        "batches": str(path),
        "longest": write_batches(path, zip(sources, sources, strict=True)) + length + 2,
    }


def ctranslate2(bench: Bench, case: str, run: checkpoint.Run, ids: list[list[int]], how: Mapping[str, Any]) -> list[Contestant]:
    """Returns two CTranslate2 contestants per compute type: one whose threads share a batch, one with a batch per thread."""
    folder, pieces = bench.folder / f"{case}-ctranslate2", bench.folder / f"{case}.json"
    pieces.write_text(json.dumps([run.vocabulary.src.pieces(row) for row in ids]), encoding="utf-8")
    left_out = ""
    try:
        write_ctranslate2(run, folder)
    except InputError as error:  # CTranslate2 does not support the model, or is not installed
        left_out = str(error)
    files = {"folder": str(folder), "pieces": str(pieces), **how}
    found = []
    for compute_type in COMPUTE_TYPES:
        for workers, threads, size in ((1, bench.threads, 100), (bench.threads, 1, 32)):
            settings = {**files, "compute_type": compute_type, "workers": workers, "threads": threads, "batch": size}
            name = f"CTranslate2 {compute_type} {workers}x{threads}, batch {size}"
            found.append(Contestant(name, script("with_ctranslate2"), settings, left_out))
    return found


def as_text(vocabulary: Vocabulary, outputs: list[Any]) -> list[str]:
    """Returns the outputs as text. Entente's outputs are text already; CTranslate2's are lists of pieces."""
    tokenizer = vocabulary.tgt
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(range(len(tokenizer))))}
    return [text if isinstance(text, str) else tokenizer.decode([ids[piece] for piece in text]) for text in outputs]


def measure(bench: Bench) -> Iterator[Result]:
    """Measures every requested case and yields its result."""
    cases: set[str] = {*bench.settings.cases}
    if cases & {"transformer", "ceiling"}:
        yield from training(bench, cases)
    if "birnn" in cases:
        yield birnn(bench)
    for case in DECODING:
        if case in cases:
            yield decoding(bench, case)
    for case, one in {"startup": startup, "data": preparation, "profile": profiles}.items():
        if case in cases:
            yield one(bench)
