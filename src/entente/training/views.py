"""What TensorBoard is given besides curves: settings and final figures, attention maps, numbers of heads, translations."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import lightning as L
import numpy as np
from annotated_types import Ge, doc
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard.summary import hparams

from entente.attention.diagnose import diagnose, gradient_norms
from entente.attention.draw import draw
from entente.attention.numbers import measure, pairs_of
from entente.attention.record import NAME_OF_KIND, has_attention, record
from entente.config.schema import flat
from entente.console import escape
from entente.console.escape import table
from entente.data.batches import Batch
from entente.data.files import clean
from entente.decoding.translate import translate
from entente.training.translator import Translator

EVENTS = "events.out.tfevents."  # how TensorBoard's files begin; then the second, the host, the process and a count
FINAL = ("bleu", "chrf", "ter", "nll")
DIFFER = ("model.name", "seed", "variant")  # the settings by which one tells runs apart


@dataclass(frozen=True)
class Views:
    """What TensorBoard is given at each validation."""

    attention: Annotated[bool, doc("attention maps of the two fixed sentences and the first of validation")] = True
    attention_every: Annotated[
        int, Ge(0), doc("steps between attention maps, the last validation apart; 0: at each validation")
    ] = 1000
    heads: Annotated[
        int, Ge(0), doc("validation sentences on which every head is measured: entropy, alignment and more; 0: never")
    ] = 32
    translations: Annotated[int, Ge(0), doc("sample translations")] = 10
    diagnosis: Annotated[int, Ge(0), doc("steps between looks at gradients, sublayers and attention; 0: never")] = 50


class Board(TensorBoardLogger):
    """Lightning's logger without its hparams.yaml, which held nothing and was not written whole; see config.yaml."""

    def save(self) -> None:
        self.experiment.flush()


def log_settings(trainer: L.Trainer, config: Mapping[str, Any], splits: Iterable[str]) -> None:
    """Every setting for TensorBoard's HParams table, and which scalars are its metrics. Before training, so that a run that
    does not come to its end has a row too, with the metrics that it has."""
    writer = _board(trainer).experiment.file_writer
    settings = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(config)
        if not isinstance(value, Mapping)
    }
    tests_first = sorted(splits, key=lambda split: split == "valid")
    metrics = [*(f"final/{split}/{name}" for name in FINAL for split in tests_first), "valid/bleu", "valid/nll", "train/loss"]
    experiment, start, _ = hparams(settings, dict.fromkeys(metrics, 0.0))  # their values are the scalars'
    described = experiment.value[0].metadata.plugin_data
    content = HParamsPluginData.FromString(described.content)
    for info in content.experiment.hparam_infos:
        info.differs = info.name in DIFFER  # TensorBoard shows these first
    described.content = content.SerializeToString()
    for summary in (experiment, start):
        writer.add_summary(summary)


def log_final(trainer: L.Trainer, metrics: Mapping[str, Any]) -> None:
    """The final figures for TensorBoard, at a step after all others, so that an evaluation done again replaces them."""
    board = _board(trainer)
    final = {f"final/{split}/{name}": m[name] for split, m in metrics.items() for name in FINAL}
    board.log_metrics(final, trainer.global_step + 1)
    board.finalize("success")


def _board(trainer: L.Trainer) -> Board:
    """The logger of a run none of whose event files is open. TensorBoard reads them by name, which begins with the second they
    were made in. The clock may have been set back, so files that the next one would not follow are renamed."""
    board = trainer.logger
    assert isinstance(board, Board)
    now, last = f"{EVENTS}{int(time.time()):010d}", f"{EVENTS}{0:010d}"
    for path in sorted(Path(board.log_dir).glob(f"{EVENTS}*")):
        if path.name >= now:
            path = path.rename(path.with_name(f"{last}.0"))  # behind the one before it, and before all others
        last = path.name
    return board


class View(L.Callback):
    """Calls `write` after each validation, in a run that has a TensorBoard. n: how many sentences of validation to look at."""

    def __init__(self, n: int) -> None:
        self.n = n

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if isinstance(trainer.logger, TensorBoardLogger):
            self.write(trainer.logger, trainer, pl_module)

    def write(self, board: TensorBoardLogger, trainer: L.Trainer, translator: Translator) -> None:
        """Logs to the board what was seen at trainer.global_step."""
        raise NotImplementedError("an abstract view")


class AttentionMaps(View):
    """Logs the attention to some sentences as images, one per kind and sentence: "attention/KIND/TITLE".

    The model reads its own translation, decoded as in validation. Each sentence is recorded alone, so that other sentences do
    not change its maps, even in variants that break a mask.

    sentences: (short title, text in the source language). n: how many more to take from the start of the validation split.
    every_n_steps: skip validations until this many steps after the last maps, except the last validation of the run.
    """

    def __init__(self, sentences: Sequence[tuple[str, str]], every_n_steps: int = 0, n: int = 1) -> None:
        super().__init__(n)
        self.sentences = list(sentences)
        self.every_n_steps = every_n_steps
        self._last: int | None = None  # the step of the last maps

    def state_dict(self) -> dict[str, Any]:
        return {"last": self._last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._last = state_dict["last"]

    def write(self, board: TensorBoardLogger, trainer: L.Trainer, translator: Translator) -> None:
        step = trainer.global_step
        if self._last is not None and step - self._last < self.every_n_steps and not trainer.should_stop:
            return
        self._last = step
        valid = translator.evaluations["valid"].sources[: self.n]
        sentences = self.sentences + [(f"valid {i + 1}", text) for i, text in enumerate(valid)]
        for tag, image in attention_images(translator, sentences):
            board.experiment.add_image(tag, image, step, dataformats="HWC")


def attention_images(translator: Translator, sentences: Sequence[tuple[str, str]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tag and the picture (height, width, 3), uint8, of every kind of attention to each (title, source text)."""
    if not has_attention(translator.model):
        return
    vocabulary = translator.vocabulary
    translations = translate(translator.model, vocabulary, [text for _, text in sentences], translator.search)
    for (title, text), [hypothesis, *_] in zip(sentences, translations, strict=True):
        caption = f"{clean(text)}  \u2192  {vocabulary.tgt.decode(hypothesis.tokens)}"
        if not hypothesis.ended:
            caption += " (stopped at its length limit)"
        [src] = vocabulary.encode_src([clean(text)])
        for map in record(translator.model, vocabulary, src, hypothesis.tokens):
            canvas = FigureCanvasAgg(draw(map, caption))
            canvas.draw()
            yield f"attention/{map.kind}/{title}", np.asarray(canvas.buffer_rgba())[..., :3]


class AttentionNumbers(View):
    """Logs what each head does on the first n pairs of validation, as scalars "heads/ASPECT/KIND LAYER.HEAD", the share of
    heads that are near-uniform as "heads/near_uniform/KIND", and alignment error rates if the corpus has gold links."""

    def write(self, board: TensorBoardLogger, trainer: L.Trainer, translator: Translator) -> None:
        if not has_attention(translator.model):
            return
        pairs = pairs_of(trainer.datamodule, "valid", self.n)  # type: ignore[attr-defined]
        numbers, alignments = measure(translator.model, translator.vocabulary, pairs)
        values: dict[str, float] = {}
        for kind, found in numbers.items():
            name = NAME_OF_KIND[kind]
            values[f"heads/near_uniform/{name}"] = found.near_uniform()
            for aspect, of_heads in found._asdict().items():
                for (i, j), value in np.ndenumerate(of_heads.numpy()):
                    values[f"heads/{aspect}/{name} {i + 1}.{j + 1}"] = float(value)
        for head in alignments.heads() if alignments.gold else []:
            if head.step == "produced":
                which = "mean" if head.head is None else head.head + 1
                values[f"heads/aer/{head.layer + 1}.{which}"] = alignments.agreement(head).aer
        board.log_metrics(values, trainer.global_step)


class SampleTranslations(View):
    """Logs the first n sentences of validation as a table of source, reference and translation."""

    def write(self, board: TensorBoardLogger, trainer: L.Trainer, translator: Translator) -> None:
        valid = translator.evaluations["valid"]
        rows = zip(valid.sources[: self.n], valid.references, valid.hypotheses, strict=False)
        text = table(("source", "reference", "translation"), [list(map(escape.markdown, row)) for row in rows])
        board.experiment.add_text("translations/valid", text, trainer.global_step)


class Diagnosis(L.Callback):
    """Logs, every n steps, what may explain why a model fails, as scalars "why/ASPECT/PLACE": the norm of each part's gradient
    before clipping, and what `diagnose` measures on the first sentences of validation."""

    def __init__(self, every_n_steps: int, sentences: int = 16) -> None:
        self.every_n_steps = every_n_steps
        self.sentences = sentences
        self._batch: Batch | None = None
        self._due: int | None = None  # the step after which to diagnose

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        step = trainer.global_step + 1  # of the step in progress
        if step % self.every_n_steps == 0 or step == 1:
            self._due = step
            norms = gradient_norms(pl_module.model)
            pl_module.write({f"why/gradient_norm/{place}": norm for place, norm in norms.items()}, step)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self._due:
            self._due = None  # the next batch may belong to the next step
            if self._batch is None:
                self._batch = trainer.datamodule.sample(self.sentences)  # type: ignore[attr-defined]
            src, read = (ids.to(pl_module.device) for ids in (self._batch.src, self._batch.tgt[:, :-1]))
            found = diagnose(pl_module.model, src, read)
            pl_module.write({f"why/{name}": value for name, value in found.items()}, trainer.global_step)
