"""Ours as a contestant, on the road a user takes: `python -m entente.benchmark.ours SETTINGS.json`.

Training is a run's own: its data, model, Lightning trainer and callbacks, in a directory that is thrown away. It stands still
between two bursts, in a callback that waits for the next request.
"""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from datasets import Dataset
from torch import Tensor

from entente.benchmark.counting import Operations
from entente.benchmark.parts import Profile, reading, synchronise
from entente.benchmark.wire import Answer, Wire, serve, setting_file
from entente.commands.trained import load_run, stored_corpus
from entente.config.schema import fill
from entente.data.batches import Batch, TrainingBatches
from entente.data.corpora import Corpus, read_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS, PAD, Vocabulary
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import Hypothesis, Search, translate
from entente.models.seq2seq import Seq2Seq, parameter_count
from entente.process import prepare_process
from entente.training.board import log_settings
from entente.training.saving import Checkpoints
from entente.training.settings import RunSettings
from entente.training.train import decoded, prepared
from entente.training.trainer import TrainerSettings, build_trainer, callbacks

ENDLESS = 10**6  # steps: the driver says when it is enough


class Bursts(L.Callback):
    """Answers requests with so many steps of training: {"steps": 10, "profile": false, "count": false}. folder: thrown away at
    the end."""

    def __init__(self, wire: Wire, about: Answer, folder: str) -> None:
        self.wire, self.about, self.folder = wire, about, folder
        self._tokens: list[Tensor] = []  # of each step, real target tokens; summed when the burst is over
        self._left = 0
        self._request: Answer = {}
        self._profile: Profile | None = None
        self._operations: Operations | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.wire.answer(**self.about)
        self._wait(pl_module)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int) -> None:
        if self._operations:
            self._operations.__enter__()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._operations:
            self._operations.__exit__(None, None, None)
            self._flops += self._operations.total
            self._uncounted |= {*self._operations.uncounted}
            self._operations = Operations()
        self._tokens.append((batch.tgt[:, 1:] != PAD).sum())
        self._left -= 1
        if not self._left:
            self._answer(pl_module)
            self._wait(pl_module)

    def _answer(self, module: L.LightningModule) -> None:
        synchronise(module.device.type)
        seconds = time.perf_counter() - self._started
        more: Answer = {}
        if self._profile:
            self._profile.__exit__(None, None, None)
            more["parts"] = self._profile.parts(seconds)
        if self._operations:
            more |= {"flops": self._flops, "uncounted": sorted(self._uncounted)}
        self.wire.answer(seconds=seconds, tokens=int(torch.stack(self._tokens).sum()), **more)

    def _wait(self, module: L.LightningModule) -> None:
        request = next(self.wire.requests(), None)
        if request is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)  # in the midst of training, which nobody wants to see ended
        self._left, self._tokens = request["steps"], []
        self._flops, self._uncounted = 0, set[str]()
        self._operations = Operations() if request.get("count") else None
        self._profile = Profile(module.device.type, module) if request.get("profile") else None
        if self._profile:
            self._profile.__enter__()
        self._started = time.perf_counter()


def train(spec: dict[str, Any], wire: Wire) -> None:
    config = spec["config"]
    make = TrainingBatches.batch

    def watched(self: TrainingBatches, rows: Any) -> Batch:
        with reading():
            return make(self, rows)

    TrainingBatches.batch = watched  # type: ignore[method-assign]  # so that a profile knows it
    L.seed_everything(config["seed"], verbose=False)
    run = RunSettings.of(config)
    data, translator = prepared(run)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        kept = max(config["checkpoint"][key] for key in ("keep", "average"))
        saving = Checkpoints(run_dir / "checkpoints", config["checkpoint"]["every"], kept)
        about = {"torch": torch.__version__, "lightning": L.__version__, "parameters": parameter_count(translator.model)}
        bursts = Bursts(wire, about, folder)
        settings = {**config["trainer"], "max_steps": ENDLESS, "validate_every": ENDLESS}
        views = callbacks(run.views, run.trainer.patience, run.data["src"])
        trainer = build_trainer(fill(TrainerSettings, "trainer", settings), run_dir, [saving, *views, bursts])
        log_settings(trainer, config, decoded(run, data.corpus))
        trainer.fit(translator, datamodule=data)


def endless(model: Seq2Seq) -> None:
    """From now on it never chooses the end symbol."""

    def without_end(module: torch.nn.Module, args: Any, logits: Tensor) -> Tensor:
        logits[..., EOS] = -torch.inf
        return logits

    model.output.register_forward_hook(without_end)


def decoded_pairs(corpus: Corpus) -> Dataset:
    """The first test split, or validation where there is none."""
    return next(iter(corpus.tests.values()), corpus.valid)


def decode(spec: dict[str, Any]) -> tuple[Answer, Callable[[Answer], Answer]]:
    """With `length`, exactly so many tokens a sentence; else each until it ends. engine: ctranslate2 takes a checkpoint."""
    length, search = spec["length"], Search(beam=spec["beam"])
    if spec["checkpoint"]:
        run = load_run(spec["checkpoint"], "auto")
        model, vocabulary = run.model, run.vocabulary
        corpus = stored_corpus(run, spec["checkpoint"], spec["trust_data"], "benchmark.trust_data")
    else:
        data, translator = prepared(RunSettings.of(spec["config"]))
        model, vocabulary, corpus = translator.model, translator.vocabulary, data.corpus
    if length:
        endless(model)
        search = Search(beam=spec["beam"], length_factor=0.0, length_offset=length)
    model.to(spec["device"])
    sentences: list[str] = decoded_pairs(corpus)["src"][: spec["sentences"]]
    about = {"torch": torch.__version__, "parameters": parameter_count(model)}
    engine: Callable[[list[str]], list[list[Hypothesis]]] = partial(translate, model, vocabulary, how=search)
    if spec["engine"] == "ctranslate2":
        engine = CTranslate2(run, search, spec["quantization"])
        about["engine"] = engine.name

    def burst(request: Answer) -> Answer:
        started = time.perf_counter()
        found = [n_best[0] for n_best in engine(sentences)]
        synchronise(spec["device"])
        seconds = time.perf_counter() - started
        if length and {len(hypothesis.tokens) for hypothesis in found} != {length}:
            raise RuntimeError(f"not every translation has {length} tokens")
        more = {"outputs": [vocabulary.tgt.decode(hypothesis.tokens) for hypothesis in found]} if request.get("outputs") else {}
        tokens = sum(len(hypothesis.tokens) + hypothesis.ended for hypothesis in found)
        return {"seconds": seconds, "sentences": len(found), "tokens": tokens, **more}

    return about, burst


def prepare(spec: dict[str, Any]) -> tuple[Answer, Callable[[Answer], Answer]]:
    """From text to the first batch, with no cache."""
    config = spec["config"]

    def burst(request: Answer) -> Answer:
        with tempfile.TemporaryDirectory() as folder:
            clock = [time.perf_counter()]
            corpus = read_corpus(config["data"])
            clock.append(time.perf_counter())
            vocabulary = Vocabulary.train(corpus.train, **config["data"]["tokenizer"], cache_dir=Path(folder))
            clock.append(time.perf_counter())
            data = TranslationData(
                corpus, vocabulary, **config["data"]["batch"], seed=random.randrange(2**32), cache_dir=Path(folder)
            )
            batches = data.train_dataloader()
            clock.append(time.perf_counter())
            next(iter(batches))
            clock.append(time.perf_counter())
        names = ("corpus", "tokenizer", "token ids", "first batch")
        parts = {name: end - start for name, start, end in zip(names, clock, clock[1:], strict=False)}
        return {"seconds": clock[-1] - clock[0], "pairs": len(corpus.train), "parts": parts}

    return {"torch": torch.__version__}, burst


def main() -> None:
    wire = Wire()
    spec = setting_file()
    prepare_process(spec["threads"])
    if spec["task"] == "train":
        train(spec, wire)
        return
    about, burst = (decode if spec["task"] == "decode" else prepare)(spec)
    wire.answer(**about)
    serve(wire, burst)


if __name__ == "__main__":
    main()
