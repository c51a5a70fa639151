"""Measures the cases of the benchmark. The programs that a case compares, its contestants, get the same settings and data."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sacrebleu
import torch
from omegaconf import OmegaConf

from benchmark.contestants import ours
from benchmark.turns import OURS, Contestant, Measured, in_turn
from benchmark.wire import PAD, Message

MARIAN = "Marian (transformers)"
PROFILED_STEPS = 3
CPU_ONLY = "measured only on the CPU in float32"
# The beam size of each decoding case, and whether its model is a trained checkpoint.
DECODING = {"greedy": (1, False), "beam": (5, False), "greedy_trained": (1, True), "beam_trained": (5, True)}
Measurements = tuple[dict[str, Measured], dict[str, str]]  # by contestant: answers, and notes for the table


@dataclass
class Bench:
    """A benchmark session. `config` is the configuration of the run to measure, `folder` a temporary folder for the files that
    contestants read. `begin` is called with a contestant's name before each of its bursts (timed measurements)."""

    config: dict[str, Any]
    settings: SimpleNamespace
    folder: Path
    begin: Callable[[str], None]

    @cached_property
    def common(self) -> Message:
        """The settings that all contestants have in common."""
        trainer = self.config["trainer"]
        is_gpu = trainer["accelerator"] in ("gpu", "cuda") or (trainer["accelerator"] == "auto" and torch.cuda.is_available())
        threads, device = trainer["threads"] or torch.get_num_threads(), "cuda" if is_gpu else "cpu"
        dtype = "bfloat16" if trainer.get("precision") == "bf16-mixed" else "float32"
        return {"config": self.config, "threads": threads, "device": device, "dtype": dtype}

    @cached_property
    def training(self) -> Message:
        """The settings of training: the batches of all bursts, the longest sequence in them, and the size of the vocabulary."""
        data = ours.prepared(self.config)
        ours.write_text(data, self.folder)  # for JoeyNMT
        batches = ours.training_batches(data, self.settings.steps * (self.settings.pairs + 1) + PROFILED_STEPS)
        longest = max(len(side[0]) for pair in batches for side in pair)
        return {"task": "train", "batches": batches, "longest": longest, "vocabulary": len(data.vocabulary.tgt)}

    def contestant(self, name: str, program: str, settings: Message, left_out: str = "") -> Contestant:
        """Returns a contestant that runs `program`, a file in contestants/. JoeyNMT and EOLE run in environments of their own;
        they are left out if there is no interpreter, or if the run does not use the CPU in float32."""
        settings, template = {**self.common, **settings}, Path(ours.__file__).with_name(f"{program}.yaml")
        if template.exists() and not left_out:  # the program's own configuration, with values of ours
            values = {"config": settings["config"], "folder": str(self.folder), "theirs": OmegaConf.load(template)}
            settings["template"] = OmegaConf.to_container(OmegaConf.create(values).theirs, resolve=True)
        peers = {f"with_{peer}": python for peer, python in self.settings.peers.items()}
        if program in peers and (self.common["device"], self.common["dtype"]) != ("cpu", "float32"):
            left_out = CPU_ONLY
        elif program in peers and not shutil.which(peers[program] or ""):
            left_out = f"no Python interpreter at {peers[program]}; set benchmark.peers.{program.removeprefix('with_')}=PYTHON"
        return Contestant(name, peers.get(program, sys.executable) or "", program, settings, left_out)

    def trainers(self, model: dict[str, Any]) -> list[Contestant]:
        """Returns Entente and the programs that have such a model; JoeyNMT with our batches, and with those it makes itself."""
        settings = {**self.training, "config": {**self.config, "model": model}}
        contestants = [self.contestant(OURS, "ours", {**settings, "batches": None})]
        if model["name"] == "transformer":
            contestants += [self.contestant(MARIAN, "with_marian", settings), self.contestant("EOLE", "with_eole", settings)]
        contestants.append(self.contestant("JoeyNMT", "with_joeynmt", settings))
        return [*contestants, self.contestant("JoeyNMT, its own batches", "with_joeynmt", {**settings, "batches": None})]

    def measure(self, case: str) -> Measurements:
        """Measures a case."""
        pairs, request = self.settings.pairs, {"steps": self.settings.steps}
        match case:
            case "transformer":
                contestants = self.trainers(self.config["model"])
            case "birnn":
                contestants = self.trainers(self.settings.birnn)
            case "data":
                contestants = [self.contestant(OURS, "ours", {"task": "prepare"})]
            case "ceiling":
                products = {"task": "ceiling", "vocabulary": self.training["vocabulary"]}
                contestants = [self.contestant(OURS, "ours", {"task": "train"})]
                contestants.append(self.contestant("products of the same sizes", "ours", products))
            case "startup":  # token ids are prepared beforehand: Entente reads them from its cache, Marian gets batches
                contestants, request = self.trainers(self.config["model"])[:2], {"steps": 1}
            case "profile":
                contestants, pairs = self.trainers(self.config["model"])[:2], 1
                request = {"steps": PROFILED_STEPS, "profile": True}
            case _:
                return self.decoding(case)
        results = in_turn(contestants, pairs, request, self.begin, fresh=case == "startup")
        tokens = {name: [burst.get("tokens") for burst in measured.bursts] for name, measured in results.items()}
        different = [name for name, counts in tokens.items() if counts not in ([], [None] * pairs, tokens[OURS])]
        return results, dict.fromkeys(different, "token counts differ from ours")

    def decoding(self, case: str) -> Measurements:
        """Measures decoding. An untrained model decodes exactly `length` target tokens per sentence; a trained model stops at
        the end symbol."""
        beam, trained = DECODING[case]
        path, length = (self.settings.checkpoint, 0) if trained else (None, self.settings.length)
        if trained and not path:
            return {OURS: Measured(left_out="no model given; set benchmark.checkpoint=outputs/RUN")}, {}
        settings = {"task": "decode", "checkpoint": path, "length": length, "beam": beam}
        settings |= {"trust_data": self.settings.trust_data, "sentences": self.settings.sentences}
        contestants = [self.contestant(OURS, "ours", settings)]
        run, sources, references = ours.decodable(contestants[0].settings)
        ids = run.vocabulary.encode_src(sources)
        if not trained:
            sizes = {"longest": max(map(len, ids)) + length + 2, "vocabulary": len(run.vocabulary.tgt)}
            batches = {**settings, **sizes, "batches": padded(ids)}
            contestants.append(self.contestant(MARIAN, "with_marian", batches))
            contestants += [self.contestant("JoeyNMT", "with_joeynmt", batches)] * (beam > 1)
        folder, cores = str(self.folder / case), self.common["threads"]
        reason = ours.export(run, folder)
        pieces = [run.vocabulary.src.pieces(row) for row in ids]
        for compute_type in ("float32", "int8"):
            for workers, threads, size in ((1, cores, 100), (cores, 1, 32)):  # threads share a batch, or each has its own
                name = f"CTranslate2 {compute_type} {workers}x{threads}, batch {size}"
                options = {"compute_type": compute_type, "inter_threads": workers, "intra_threads": threads}
                model = {**settings, "folder": folder, "sources": pieces, "options": options, "batch": size}
                contestants.append(self.contestant(name, "with_ctranslate2", model, reason))
        results = in_turn(contestants, self.settings.pairs, {}, self.begin)
        outputs = {name: measured.warm_up.pop("outputs", None) for name, measured in results.items()}
        texts = {name: ours.as_text(run.vocabulary, lines) for name, lines in outputs.items() if trained and lines}
        return results, {name: f"BLEU {sacrebleu.corpus_bleu(lines, [references]).score:.2f}" for name, lines in texts.items()}


def padded(ids: list[list[int]], size: int = 100) -> list[list[tuple[int, ...]]]:
    """Returns the sentences in padded batches of `size`, longest first."""
    ids = sorted(ids, key=len, reverse=True)
    columns = (zip_longest(*ids[start : start + size], fillvalue=PAD) for start in range(0, len(ids), size))
    return [[*zip(*batch, strict=True)] for batch in columns]
