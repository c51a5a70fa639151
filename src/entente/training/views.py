"""Writes what TensorBoard shows besides training curves: settings, scores, attention, translations and diagnoses.

TensorBoard groups tags by the part before the first "/" and sorts the groups by name, so that the curves in train/ and valid/
come first, followed by weights/ (attention), "when finished/" and why/. All tags about validation contain "valid", so that a
filter finds them.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from entente import escape
from entente.attention.diagnose import diagnose, gradient_norms
from entente.attention.draw import draw, draw_heads
from entente.attention.numbers import measure, pairs_of
from entente.attention.record import NAME_OF_KIND, TO_SOURCE, has_attention, record
from entente.console import Task
from entente.data.batches import to_device
from entente.data.module import TranslationData
from entente.data.text import clean
from entente.decoding.translate import translate
from entente.evaluation import scores_table
from entente.settings import ViewsSettings
from entente.training.translator import Translator

TEST_BLEU = "when finished/test bleu"  # BLEU on the first test split
VALID_BLEU = "when finished/valid bleu"
FINAL = ".final"  # suffix of the event file with the final scores
# Two sentences with interesting attention: a two-word negation in a comparative, and an elided article.
FIXED_SENTENCES = {
    "fr": ("Il n'est pas aussi grand que son père.", "Jane visite l'Afrique en septembre."),
    "en": ("He is not as tall as his father.", "Jane visits Africa in September."),
}
MORE_PIECES = 8  # by how many pieces a map may be longer than its source; a failed model repeats itself up to this limit
# The charts of Custom Scalars. Every run writes the same charts, and TensorBoard merges them.
LAYOUT = {
    "All runs": {
        "training loss": ["Multiline", ["train/loss$"]],
        "validation BLEU": ["Multiline", ["valid/bleu$"]],
        "target tokens per second": ["Multiline", ["train/tokens_per_second$"]],
    }
}


class Board(TensorBoardLogger):
    """Lightning's TensorBoard logger without its hparams.yaml, which would be empty and not written atomically."""

    def save(self) -> None:
        self.experiment.flush()


def log_settings(trainer: L.Trainer, config: Mapping[str, Any]) -> None:
    """Writes the layout of TensorBoard's Custom Scalars, and a row of its HParams table, whose metrics are BLEU. Called
    before training, so that unfinished runs also have a row. With more settings, the metrics would not fit on the screen."""
    board: Any = trainer.logger
    board.experiment.add_custom_scalars(LAYOUT)
    # The seed is text, since TensorBoard would show the number 1 as 1.0000.
    settings = {"variant": config["variant"], "model": config["model"]["name"], "seed": str(config["seed"])}
    metrics = {TEST_BLEU: 0.0, VALID_BLEU: 0.0}  # placeholders; the table shows the scalars with these tags
    for summary in hparams(settings, metrics)[:2]:
        board.experiment.file_writer.add_summary(summary)


def log_final(trainer: L.Trainer, metrics: Mapping[str, Any]) -> None:
    """Writes the final scores to TensorBoard, in an event file of their own, so that a repeated evaluation replaces them."""
    board: Any = trainer.logger
    board.finalize("success")
    for path in Path(board.log_dir).glob(f"events.*{FINAL}"):
        path.unlink()
    head, *rows = [list(map(escape.markdown, row)) for row in scores_table(metrics)]
    with SummaryWriter(board.log_dir, filename_suffix=FINAL) as writer:
        writer.add_text("scores/when finished", escape.table(head, rows, left=1), trainer.global_step)
        for split, tag in zip(metrics, (VALID_BLEU, TEST_BLEU), strict=False):
            writer.add_scalar(tag, metrics[split]["bleu"], trainer.global_step)


class TensorBoardViews(L.Callback):
    """Logs the chosen views after each validation. At step 1 and every `diagnosis` steps, logs what may explain why a model
    fails: the gradient norm of each part before clipping, and what `diagnose` measures on the first validation sentences.
    language: the source language, which decides the sentences to draw besides the first validation sentence."""

    def __init__(self, settings: ViewsSettings, language: str) -> None:
        self.settings, self.sentences = settings, FIXED_SENTENCES.get(language, ())
        self._due: int | None = None  # the step after which `diagnose` is to run

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        step = trainer.global_step + 1  # the step in progress
        if self.settings.diagnosis and trainer.logger and (step % self.settings.diagnosis == 0 or step == 1):
            self._due = step
            norms = gradient_norms(pl_module.model)
            log_diagnosis(trainer.logger, {f"gradient_norm/{place}": norm for place, norm in norms.items()}, step)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self._due:
            self._due = None  # so that it runs only once: with accumulation, the next batches have the same global_step
            batch = to_device(trainer.datamodule.sample(16), pl_module.device)  # type: ignore[attr-defined]
            log_diagnosis(trainer.logger, diagnose(pl_module.model, batch.src, batch.tgt[:, :-1]), trainer.global_step)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not isinstance(board := trainer.logger, TensorBoardLogger):
            return
        step, valid = trainer.global_step, pl_module.valid
        validate_every = int(trainer.val_check_interval) // trainer.accumulate_grad_batches  # in steps
        draw_every = max(1, math.ceil(self.settings.attention_every / validate_every))  # in validations
        is_due = trainer.should_stop or (step // validate_every) % draw_every == 1 % draw_every
        has_maps = has_attention(pl_module.model)
        if self.settings.attention and has_maps and is_due:
            sentences = [*((text, text) for text in self.sentences), ("valid 1", valid.sources[0])]
            with Task("drawing attention maps"):
                for tag, figure in attention_figures(pl_module, sentences):
                    board.experiment.add_figure(tag, figure, step)
        if self.settings.heads and has_maps:
            with Task("measuring the heads"):
                log_heads(board, pl_module, trainer.datamodule, self.settings.heads, step)  # type: ignore[attr-defined]
        if self.settings.translations:
            rows = islice(zip(valid.sources, valid.references, valid.hypotheses, strict=True), self.settings.translations)
            lines = [list(map(escape.markdown, row)) for row in rows]
            table = escape.table(("source", "reference", "translation"), lines)
            board.experiment.add_text("translations/valid", table, step)


def attention_figures(translator: Translator, sentences: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Figure]]:
    """Translates each (title, source text). Yields a tag and a figure per kind of attention."""
    vocabulary = translator.vocabulary
    search = translator.settings.search.model_copy(update={"length_factor": 1.0, "length_offset": MORE_PIECES})
    translations = translate(translator.model, vocabulary, [text for _, text in sentences], search)
    for (title, text), [hypothesis, *_] in zip(sentences, translations, strict=True):
        limit = "" if hypothesis.ended else " (stopped at its length limit)"
        caption = f"{clean(text)}  \u2192  {vocabulary.text(hypothesis.tokens)}{limit}"
        [src] = vocabulary.encode_src([clean(text)])
        for map in record(translator.model, vocabulary, src, hypothesis.tokens):
            yield f"weights/{title}/{map.kind}", draw(map, caption)


def log_heads(board: TensorBoardLogger, translator: Translator, data: TranslationData, n: int, step: int) -> None:
    """Measures each head on the first n validation pairs, with its alignment error rate if the corpus has gold links. Logs the
    values as one picture, or as scalars if there is only one head, as in the BiRNN."""
    pairs = pairs_of(data, "valid", n)
    numbers, alignments = measure(translator.model, translator.vocabulary, pairs)
    maps: dict[str, dict[str, Tensor]] = {kind: measures._asdict() for kind, measures in numbers.items()}  # (L, H) by aspect
    for kind in maps.keys() & TO_SOURCE if alignments.gold else ():
        maps[kind]["aer"] = alignments.error_rates()
    values = {f"weights/valid {aspect} {NAME_OF_KIND[kind]}": maps[kind][aspect] for kind in maps for aspect in maps[kind]}
    if all(value.numel() == 1 for value in values.values()):
        board.log_metrics({tag: float(value) for tag, value in values.items()}, step)
    else:
        title = f"Every layer (row) and head (column): means over {len(pairs)} validation sentences"
        board.experiment.add_figure("weights/valid heads", draw_heads(maps, title), step)


def log_diagnosis(board: Any, values: Mapping[str, float], step: int) -> None:
    """Logs each value, named "ASPECT/PLACE", as a tensor, which TensorBoard does not show but the comparison of a suite draws.
    Also logs the smallest and the largest value of each aspect as scalars."""
    aspects: defaultdict[str, list[float]] = defaultdict(list)
    for name, value in values.items():
        board.experiment.add_tensor(f"why/{name}", torch.tensor(value), step)
        aspects[name.partition("/")[0]].append(value)
    extremes = {"smallest": np.fmin.reduce, "largest": np.fmax.reduce}  # both ignore NaN
    scalars = {f"why/{aspect} {which}": of(parts) for aspect, parts in aspects.items() for which, of in extremes.items()}
    board.log_metrics(scalars, step)
