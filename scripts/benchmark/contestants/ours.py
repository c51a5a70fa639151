"""Runs Entente as a user does.

Training is an ordinary run, with its data, model, Lightning trainer and callbacks, in a temporary directory. Between two bursts
(timed measurements), training pauses in a callback that waits for the next request.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

import lightning as L
import torch
from datasets import Dataset
from torch import Tensor

from benchmark.operations import training_operations
from benchmark.parts import Profile, synchronise
from benchmark.wire import Answer, Wire
from entente.commands.stored import load_run, stored_corpus
from entente.data.batches import Batch
from entente.data.corpora import Corpus, read_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS, Vocabulary
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import Hypothesis, Search
from entente.decoding.translate import translate
from entente.models.seq2seq import Seq2Seq, parameter_count
from entente.process import prepare_process
from entente.training.run_directory import Checkpoints
from entente.training.settings import RunSettings
from entente.training.train import build_trainer, callbacks, prepare_run
from entente.training.translator import Translator
from entente.training.views import log_settings

ENDLESS = 10**6  # more steps than any benchmark takes; training ends when there are no more requests


class Bursts(L.Callback):
    """Makes training wait for a request such as {"steps": 10, "profile": false}, take the steps, answer, and wait again.
    Removes `folder` when there are no more requests."""

    def __init__(self, wire: Wire, model: dict[str, Any], folder: str) -> None:
        self.wire, self.model, self.folder = wire, model, folder
        self._batches: list[Batch] = []
        self._left = 0
        self._profile: Profile | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        about = {"torch": torch.__version__, "lightning": L.__version__}
        self.wire.answer(**about, parameters=parameter_count(pl_module))
        self._wait(pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._batches.append(batch)
        self._left -= 1
        if not self._left:
            self._answer(pl_module)
            self._wait(pl_module)

    def _answer(self, module: L.LightningModule) -> None:
        synchronise(module.device.type)
        answer: Answer = {"seconds": time.perf_counter() - self._started}
        if self._profile:
            self._profile.__exit__(None, None, None)
            answer["parts"] = self._profile.parts(answer["seconds"])
        tokens = [len(batch.real) for batch in self._batches]
        if self.model["name"] == "transformer":
            assert isinstance(module, Translator)
            answer["gflop"] = 0.0
            for batch, n in zip(self._batches, tokens, strict=True):
                sizes = len(batch.src), batch.src.size(1), batch.tgt.size(1) - 1, n
                answer["gflop"] += training_operations(self.model, module.model.output.out_features, *sizes) / 1e9
        self.wire.answer(**answer, tokens=sum(tokens))

    def _wait(self, module: L.LightningModule) -> None:
        request = next(self.wire.requests(), None)
        if request is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)  # skips the validation and the checkpoint at the end of training
        self._left, self._batches = request["steps"], []
        self._profile = Profile(module.device.type, module) if request.get("profile") else None
        if self._profile:
            self._profile.__enter__()
        self._started = time.perf_counter()


def train(config: dict[str, Any], wire: Wire) -> None:
    L.seed_everything(config["seed"], verbose=False)
    run = RunSettings.of(config)
    data, translator = prepare_run(run)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        saving = Checkpoints(run_dir, run.checkpoint)
        endless = replace(run.trainer, max_steps=ENDLESS, validate_every=ENDLESS)
        views = callbacks(run.views, run.trainer.patience, run.data["src"])
        trainer = build_trainer(endless, run_dir, [saving, *views, Bursts(wire, config["model"], folder)])
        log_settings(trainer, config)
        trainer.fit(translator, datamodule=data)


def forbid_end(model: Seq2Seq) -> None:
    """Registers a hook that keeps the model from choosing the end symbol."""

    def without_end(module: torch.nn.Module, args: Any, logits: Tensor) -> Tensor:
        logits[..., EOS] = -torch.inf
        return logits

    model.output.register_forward_hook(without_end)


def pairs_to_decode(corpus: Corpus) -> Dataset:
    """Returns the first test split, or the validation split if there is no test split."""
    return next(iter(corpus.tests.values()), corpus.valid)


def decode(spec: dict[str, Any]) -> tuple[Answer, Callable[[Answer], Answer]]:
    """Prepares decoding of exactly `length` tokens per sentence or, if `length` is 0, up to the end symbol. The engine
    ctranslate2 needs a checkpoint. Returns a description for the first answer, and the function that runs a burst."""
    length, search = spec["length"], Search(beam=spec["beam"])
    if spec["checkpoint"]:
        run = load_run(spec["checkpoint"], "auto")
        model, vocabulary = run.model, run.vocabulary
        corpus = stored_corpus(run, spec["checkpoint"], spec["trust_data"], "benchmark.trust_data")
    else:
        data, translator = prepare_run(RunSettings.of(spec["config"]))
        model, vocabulary, corpus = translator.model, translator.vocabulary, data.corpus
    if length:
        forbid_end(model)
        search = Search(beam=spec["beam"], length_factor=0.0, length_offset=length)
    model.to(spec["device"])
    sentences: list[str] = pairs_to_decode(corpus)["src"][: spec["sentences"]]
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
        return {"seconds": seconds, "sentences": len(found), **more}

    return about, burst


def prepare(config: dict[str, Any]) -> tuple[Answer, Callable[[Answer], Answer]]:
    """Prepares the case `data`: a burst makes the first batch from text, without caches. Returns the same kinds of values as
    `decode`."""

    def burst(request: Answer) -> Answer:
        with tempfile.TemporaryDirectory() as name:
            folder, started = Path(name), time.perf_counter()
            corpus = read_corpus(config["data"])
            vocabulary = Vocabulary.train(corpus.train, **config["data"]["tokenizer"], cache_dir=folder)
            seed = random.randrange(2**32)
            data = TranslationData(corpus, vocabulary, **config["data"]["batch"], seed=seed)
            next(iter(data.train_dataloader()))
            return {"seconds": time.perf_counter() - started, "pairs": len(corpus.train)}

    return {"torch": torch.__version__}, burst


def main() -> None:
    wire = Wire()
    spec = wire.settings
    prepare_process(spec["threads"])
    if spec["task"] == "train":
        train(spec["config"], wire)
        return
    about, burst = decode(spec) if spec["task"] == "decode" else prepare(spec["config"])
    wire.answer(**about)
    wire.serve(burst)


if __name__ == "__main__":
    main()
