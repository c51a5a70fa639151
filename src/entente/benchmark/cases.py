"""What is measured, and who with: each case as contestants with their settings, from one configuration and one data set."""

import importlib.util
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch

from entente import checkpoint
from entente.benchmark.ours import decoded_pairs
from entente.benchmark.results import Result, of_case, share_of_ceiling
from entente.benchmark.settings import Benchmark
from entente.benchmark.turns import OURS, Contestant, Measured, in_turn, starts
from entente.commands.trained import load_run, stored_corpus
from entente.data.batches import collate
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.decoding.ctranslate2 import write_ctranslate2
from entente.errors import InputError
from entente.files.reading import path_of
from entente.training.settings import RunSettings
from entente.training.train import prepared
from entente.training.translator import Translator

log = logging.getLogger("entente")

PEERS = Path(__file__).parent / "peers"
PROFILED = 3  # steps
JOEYNMT_TRAIN = "JoeyNMT, its own batches"
CPU_ONLY = "measured on the CPU, in float32 only"
COMPUTE_TYPES = ("float32", "int8")  # CTranslate2's
TOLD = ("32-true", "bf16-mixed")  # precisions that Marian's loop and the ceiling have too
PRECISION = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed", "64": "64-true"}  # Lightning's short names
Begin = Callable[[str], None]


def module(name: str) -> list[str]:
    return [sys.executable, "-m", f"entente.benchmark.{name}"]


def script(name: str, python: str = sys.executable) -> list[str]:
    return [str(path_of(python)), str(PEERS / f"{name}.py")]


@dataclass
class Bench:
    """One configuration on one machine. folder: for what the contestants read, thrown away afterwards. config: of a run."""

    config: dict[str, Any]
    settings: Benchmark
    folder: Path
    begin: Begin

    @cached_property
    def threads(self) -> int:
        return int(self.config["trainer"]["threads"] or torch.get_num_threads())

    @cached_property
    def device(self) -> str:
        wanted = self.config["trainer"]["accelerator"]
        return "cuda" if wanted in ("gpu", "cuda") or (wanted == "auto" and torch.cuda.is_available()) else "cpu"

    @cached_property
    def data(self) -> TranslationData:
        return self._prepared[0]

    @cached_property
    def _prepared(self) -> tuple[TranslationData, Translator]:
        return prepared(RunSettings.of(self.config))

    @cached_property
    def common(self) -> dict[str, Any]:
        """What every contestant is told."""
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
        """Our training batches of all bursts, in a file, for those who are not ours; and the longest sentence of them."""
        steps = self.settings.steps * (self.settings.pairs + 1) + PROFILED
        path, longest = self.folder / "batches.npz", 0
        arrays: dict[str, Any] = {}
        for i, batch in enumerate(islice(self.data.train_dataloader(), steps)):
            arrays[f"src{i}"], arrays[f"tgt{i}"] = batch.src.numpy(), batch.tgt.numpy()
            longest = max(longest, batch.src.size(1), batch.tgt.size(1))
        np.savez(path, **arrays)
        return {"task": "train", "batches": str(path), "longest": longest}

    @cached_property
    def text(self) -> dict[str, Any]:
        """The training text, the tokenizer and its pieces, in files, for those who read text themselves."""
        path, tokenizer, pieces = self.folder / "train", self.folder / "tokenizer.model", self.folder / "pieces.txt"
        vocabulary, train = self.data.vocabulary.tgt, self.data.corpus.train
        for side in ("src", "tgt"):
            Path(f"{path}.{side}").write_text("".join(f"{line}\n" for line in train[side]), encoding="utf-8")
        tokenizer.write_bytes(vocabulary.model)
        names = vocabulary.pieces(range(len(vocabulary)))
        pieces.write_text("".join(f"{piece}\n" for piece in names), encoding="utf-8")
        max_tokens = self.config["data"]["batch"]["max_tokens"]
        return {"text": str(path), "tokenizer": str(tokenizer), "pieces": str(pieces), "max_tokens": max_tokens}

    def sources(self, name: str, ids: list[list[int]], size: int, length: int) -> dict[str, Any]:
        """Sentences in batches of `size`, longest first, in a file."""
        ids = sorted(ids, key=len, reverse=True)
        path = self.folder / f"{name}.npz"
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        arrays: dict[str, Any] = {f"src{i}": collate(part, part, range(len(part))).src.numpy() for i, part in enumerate(parts)}
        np.savez(path, **arrays)
        return {"task": "decode", "sources": str(path), "longest": max(map(len, ids)) + length + 2}

    def trainers(self, model: Mapping[str, Any], peers: list[Contestant]) -> list[Contestant]:
        ours = Contestant(
            OURS, module("ours"), {"task": "train", "threads": self.threads, "config": {**self.config, "model": model}}
        )
        return [ours, *peers]

    @property
    def other_precision(self) -> str:
        """Why a contestant that has not the precision of ours is left out; empty where it has."""
        return "" if self.common["precision"] in TOLD else f"measured in {' and '.join(TOLD)} only"

    def marian(self, **more: Any) -> Contestant:
        return Contestant("Marian (transformers)", script("with_marian"), {**self.common, **more})


def lacks(package: str, python: str | None = sys.executable) -> str:
    """Why a peer's package cannot be used, in a line; empty where it can."""
    if python is None:
        return f"no interpreter given; benchmark.peers.{package}=PYTHON"
    if python == sys.executable:
        return "" if importlib.util.find_spec(package) else f"{package} is not installed here"
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        code = subprocess.run([path_of(python), "-c", look], capture_output=True, check=False).returncode
    except OSError as error:
        return f"{python} does not run ({error.strerror or error})"
    return f"{package} is not installed in {python}" if code else ""


def split(pairs: list[tuple[Contestant, str]]) -> tuple[list[Contestant], dict[str, Measured]]:
    """Those who can take part, and those who cannot, with the reason that stands beside each."""
    return [one for one, why in pairs if not why], {one.name: Measured({}, left_out=why) for one, why in pairs if why}


def joeynmt_trainers(bench: Bench, model: Mapping[str, Any]) -> list[tuple[Contestant, str]]:
    """On our batches, and as its own command trains."""
    python = bench.settings.peers.joeynmt
    on_gpu = CPU_ONLY * (bench.device != "cpu" or bench.common["precision"] != "32-true")
    why = on_gpu or lacks("joeynmt", python)
    told = {**bench.common, "model": dict(model)}
    return [
        (Contestant("JoeyNMT", script("with_joeynmt", python or ""), {**told, **bench.batches}), why),
        (Contestant(JOEYNMT_TRAIN, script("train_joeynmt", python or ""), {**told, **bench.text}), why),
    ]


def training_peers(bench: Bench) -> list[tuple[Contestant, str]]:
    peers = bench.settings.peers
    told = {**bench.common, **bench.batches}
    on_gpu = CPU_ONLY * (bench.device != "cpu" or bench.common["precision"] != "32-true")
    return [
        (bench.marian(**bench.batches), bench.other_precision or lacks("transformers")),
        (Contestant("EOLE", script("train_eole", peers.eole or ""), told), on_gpu or lacks("eole", peers.eole)),
        *joeynmt_trainers(bench, bench.config["model"]),
    ]


def transformer(bench: Bench, cases: set[str]) -> list[Result]:
    """Training speed; with the ceiling of matrix products measured in the same turns, and the operations counted after them."""
    peers, missing = split(training_peers(bench) if "transformer" in cases else [])
    contestants = bench.trainers(bench.config["model"], peers)
    if "ceiling" in cases and not bench.other_precision:
        rows = min(2048, bench.config["data"]["batch"]["max_tokens"])
        told = {**bench.common, "rows": rows, "largest": bench.settings.largest}
        contestants.append(Contestant("ceiling", module("ceiling"), told))
    request = {"steps": bench.settings.steps}
    found = in_turn(contestants, bench.settings.pairs, bench.threads, request, bench.begin)
    ceiling = found.pop("ceiling", Measured({}, left_out=bench.other_precision))
    results = []
    if "transformer" in cases:
        results.append(of_case("transformer", "target tokens/s", {**found, **missing}, notes=unequal(found)))
    if ceiling.bursts:
        results.append(against_ceiling(bench, found[OURS], ceiling))
    elif ceiling.left_out:
        results.append(of_case("ceiling", "GFLOP/s", {"ceiling": ceiling}, units="gflop"))
    return results


def against_ceiling(bench: Bench, ours: Measured, ceiling: Measured) -> Result:
    """The operations of the bursts' steps, counted by doing the same steps once more, without the views' own."""
    quiet = {**bench.config, "views": {**bench.config["views"], "diagnosis": 0}}
    told = {"task": "train", "threads": bench.threads, "config": quiet}
    request = {"steps": bench.settings.steps, "count": True}
    counted = in_turn([Contestant(OURS, module("ours"), told)], bench.settings.pairs, bench.threads, request, bench.begin)[OURS]
    flops = [burst["flops"] for burst in counted.bursts]
    shares = share_of_ceiling(flops, ours.bursts, ceiling.bursts)
    result = of_case(
        "ceiling",
        "GFLOP/s",
        {
            OURS: Measured(
                ours.about,
                bursts=[{**burst, "gflop": count / 1e9} for count, burst in zip(flops, ours.bursts, strict=True)],
            ),
            "products of its sizes": Measured(
                ceiling.about,
                bursts=[{"seconds": 1.0, "gflop": b["gflops"], "peak_mb": b["peak_mb"], **b["each"]} for b in ceiling.bursts],
            ),
            f"product of {bench.settings.largest} cubed": Measured(
                ceiling.about, bursts=[{"seconds": 1.0, "gflop": next(iter(b["large"].values()))} for b in ceiling.bursts]
            ),
        },
        units="gflop",
    )
    result.raw["share_of_ceiling"] = shares
    result.raw["uncounted"] = sorted({name for burst in counted.bursts for name in burst["uncounted"]})
    return result


def unequal(found: Mapping[str, Measured]) -> dict[str, str]:
    """A note where someone's bursts had other target tokens than ours: then the ratio is of unlike work."""
    tokens = [burst["tokens"] for burst in found[OURS].bursts]
    return {
        name: "other tokens than ours"
        for name, one in found.items()
        if one.bursts and "tokens" in one.bursts[0] and [burst["tokens"] for burst in one.bursts] != tokens
    }


def birnn(bench: Bench) -> list[Result]:
    there, missing = split(joeynmt_trainers(bench, bench.settings.birnn))
    contestants = bench.trainers(bench.settings.birnn, there)
    found = in_turn(contestants, bench.settings.pairs, bench.threads, {"steps": bench.settings.steps}, bench.begin)
    return [of_case("birnn", "target tokens/s", {**found, **missing}, notes=unequal(found))]


def profiled(bench: Bench) -> list[Result]:
    """Where the time of a training step goes, ours and Marian's."""
    there, missing = split(training_peers(bench)[:1])
    contestants = bench.trainers(bench.config["model"], there)
    last = {"steps": PROFILED, "profile": True}
    found = in_turn(contestants, 1, bench.threads, {"steps": PROFILED}, bench.begin, last)
    result = of_case("profile", "target tokens/s", {**found, **missing})
    result.raw["steps"] = PROFILED
    return [result]


def startup(bench: Bench) -> list[Result]:
    """Seconds from a process' start to its first finished step. Token ids are there already: ours from its cache, Marian's from
    a file of batches."""
    there, missing = split([(bench.marian(**bench.batches), bench.other_precision or lacks("transformers"))])
    contestants = bench.trainers(bench.config["model"], there)
    found = starts(contestants, bench.settings.pairs, bench.threads, {"steps": 1}, bench.begin)
    return [of_case("startup", "seconds", {**found, **missing}, as_seconds=True)]


def preparation(bench: Bench) -> list[Result]:
    """From text to the first batch: corpus, tokenizer, token ids."""
    told = {"task": "prepare", "threads": bench.threads, "config": bench.config}
    found = in_turn([Contestant(OURS, module("ours"), told)], bench.settings.pairs, bench.threads, {}, bench.begin)
    seconds = np.median([burst["seconds"] for burst in found[OURS].bursts])
    return [of_case("data", "pairs/s", found, units="pairs", notes={OURS: f"{seconds:.2f} s"})]


def decoding(bench: Bench, case: str, beam: int, trained: bool) -> list[Result]:
    """Sentences a second: without training, exactly `length` target tokens each; trained, as many as the model says."""
    path, length = (bench.settings.checkpoint, 0) if trained else (None, bench.settings.length)
    if trained and not path:
        return [Result(case, "sentences/s", [], {OURS: "no model; benchmark.checkpoint=outputs/RUN"}, {})]
    ours = {
        "task": "decode",
        "threads": bench.threads,
        "device": bench.device,
        "beam": beam,
        "length": length,
        "checkpoint": path,
        "trust_data": bench.settings.trust_data,
        "sentences": bench.settings.sentences,
        "config": bench.config,
        "engine": "torch",
    }
    if path:
        run = load_run(path, "auto")
        pairs = decoded_pairs(stored_corpus(run, path, bench.settings.trust_data, "benchmark.trust_data"))
    else:
        data, translator = bench._prepared
        run = checkpoint.Run(translator.model.eval(), data.vocabulary, bench.config, checkpoint.provenance(), 0)
        pairs = decoded_pairs(data.corpus)
    texts, references = pairs["src"][: bench.settings.sentences], pairs["tgt"][: bench.settings.sentences]
    ids = run.vocabulary.encode_src(texts)
    peers: list[tuple[Contestant, str]] = []
    if not trained:
        told = {**bench.common, "beam": beam, "length": length, **bench.sources(case, ids, 100, length)}
        peers.append((Contestant("Marian (transformers)", script("with_marian"), told), lacks("transformers")))
        if beam > 1:
            joeynmt = Contestant("JoeyNMT", script("with_joeynmt", bench.settings.peers.joeynmt or ""), told)
            on_gpu = CPU_ONLY * (bench.device != "cpu")
            peers.append((joeynmt, on_gpu or lacks("joeynmt", bench.settings.peers.joeynmt)))
    others = ctranslate2(bench, case, run, ids, beam, length)
    if trained:  # the same program through evaluate and translate
        why = others[0][1] or CPU_ONLY * (bench.device != "cpu")
        for compute_type in COMPUTE_TYPES:
            engine = {"engine": "ctranslate2", "quantization": "int8" if compute_type == "int8" else None}
            others.append((Contestant(f"engine=ctranslate2, {compute_type}", module("ours"), {**ours, **engine}), why))
    there, missing = split(peers + others)
    contestants = [Contestant(OURS, module("ours"), ours), *there]
    found = in_turn(contestants, bench.settings.pairs, bench.threads, {}, bench.begin)
    notes = {}
    for name, one in found.items():
        outputs = one.warm_up.pop("outputs", None)
        if trained and outputs:
            notes[name] = f"BLEU {sacrebleu.corpus_bleu(as_text(run.vocabulary, outputs), [references]).score:.2f}"
    return [of_case(case, "sentences/s", {**found, **missing}, units="sentences", notes=notes)]


def ctranslate2(
    bench: Bench, case: str, run: checkpoint.Run, ids: list[list[int]], beam: int, length: int
) -> list[tuple[Contestant, str]]:
    """Each kind of numbers at both splits of the threads: all of them on one batch, or a batch for each."""
    folder, pieces = bench.folder / f"{case}-ctranslate2", bench.folder / f"{case}.json"
    pieces.write_text(json.dumps([run.vocabulary.src.pieces(row) for row in ids]), encoding="utf-8")
    if not (why := lacks("ctranslate2")):
        try:
            write_ctranslate2(run, folder, None)
        except InputError as error:  # it has no such model
            why = str(error)
    found = []
    for compute_type in COMPUTE_TYPES:
        for workers, threads, size in ((1, bench.threads, 100), (bench.threads, 1, 32)):
            told = {
                "folder": str(folder),
                "pieces": str(pieces),
                "device": bench.device,
                "compute_type": compute_type,
                "workers": workers,
                "threads": threads,
                "batch": size,
                "beam": beam,
                "length": length,
            }
            name = f"CTranslate2 {compute_type} {workers}x{threads}, batch {size}"
            found.append((Contestant(name, script("with_ctranslate2"), told), why))
    return found


def as_text(vocabulary: Vocabulary, outputs: list[Any]) -> list[str]:
    """Ours are texts already, the others' lists of pieces."""
    tokenizer = vocabulary.tgt
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(range(len(tokenizer))))}
    return [text if isinstance(text, str) else tokenizer.decode([ids[piece] for piece in text]) for text in outputs]


def measure(bench: Bench) -> Iterator[Result]:
    """Every case asked for, one after the other."""
    cases: set[str] = {*bench.settings.cases}
    if cases & {"transformer", "ceiling"}:
        yield from transformer(bench, cases)
    if "birnn" in cases:
        yield from birnn(bench)
    for case, beam, trained in (
        ("greedy", 1, False),
        ("beam", 5, False),
        ("greedy_trained", 1, True),
        ("beam_trained", 5, True),
    ):
        if case in cases:
            yield from decoding(bench, case, beam, trained)
    if "startup" in cases:
        yield from startup(bench)
    if "data" in cases:
        yield from preparation(bench)
    if "profile" in cases:
        yield from profiled(bench)
