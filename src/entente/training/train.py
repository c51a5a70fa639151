"""One run, from a configuration to a directory with its metrics.

outputs/NAME/config.yaml            the composed configuration
             train.log              what was printed
             events.out.tfevents.*  for TensorBoard
             checkpoints/           best.ckpt by validation BLEU, step-N.ckpt to go on from
             translations/          one file a split: source, reference, translation
             proof.json             of an ablation: in what it differs from the baseline before training
             metrics.json           {split: {bleu, chrf, ter, nll, signature, ...}}; the run is finished when it is there
             training.json          steps, seconds, parameters, speed
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch

from entente import checkpoint
from entente.console.log import LogFile
from entente.data.corpora import Corpus, read_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.files.reading import path_of
from entente.files.writing import clear, write_json
from entente.models.seq2seq import parameter_count
from entente.process import prepare_process
from entente.training.progress import clock
from entente.training.report import log_final, log_settings, show, write_translations
from entente.training.resume import BEGINNING, Point, forget_after, newest, resumable
from entente.training.run_directory import (
    FINISHED,
    is_finished,
    new_run_directory,
    no_folder,
    one_process,
    steps_of_mean,
    unfinished,
)
from entente.training.saving import Checkpoints
from entente.training.settings import RunSettings, problems_of_run
from entente.training.trainer import build_trainer, callbacks, placed, refused_by_lightning
from entente.training.translator import Translator

log = logging.getLogger("entente")


Proof = Callable[[Mapping[str, Any], TranslationData], dict[str, Any]]


def check_run(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the configuration of a run, one line each, before anything is read or written."""
    prepare_process(None)
    if found := problems_of_run(config):
        return found
    settings = RunSettings.of(config)
    return refused_by_lightning(settings.trainer) or no_folder(settings.output_dir)


def train(config: dict[str, Any], prove: Proof | None = None) -> Path:
    """Trains, evaluates and writes one run, or goes on with one; returns its directory. Everything the user could have got
    wrong is checked before a directory is made. prove: called before that too, with configuration and data; what it returns is
    kept as proof.json."""
    if found := check_run(config):
        raise InputError(*found)
    settings = RunSettings.of(config)
    root = path_of(settings.output_dir)
    settings = replace(settings, output_dir=str(root))
    prepare_process(settings.trainer.threads)
    name = settings.name + ("-overfit" if settings.overfit else "")
    run_dir = to_go_on_with(settings, root, name)
    if run_dir and is_finished(run_dir):
        log.info("%s: has finished, nothing left to do", run_dir)
        return run_dir
    L.seed_everything(settings.seed, verbose=False)
    if run_dir is None:
        data, translator = prepared(settings)
        proof = prove(settings.stored(), data) if prove else None
        run_dir = new_run_directory(root, name, settings.stored())
        with resumable(run_dir), one_process(run_dir), LogFile(run_dir / "train.log"):
            if proof:
                write_json(run_dir / "proof.json", proof)
            fit(settings, run_dir, data, translator, None)
        return run_dir
    with resumable(run_dir), one_process(run_dir):
        last = None if settings.trainer.patience else settings.trainer.max_steps
        with LogFile(run_dir / "train.log"):
            point = newest(run_dir, settings.checkpoint.every, settings.checkpoint.average, last)
        data, translator = prepared(settings, point)
        forget_after(run_dir, point)
        with LogFile(run_dir / "train.log"):
            fit(settings, run_dir, data, translator, point)
    return run_dir


def fit(settings: RunSettings, run_dir: Path, data: TranslationData, translator: Translator, point: Point | None) -> None:
    """Trains a run from its beginning, or from a point of it, to its end."""
    clear(run_dir, run_dir / "checkpoints", run_dir / "translations", pattern=".*.new")
    root = Path(settings.output_dir)
    clear(root, *(root / "cache" / kind for kind in ("tokenizer", "tokens")))
    say_what_begins(run_dir, data.corpus, translator)
    if point:
        log.info("%s: %s", run_dir, what_is_left(point, settings.trainer.max_steps))
    kept = max(settings.checkpoint.keep, settings.checkpoint.average)
    saving = Checkpoints(run_dir / "checkpoints", settings.checkpoint.every, kept)
    trainer = build_trainer(
        replace(settings.trainer, max_steps=point.step) if point and point.trained else settings.trainer,
        run_dir,
        [saving, *callbacks(settings.views, settings.trainer.patience, settings.data["src"])],
        purge_step=point.step + 1 if point else 0,
    )
    log_settings(trainer, settings.stored(), decoded(settings, data.corpus))
    path = point.path if point else None
    trainer.fit(translator, datamodule=data, ckpt_path=path, weights_only=True if path else None)
    saving.stop_if_asked(trainer.global_step)  # by a signal that came while Lightning tore down
    finish(settings, run_dir, trainer, translator, data, saving)


def prepared(settings: RunSettings, point: Point = BEGINNING) -> tuple[TranslationData, Translator]:
    """The data of a run, and the model on its first step; what cannot be trained is refused, and whatever is not the text that
    `point` was trained on."""
    log.info("reading the corpus: %s", settings.data["name"])
    corpus = read_corpus(settings.data)
    text = corpus.digest()
    point.refuse_text(text)  # before pieces are learned from it
    cache = Path(settings.output_dir) / "cache"
    vocabulary = Vocabulary.train(corpus.train, **settings.data["tokenizer"], cache_dir=cache / "tokenizer")
    point.refuse_vocabulary(vocabulary)
    data = TranslationData(
        corpus,
        vocabulary,
        **settings.data["batch"],
        seed=settings.seed,
        overfit=settings.overfit,
        cache_dir=cache / "tokens",
        limit_batches=settings.trainer.limit_batches,
    )
    data.check(decoded=["valid", *corpus.tests])
    with torch.device("meta"):  # shapes without memory
        planned = checkpoint.build(settings.model, vocabulary, seed=0)
    checkpoint.refuse_beyond_memory(planned, copies=4)  # weights, gradients, Adam's two
    translator = Translator(
        checkpoint.build(settings.model, vocabulary, settings.seed),
        vocabulary,
        settings.optim,
        settings.search,
        max_steps=settings.trainer.max_steps,
        log_every=settings.trainer.log_every,
        checkpoint_entry=checkpoint.entry(settings.stored(), vocabulary, text),
    )
    return data, translator


def say_what_begins(run_dir: Path, corpus: Corpus, translator: Translator) -> None:
    pieces = len(translator.vocabulary.tgt)
    log.info("%s: %s parameters, %d pieces", run_dir, f"{parameter_count(translator.model):,}", pieces)
    read = ", ".join(f"{split} {count:,}" for split, count in corpus.read.items())
    dropped = ", ".join(f"{why} {count:,}" for why, count in corpus.dropped.items()) or "none"
    log.info("pairs read: %s; dropped: %s", read, dropped)


def finish(
    settings: RunSettings,
    run_dir: Path,
    trainer: L.Trainer,
    translator: Translator,
    data: TranslationData,
    saving: Checkpoints,
) -> None:
    """What comes after training: the model to keep is chosen, decoded and scored, and everything written."""
    started = time.perf_counter()
    averaged = None
    with placed(translator.model, settings.trainer.accelerator, settings.trainer.precision):
        if settings.checkpoint.average > 1:
            averaged = keep_mean_if_better(trainer, translator, data, saving, settings.checkpoint.average)
        if saving.best is None:  # trained by a version that did not always validate
            saving.write_best(trainer, translator)
        translator.load_state_dict(checkpoint.read(saving.folder / "best.ckpt")["state_dict"])
        evaluations = {split: translator.evaluate(data.evaluation(split)) for split in decoded(settings, data.corpus)}
    write_translations(run_dir, evaluations)
    metrics = {split: evaluation.metrics() for split, evaluation in evaluations.items()}
    report = {
        "steps": trainer.global_step,
        "seconds": round(saving.seconds, 1),
        "parameters": parameter_count(translator.model),
        "tokens_per_second": round(translator.tokens_per_second, 1),
        "mean_of_checkpoints": averaged,
        "unigram_nll": data.unigram_nll(),
    }
    write_json(run_dir / "training.json", report)
    log_final(trainer, metrics)
    write_json(run_dir / FINISHED, metrics)  # last: a run that has it is finished
    times = (clock(saving.seconds), clock(time.perf_counter() - started))
    log.info("trained %d steps in %s, evaluated in %s (minutes:seconds)", trainer.global_step, *times)
    show(metrics, str(run_dir))


def decoded(settings: RunSettings, corpus: Corpus) -> list[str]:
    """The splits of the final evaluation."""
    return ["valid", *corpus.tests, *(f"{split}@{how}" for split in [*corpus.tests][:1] for how in settings.also_evaluate)]


def to_go_on_with(settings: RunSettings, root: Path, name: str) -> Path | None:
    """The directory of the run that `resume` means: `auto`, a directory, or None for a new run."""
    if settings.resume is None:
        return None
    if settings.resume != "auto":
        return path_of(settings.resume)
    found = unfinished(root, name, settings.stored())
    if found is None:
        log.info("resume=auto: no run %s of this configuration yet, a new one begins", root / name)
    return found


def what_is_left(point: Point, max_steps: int) -> str:
    if point.trained:
        return f"has trained its {point.step} steps, its evaluation is left"
    if point.path is None:
        return f"has no checkpoint, starts again from step 0 of {max_steps}"
    return f"goes on from step {point.step} to {max_steps}"


def keep_mean_if_better(
    trainer: L.Trainer, translator: Translator, data: TranslationData, saving: Checkpoints, n: int
) -> dict[str, Any]:
    """The mean of the last n regular checkpoints becomes best.ckpt where it scores at least as well on validation. Returns a
    report."""
    paths = [saving.folder / f"step-{step}.ckpt" for step in steps_of_mean(trainer.global_step, saving.every, n)]
    translator.load_state_dict(checkpoint.average(paths))
    bleu = translator.evaluate(data.evaluation("valid")).metrics()["bleu"]
    chosen = saving.best is None or bleu >= saving.best
    if chosen:
        saving.write_best(trainer, translator)
    report = {"of": [path.stem for path in paths], "bleu": bleu, "best_single_bleu": saving.best, "chosen": chosen}
    log.info("mean of %s: validation BLEU %.2f, the best single one %.2f", ", ".join(report["of"]), bleu, saving.best or 0)
    return report
