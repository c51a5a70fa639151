"""What a run reports: its settings and final figures to TensorBoard, a table on the terminal, and files of translations."""

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console
from rich.table import Column, Table
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard.summary import hparams

from entente.config.schema import flat
from entente.evaluation import Evaluation
from entente.files import file_in, write_text

log = logging.getLogger("entente")

EVENTS = "events.out.tfevents."  # how TensorBoard's files begin; then the second, the host, the process and a count
FINAL = ("bleu", "chrf", "ter", "nll")
DIFFER = ("model.name", "seed", "variant")  # the settings by which one tells runs apart


class Board(TensorBoardLogger):
    """Lightning's logger without its hparams.yaml, which held nothing and was not written whole; see config.yaml."""

    def save(self) -> None:
        self.experiment.flush()


def log_settings(trainer: L.Trainer, config: Mapping[str, Any], splits: Iterable[str]) -> None:
    """Every setting for TensorBoard's HParams table, and which scalars are its metrics. Before training, so that a run that
    does not come to its end has a row too, with the metrics that it has."""
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
    writer = _board(trainer).experiment.file_writer
    for summary in (experiment, start):
        writer.add_summary(summary)


def log_final(trainer: L.Trainer, metrics: Mapping[str, Any]) -> None:
    """The final figures for TensorBoard, at a step after all others, so that an evaluation done again replaces them."""
    board = _board(trainer)
    final = {f"final/{split}/{name}": m[name] for split, m in metrics.items() for name in FINAL}
    board.log_metrics(final, trainer.global_step + 1)
    board.finalize("success")


def _board(trainer: L.Trainer) -> Board:
    """The logger of a run none of whose event files is open. TensorBoard reads these in the order of their names, which begin
    with the second they were made in, and the clock may have been set back: so files that the next one would not follow are
    renamed."""
    board = trainer.logger
    assert isinstance(board, Board)
    now, last = f"{EVENTS}{int(time.time()):010d}", f"{EVENTS}{0:010d}"
    for path in sorted(Path(board.log_dir).glob(f"{EVENTS}*")):
        if path.name >= now:
            path = path.rename(path.with_name(f"{last}.0"))  # behind the one before it, and before all others
        last = path.name
    return board


def write_translations(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """translations/SPLIT.tsv of each split, under a line of headings."""
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(part.replace("\t", " ") for part in line) + "\n" for line in lines)
        write_text(file_in(directory / "translations", split, ".tsv"), "source\treference\ttranslation\n" + text)


def show(metrics: Mapping[str, Any], title: str) -> None:
    """The table at a run's end."""
    log.info("%s", title)
    table = Table("split", *(Column(name, justify="right") for name in ("sentences", "BLEU", "chrF", "TER", "NLL")))
    for split, m in metrics.items():
        scores = (f"{m[name]:.2f}" for name in ("bleu", "chrf", "ter"))
        table.add_row(split, str(m["sentences"]), *scores, f"{m['nll']:.4f}")
    Console(markup=False, emoji=False).print(table)
