"""Lightning's Trainer as a run uses it, and what accompanies training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge, Interval, doc
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from entente.process import Threads
from entente.training.progress import TrainingProgress
from entente.training.report import Board
from entente.training.saving import VerifiedCheckpoints
from entente.training.views import AttentionMaps, AttentionNumbers, Diagnosis, SampleTranslations, Views

AtLeastOne = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class TrainerSettings:
    """What Lightning's Trainer is given; how many steps, and on what."""

    suffix: Annotated[str, doc("of the run's name")] = ""
    max_steps: Annotated[AtLeastOne, doc("optimiser steps")] = 1600
    validate_every: Annotated[AtLeastOne, doc("steps")] = 400
    patience: Annotated[AtLeastOne | None, doc("validations without a better BLEU before training stops; null: never")] = None
    gradient_clip: Annotated[float, Ge(0), doc("norm of the whole gradient; 0: never")] = 1.0
    accumulate: Annotated[AtLeastOne, doc("batches per step")] = 1
    precision: Annotated[str | int, doc("as Lightning names them: bf16-mixed, 16-mixed, 64-true, ...")] = "32-true"
    accelerator: Annotated[str, doc("as Lightning names them: auto, cpu, gpu, ...")] = "auto"
    threads: Threads = None
    log_every: Annotated[AtLeastOne, doc("steps")] = 20
    limit_batches: Annotated[
        AtLeastOne | Annotated[float, Interval(gt=0, le=1)], doc("of validation and tests: a share, or a number of batches")
    ] = 1.0


# Two sentences whose attention is worth watching: two-word negation in a comparative, and an elided article.
FIXED_SENTENCES = {
    "fr": ("Il n'est pas aussi grand que son père.", "Jane visite l'Afrique en septembre."),
    "en": ("He is not as tall as his father.", "Jane visits Africa in September."),
}


def callbacks(views: Views, patience: int | None, language: str) -> list[Callback]:
    """What accompanies training beside its checkpoints: early stopping, progress, and views for TensorBoard. language: of the
    source, in which the fixed sentences are."""
    chosen: list[Callback] = [TrainingProgress()]
    if views.diagnosis:
        chosen.append(Diagnosis(views.diagnosis))
    if patience:
        chosen.append(EarlyStopping("valid/bleu", mode="max", patience=patience))
    if views.attention:
        fixed = [(text, text) for text in FIXED_SENTENCES.get(language, ())]
        chosen.append(AttentionMaps(fixed, views.attention_every))
    if views.heads:
        chosen.append(AttentionNumbers(views.heads))
    if views.translations:
        chosen.append(SampleTranslations(views.translations))
    return chosen


def refused_by_lightning(settings: TrainerSettings, part: str = "trainer.") -> list[str]:
    """What no signature says: accelerators and precisions that are not to be had here."""
    for key, tried in (("accelerator", replace(settings, precision="32-true")), ("precision", settings)):
        try:
            build_trainer(tried, None)
        except (TypeError, ValueError, ImportError, MisconfigurationException) as error:
            return [f"{part}{key}={getattr(settings, key)}: choose another ({str(error).splitlines()[0]})"]
    return []


def build_trainer(
    settings: TrainerSettings, run_dir: Path | None, chosen: Iterable[Callback] = (), purge_step: int = 0
) -> L.Trainer:
    """Lightning's Trainer with our budget in steps. Without a run's directory it logs nothing. purge_step: TensorBoard forgets
    what it was shown from this step on; only if the first of a run's writers says so as well."""
    board: dict[str, Any] = {"name": "", "version": "", "default_hp_metric": False, "purge_step": purge_step}
    return L.Trainer(
        accelerator=settings.accelerator,
        devices=1,
        precision=settings.precision,  # type: ignore[arg-type]
        max_steps=settings.max_steps,
        max_epochs=-1,
        val_check_interval=settings.validate_every * settings.accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=settings.gradient_clip or None,
        accumulate_grad_batches=settings.accumulate,
        num_sanity_val_steps=0,
        log_every_n_steps=1,  # the module decides which steps have something to log
        logger=Board(run_dir, **board) if run_dir else False,
        plugins=[VerifiedCheckpoints()],
        callbacks=list(chosen),
        default_root_dir=run_dir,
        enable_checkpointing=False,
        enable_progress_bar=run_dir is not None,
        enable_model_summary=False,
    )


@contextmanager
def placed(model: nn.Module, accelerator: str, precision: str | int) -> Iterator[None]:
    """Puts a model on the accelerator; inside, it computes in the precision that Lightning knows by this name."""
    fabric = L.Fabric(accelerator=accelerator, devices=1, precision=precision)  # type: ignore[arg-type]
    fabric.setup_module(model)  # moves and converts it in place; the wrapper that it returns only adds autocast
    with fabric.autocast():
        yield
