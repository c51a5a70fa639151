"""Runs Entente as a user does, and prepares the files that the other contestants read. No other module trains or loads a model.

Training is an ordinary run, with its data, model, Lightning trainer and callbacks, in a temporary directory. Between two bursts
(timed measurements), training pauses in a callback that waits for the next request.
"""

import tempfile
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor

from benchmark.operations import ceiling, training_operations
from benchmark.parts import Profile, synchronise
from benchmark.wire import Burst, Message, Wire
from entente import checkpoint
from entente.checkpoint import provenance as provenance
from entente.commands.scoring import stored_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS, Vocabulary
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.export.formats import write_ctranslate2
from entente.models.seq2seq import Seq2Seq, parameter_count
from entente.process import prepare_process
from entente.settings import RunSettings, SearchSettings
from entente.training.run_directory import open_run
from entente.training.train import prepare
from entente.training.trainer import build_trainer
from entente.validation import validate

ENDLESS = 10**6  # more steps than any benchmark takes; training ends when there are no more requests


class Bursts(L.Callback):
    """Makes training wait for a request such as {"steps": 10, "profile": false}, take the steps, answer, and wait again."""

    def __init__(self, wire: Wire, model: dict[str, Any]) -> None:
        self.wire, self.model = wire, model

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.wire.answer(torch=torch.__version__, lightning=L.__version__, parameters=parameter_count(pl_module))
        self._wait(pl_module)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._batches.append(batch)
        if len(self._batches) == self._steps:
            self._answer(pl_module)
            self._wait(pl_module)

    def _wait(self, module: L.LightningModule) -> None:
        request = self.wire.request()
        self._steps, self._batches = request["steps"], list[Any]()
        self._profile = Profile(module.device.type, module).__enter__() if request.get("profile") else None
        self._started = time.perf_counter()

    def _answer(self, module: Any) -> None:
        synchronise(module.device.type)
        answer: Message = {"seconds": time.perf_counter() - self._started, "tokens": 0, "gflop": 0.0}
        if self._profile:
            self._profile.__exit__(None, None, None)
            answer["parts"] = self._profile.parts(answer["seconds"])
        for batch in self._batches:
            tokens = len(batch.real)
            answer["tokens"] += tokens
            if self.model["name"] == "transformer":
                sizes = len(batch.src), batch.src.size(1), batch.tgt.size(1) - 1, tokens
                answer["gflop"] += training_operations(self.model, module.model.output.out_features, *sizes) / 1e9
        self.wire.answer(**answer)


def train(config: dict[str, Any], wire: Wire) -> None:
    changes = {"trainer": {**config["trainer"], "max_steps": ENDLESS, "validate_every": ENDLESS}}
    settings = validate(RunSettings, {**config, **changes, "output_dir": tempfile.mkdtemp()})
    data, translator = prepare(settings)
    trainer = build_trainer(translator, data)
    trainer.callbacks.append(Bursts(wire, config["model"]))  # type: ignore[attr-defined]
    with open_run(None, translator, trainer):
        trainer.fit(translator, datamodule=data)


def prepared(config: Mapping[str, Any]) -> TranslationData:
    """Returns the data of a run."""
    return prepare(validate(RunSettings, config))[0]


def training_batches(data: TranslationData, steps: int) -> list[Any]:
    """Returns the first `steps` training batches, as pairs of src (B, S) and tgt (B, T)."""
    return [(batch.src.tolist(), batch.tgt.tolist()) for batch in islice(data.train_dataloader(), steps)]


def write_text(data: TranslationData, folder: Path) -> None:
    """Writes the training text, the tokenizer and its pieces, for programs that make their own batches."""
    vocabulary, train = data.vocabulary.tgt, data.corpus.train
    columns = {"text.src": train["src"], "text.tgt": train["tgt"], "pieces": vocabulary.pieces(range(len(vocabulary)))}
    for name, lines in columns.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "tokenizer").write_bytes(vocabulary.model)


def decodable(spec: Mapping[str, Any]) -> tuple[checkpoint.TrainedRun, list[str], list[str]]:
    """Returns the model to decode with, trained if there is a checkpoint, and the first sources and references of the first
    test split, or of the validation split if there is no test split."""
    if path := spec["checkpoint"]:
        run = checkpoint.load(path)
        corpus = stored_corpus(run, path, spec["trust_data"])
    else:
        settings = validate(RunSettings, spec["config"])
        data, translator = prepare(settings)
        run = checkpoint.TrainedRun(translator.model.eval(), data.vocabulary, settings, {}, 0, frozenset())
        corpus = data.corpus
    pairs = next(iter(corpus.tests.values()), corpus.valid)
    return run, pairs["src"][: spec["sentences"]], pairs["tgt"][: spec["sentences"]]


def export(run: checkpoint.TrainedRun, folder: str) -> str:
    """Writes the model in CTranslate2's format. Returns the reason if this is impossible."""
    try:
        write_ctranslate2(run, Path(folder), positions=4096)
    except InputError as error:  # CTranslate2 does not support the model, or is not installed
        return str(error)
    return ""


def as_text(vocabulary: Vocabulary, outputs: list[Any]) -> list[str]:
    """Returns the outputs as text. Entente's outputs are text already; CTranslate2's are lists of pieces."""
    ids = {piece: i for i, piece in enumerate(vocabulary.tgt.pieces(range(len(vocabulary.tgt))))}
    return [text if isinstance(text, str) else vocabulary.tgt.decode([ids[piece] for piece in text]) for text in outputs]


def forbid_end(model: Seq2Seq) -> None:
    """Registers a hook that keeps the model from choosing the end symbol."""

    def without_end(module: torch.nn.Module, inputs: Any, logits: Tensor) -> None:
        logits[..., EOS] = -torch.inf

    model.output.register_forward_hook(without_end)


def decode(spec: Mapping[str, Any]) -> tuple[Burst, Message]:
    """Prepares decoding of exactly `length` tokens per sentence or, if `length` is 0, up to the end symbol. Returns
    the function that runs a burst, and a description for the first answer."""
    run, sentences, _ = decodable(spec)
    length, search = spec["length"], SearchSettings(beam=spec["beam"])
    if length:
        forbid_end(run.model)
        search = SearchSettings(beam=spec["beam"], length_factor=0.0, length_offset=length)
    run.model.to(spec["device"])

    def burst(request: Message) -> Message:
        started = time.perf_counter()
        results = translate(run.model, run.vocabulary, sentences, search)
        synchronise(spec["device"])
        answer: Message = {"seconds": time.perf_counter() - started, "sentences": len(results)}
        translations = [n_best[0].tokens for n_best in results]
        assert not length or {*map(len, translations)} == {length}
        if request.get("outputs"):
            answer["outputs"] = [run.vocabulary.tgt.decode(tokens) for tokens in translations]
        return answer

    return burst, {"torch": torch.__version__}


def time_preparation(config: Mapping[str, Any]) -> Message:
    """Prepares a run and its first batch from text, without caches: a burst of the case `data`."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        data = prepared({**config, "output_dir": folder})
        next(iter(data.train_dataloader()))
        return {"seconds": time.perf_counter() - started, "pairs": len(data.corpus.train)}


def main() -> None:
    wire = Wire()
    spec = wire.settings
    prepare_process(spec["threads"])
    match spec["task"]:
        case "train":
            train(spec["config"], wire)
        case "decode":
            burst, about = decode(spec)
            wire.serve(burst, **about)
        case "prepare":
            wire.serve(lambda request: time_preparation(spec["config"]))
        case "ceiling":
            wire.serve(lambda request: ceiling(spec))


if __name__ == "__main__":
    main()
