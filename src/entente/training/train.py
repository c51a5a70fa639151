"""Checks the configuration of a run, prepares its data and model, trains and evaluates it, and writes its directory:

outputs/NAME/config.yaml            the composed configuration
             train.log              log lines, with their times
             events.out.tfevents.*  for TensorBoard
             checkpoints/           best.ckpt, with the highest validation BLEU; step-N.ckpt, to resume from
             translations/          one file per split: source, reference, translation
             proof.json             only for an ablation: how it differs from the baseline before training
             metrics.json           {split: {bleu, chrf, ter, nll, signature, ...}}; written last, when the run is finished
             training.json          steps, seconds, parameters, speed
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

from entente import checkpoint, distributed
from entente.console.log import Task, clock
from entente.data.batches import Batch
from entente.data.corpora import read_corpus
from entente.data.module import TranslationData
from entente.data.pairs import release_pages
from entente.data.tokenizer import Vocabulary, texts
from entente.data.words import known_words
from entente.errors import InputError, reason
from entente.evaluation import batch_loss, show, write_translations
from entente.files import path_of, write_json
from entente.models.seq2seq import parameter_count
from entente.process import prepare_process, return_freed_memory, silence_lightning
from entente.training import processes, run_directory, views
from entente.training.progress import TrainingProgress
from entente.training.run_directory import Checkpoints, LogFile, ResumePoint
from entente.training.settings import RunSettings, TrainerSettings
from entente.training.translator import Translator

log = logging.getLogger("entente")

ProofFunction = Callable[[Mapping[str, Any], TranslationData], dict[str, Any]]
# Two sentences with interesting attention: a two-word negation in a comparative, and an elided article.
FIXED_SENTENCES = {
    "fr": ("Il n'est pas aussi grand que son père.", "Jane visite l'Afrique en septembre."),
    "en": ("He is not as tall as his father.", "Jane visits Africa in September."),
}


def train(config: dict[str, Any], prove: ProofFunction | None = None) -> Path:
    """Trains and evaluates a new run, or resumes one, and returns its directory. Raises user errors and calls `prove` before
    the directory is created. `prove` receives the configuration and the data, and returns the content of proof.json."""
    settings = usable_settings(config)
    prepare_process(settings.trainer.threads)
    root, name = Path(settings.output_dir), settings.name + ("-overfit" if settings.overfit else "")

    def find() -> tuple[Path | None, bool]:
        found = run_directory.run_to_resume(settings.resume, root, name, stored)
        return found, found is not None and run_directory.is_finished(found)

    with ExitStack() as stack:
        others = stack.enter_context(processes.connect(settings.trainer))
        first, stored = distributed.rank() == 0, settings.stored_config()
        compared = settings.resume, stored | {"name": None}  # a name may contain the time; the first process's name counts
        if any(other != compared for other in distributed.gather(compared)):
            raise InputError(
                "the processes of the run have different settings; start them with the same command, without -m (a sweep)"
            )
        run_dir, finished = distributed.share(find)
        if run_dir and finished:
            log.info("%s: this run has finished; nothing is left to do", run_dir)
            return run_dir
        L.seed_everything(settings.seed if first else distributed.seed(settings.seed), verbose=False)
        resumed = run_dir is not None
        if run_dir:
            stack.enter_context(run_directory.open_run(run_dir))
        with others.fabric.rank_zero_first(local=True):  # the first process fills the cache for the others
            data, translator = prepare_run(settings)
        if not run_dir:

            def create() -> Path:
                proof = None
                if prove:
                    # A resumed run does not repeat this comparison, so it must leave the random number generators as they are.
                    with isolate_rng(), Task("comparing the ablation with the baseline before training"):
                        proof = prove(stored, data)
                return run_directory.new_run_directory(root, name, stored, proof)

            distributed.gather(None)  # fails, before the directory is created, if another process could not prepare the run
            run_dir = distributed.share(create)
            stack.enter_context(run_directory.open_run(run_dir))
        if first:
            stack.enter_context(closing(LogFile(run_dir)))
        saving = Checkpoints(run_dir, settings.checkpoint)
        last = None if settings.trainer.patience else settings.trainer.max_steps
        # For a new run, this is step 0.
        point = distributed.share(lambda: run_directory.find_resume_point(run_dir, settings.checkpoint, last))
        if point.path:
            checkpoint.refuse_other_text(point.path, point.entry, translator.checkpoint_entry)
        if resumed and first:
            run_directory.remove_later_checkpoints(run_dir, point)
            log.info("%s: %s", run_dir, point.remaining_work(settings.trainer.max_steps))
        fit(settings, data, translator, saving, point)
    return run_dir


def check_run(config: Mapping[str, Any]) -> list[str]:
    """Returns a line for each problem in the configuration of a run."""
    try:
        usable_settings(config)
    except InputError as error:
        return list(error.problems)
    return []


def usable_settings(config: Mapping[str, Any]) -> RunSettings:
    """Converts a configuration to settings that this machine can train with. Raises InputError with the problems found."""
    settings = RunSettings.of(config)
    if found := lightning_problems(settings.trainer) or run_directory.output_dir_problems(settings.output_dir):
        raise InputError(*found)
    return replace(settings, output_dir=str(path_of(settings.output_dir)))


def lightning_problems(settings: TrainerSettings, part: str = "trainer.") -> list[str]:
    """Returns a line for the first setting that Lightning cannot use on this machine, if any. Only Lightning can check this."""
    silence_lightning()
    spread = replace(settings, precision="32-true")
    single = replace(spread, devices=1, num_nodes=1, strategy="auto")
    tries = {
        "accelerator": single,
        "devices": replace(single, devices=settings.devices),
        "strategy": spread,
        "precision": settings,
    }
    for key, tried in tries.items():
        try:
            build_trainer(tried, None)
        except (TypeError, ValueError, ImportError, MisconfigurationException) as error:
            return [f"{part}{key}={getattr(settings, key)}: choose another ({reason(error)})"]
        except RuntimeError as error:  # for example, because a SLURM job has --ntasks, but not --ntasks-per-node
            return [reason(error)]
    return []


def prepare_run(settings: RunSettings) -> tuple[TranslationData, Translator]:
    """Returns the data of a run and its untrained model. Raises InputError if the model cannot be trained on the data."""
    corpus = read_corpus(settings.data)
    with Task("training the tokenizer, or reading it from the cache"):
        text = corpus.digest()
        cache = Path(settings.output_dir) / "cache"
        vocabulary = Vocabulary.train(corpus.train, **settings.data["tokenizer"], cache_dir=cache / "tokenizer")
        words = known_words(map("\n".join, texts(corpus.train, "src")))
    data = TranslationData(
        corpus,
        vocabulary,
        **settings.data["batch"],
        seed=settings.seed,
        overfit=settings.overfit,
        limit_batches=settings.trainer.limit_batches,
        cache_dir=cache / "ids",
    )
    if settings.overfit:
        said = "overfit=true: memorising one batch of %d pairs; the valid scores are those of this batch, ideally BLEU 100"
        log.info(said, len(data.pairs("train")))
    with Task("splitting the sentences into pieces"):
        data.check()
    release_pages()
    return_freed_memory()  # most of this memory was used to train the tokenizer
    # The four copies are the weights, the gradients, and Adam's two moments.
    checkpoint.plan(settings.model, vocabulary, copies=4, accelerator=settings.trainer.accelerator)
    model = checkpoint.build(settings.model, vocabulary, settings.seed)
    entry = checkpoint.entry(settings.stored_config(), vocabulary, text, words)
    steps, log_every = settings.trainer.max_steps, settings.trainer.log_every
    return data, Translator(model, vocabulary, settings.optim, settings.search, steps, log_every, entry)


def fit(settings: RunSettings, data: TranslationData, translator: Translator, saving: Checkpoints, point: ResumePoint) -> None:
    """Trains a run from `point` to its last step, then evaluates it and writes its results."""
    pieces = len(translator.vocabulary.tgt)
    log.info("%s: %s parameters, %d pieces", saving.run_dir, f"{parameter_count(translator.model):,}", pieces)
    read = ", ".join(f"{split} {count:,}" for split, count in data.corpus.read.items())
    dropped = ", ".join(f"{why} {count:,}" for why, count in data.corpus.dropped.items()) or "none"
    log.info("pairs read: %s; dropped: %s", read, dropped)
    chosen = [saving, *callbacks(settings.views, settings.trainer.patience, settings.data["src"])]
    budget = replace(settings.trainer, max_steps=point.step) if point.trained else settings.trainer
    uses_ddp = budget.strategy == "ddp" or (budget.strategy == "auto" and distributed.world_size() > 1)
    if uses_ddp and has_unused_parameters(translator, data.sample(1)):
        budget = replace(budget, strategy="ddp_find_unused_parameters_true")  # slower
    trainer = build_trainer(budget, saving.run_dir, chosen, purge_step=point.step + 1)
    if trainer.is_global_zero:
        views.log_settings(trainer, settings.stored_config())
    try:
        trainer.fit(translator, datamodule=data, ckpt_path=point.path, weights_only=True if point.path else None)
    finally:
        saving.signals.remove()
    saving.stop_if_asked(trainer.global_step)  # in case a signal arrived while Lightning was tearing down
    finish(settings, data, translator, saving)


def has_unused_parameters(translator: Translator, batch: Batch) -> bool:
    """Returns whether some parameters have no gradient, as in ablations without cross-attention."""
    with isolate_rng():
        batch_loss(translator.model, batch)[0].smoothed.backward()
    unused = any(parameter.grad is None for parameter in translator.parameters())
    translator.zero_grad()
    return unused


def build_trainer(
    settings: TrainerSettings, run_dir: Path | None, chosen: Iterable[Callback] = (), purge_step: int = 0
) -> L.Trainer:
    """Returns a Lightning Trainer that counts steps, not epochs. Without a run directory, it logs nothing. TensorBoard discards
    events written earlier for `purge_step` and later steps, but only if the run's first event file also has a purge_step."""
    logs = None if distributed.rank() else run_dir
    trainer = L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=settings.strategy,
        precision=settings.precision,  # type: ignore[arg-type]
        max_steps=settings.max_steps,
        val_check_interval=settings.validate_every * settings.accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=settings.gradient_clip or None,
        accumulate_grad_batches=settings.accumulate,
        num_sanity_val_steps=0,
        log_every_n_steps=1,  # the LightningModule decides which steps it logs
        logger=views.Board(logs, name="", version="", default_hp_metric=False, purge_step=purge_step) if logs else False,
        plugins=[run_directory.VerifiedCheckpoints()],
        callbacks=list(chosen),
        default_root_dir=run_dir,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # `Checkpoints` handles signals. For SIGTERM alone, Lightning would make all processes and GPUs wait before each batch.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer


def callbacks(chosen: views.Views, patience: int | None, language: str) -> list[Callback]:
    """Returns the callbacks of a run. TensorBoardViews comes after EarlyStopping, since it always draws at the last
    validation, which EarlyStopping determines. language: the source language of the fixed sentences to draw."""
    stopping = [EarlyStopping("valid/bleu", mode="max", patience=patience)] if patience else []
    return [TrainingProgress(), *stopping, views.TensorBoardViews(chosen, FIXED_SENTENCES.get(language, ()))]


def finish(settings: RunSettings, data: TranslationData, translator: Translator, saving: Checkpoints) -> None:
    """Chooses the run's final model after training, evaluates it on every split, and writes the results."""
    started, averaged = time.perf_counter(), None
    device = translator.trainer.strategy.root_device
    with on_accelerator(translator.model, device.type, settings.trainer.precision, device.index):
        if settings.checkpoint.average > 1:
            averaged = keep_mean_if_better(data, translator, saving)
        translator.load_state_dict(checkpoint.read(saving.folder / "best.ckpt")["state_dict"])
        evaluations, metrics, tests = {}, {}, [*data.corpus.tests]
        again = [f"{split}@{how}" for split in tests[:1] for how in settings.also_evaluate]
        # With `overfit`, all splits are the same batch, so only one is evaluated.
        for split in ["valid"] if settings.overfit else ["valid", *tests, *again]:
            log.info("evaluating %s", split)
            with Task(f"evaluating {split}"):
                evaluations[split] = translator.evaluate(data.evaluation(split))
                metrics[split] = evaluations[split].metrics()
    if not translator.trainer.is_global_zero:
        return
    write_translations(saving.run_dir, evaluations)
    report = {
        "steps": translator.global_step,
        "seconds": round(saving.seconds, 1),
        "parameters": parameter_count(translator.model),
        "tokens_per_second": round(translator.tokens / (translator.seconds or 1), 1),
        "mean_of_checkpoints": averaged,
        "unigram_nll": data.unigram_nll(),
    }
    write_json(saving.run_dir / "training.json", report)
    views.log_final(translator.trainer, metrics)
    write_json(saving.run_dir / run_directory.FINISHED, metrics)  # written last, since a run with this file is finished
    times = (clock(saving.seconds), clock(time.perf_counter() - started))
    if translator.global_step < settings.trainer.max_steps:
        log.info("stopped early: no better validation BLEU in the last %s validations", settings.trainer.patience)
    log.info("trained %d steps in %s, evaluated in %s (minutes:seconds)", translator.global_step, *times)
    show(metrics, f"scores of {saving.run_dir}")


@contextmanager
def on_accelerator(model: nn.Module, accelerator: str, precision: str | int, index: int | None = None) -> Iterator[None]:
    """Moves a model to an accelerator. Within the context, computations run in `precision`, as named by Lightning. index: the
    device's number, or None to let Lightning choose."""
    devices = 1 if index is None else [index]
    fabric = L.Fabric(accelerator=accelerator, devices=devices, precision=precision)  # type: ignore[arg-type]
    fabric.setup_module(model)  # moves and converts the model in place; the returned wrapper would only add autocast
    with fabric.autocast():
        yield


def keep_mean_if_better(data: TranslationData, translator: Translator, saving: Checkpoints) -> dict[str, Any]:
    """Writes the mean of the last checkpoints to best.ckpt unless a single checkpoint has a higher BLEU. Returns a report."""
    averaged = saving.settings.steps_of_mean(translator.global_step)
    paths = [saving.folder / f"step-{step}.ckpt" for step in averaged]
    translator.load_state_dict(checkpoint.average(paths))
    with Task(f"evaluating the mean of the last {len(paths)} checkpoints"):
        bleu = translator.evaluate(data.evaluation("valid")).metrics()["bleu"]
    chosen = saving.best is None or bleu >= saving.best
    if chosen:
        distributed.share(lambda: saving.write_best(translator))  # the others wait, since all of them read the file next
    report = {"of": [path.stem for path in paths], "bleu": bleu, "best_single_bleu": saving.best, "chosen": chosen}
    scores = f"validation BLEU {bleu:.2f} with their mean, {saving.best or 0:.2f} with the best single one"
    log.info("last %d checkpoints: %s; keeping the %s", len(paths), scores, "mean" if chosen else "single one")
    return report
