"""A run as TensorBoard shows it, apart from what its callbacks log: its settings, its final figures, and its files in order."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard.summary import hparams

from entente.config.schema import flat

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
    settings = {key: value for key, value in flat(config) if not isinstance(value, Mapping)}
    tests_first = sorted(splits, key=lambda split: split == "valid")
    final = [f"final/{split}/{name}" for name in FINAL for split in tests_first]
    experiment, start, _ = hparams(
        {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in settings.items()},
        dict.fromkeys([*final, "valid/bleu", "valid/nll", "train/loss"], 0.0),  # their values are the scalars'
    )
    described = experiment.value[0].metadata.plugin_data
    content = HParamsPluginData.FromString(described.content)
    for info in content.experiment.hparam_infos:
        info.differs = info.name in DIFFER  # TensorBoard shows these first
    described.content = content.SerializeToString()
    assert isinstance(trainer.logger, TensorBoardLogger)
    put_events_in_order(Path(trainer.logger.log_dir))
    for summary in (experiment, start):
        trainer.logger.experiment.file_writer.add_summary(summary)


def log_final(trainer: L.Trainer, metrics: Mapping[str, Any]) -> None:
    """The final figures for TensorBoard."""
    assert isinstance(trainer.logger, TensorBoardLogger)
    put_events_in_order(Path(trainer.logger.log_dir))
    trainer.logger.log_metrics(
        {f"final/{split}/{name}": m[name] for split, m in metrics.items() for name in FINAL},
        trainer.global_step + 1,  # after every step, so that an evaluation done again replaces it
    )
    trainer.logger.finalize("success")


def put_events_in_order(run_dir: Path) -> None:
    """Has TensorBoard read the event files there before the next one: it reads them in the order of their names, which begin
    with the second they were made in, and the clock may have been set back. None may be open."""
    now, last = f"{EVENTS}{int(time.time()):010d}", f"{EVENTS}{0:010d}"
    for path in sorted(run_dir.glob(f"{EVENTS}*")):
        if path.name >= now:
            path = path.rename(path.with_name(f"{last}.0"))  # behind the one before it, and before all others
        last = path.name
