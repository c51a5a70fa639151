"""Prepares the data and model of a run, trains and evaluates it, and writes its directory:

outputs/NAME/config.yaml            the complete configuration
             train.log              log lines, with their times
             events.out.tfevents.*  for TensorBoard
             metrics.csv            losses and validation scores, a row per step
             checkpoints/           best.ckpt, with the best validation BLEU, or a mean; step-N.ckpt, to resume from
             translations/          one file per split: source, reference, translation
             training.json          steps, seconds, parameters, speed, commit
             metrics.json           {split: {bleu, chrf, ter, nll, signature, ...}}; written last, when the run is finished
"""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.seed import isolate_rng

from entente import checkpoint, distributed
from entente.console import Task, clock, log
from entente.data.corpora import read_corpus
from entente.data.module import TranslationData
from entente.data.text import known_words
from entente.data.tokenizer import Vocabulary, texts
from entente.errors import InputError
from entente.evaluation import Evaluation, show, write_translations
from entente.fast.attach import attach
from entente.files import read_yaml, write_json
from entente.models.build import build
from entente.models.seq2seq import parameter_count
from entente.process import prepare_process, return_freed_memory
from entente.recipe import with_steps
from entente.settings import RunSettings
from entente.training import views
from entente.training.budget import MEASURED, SKIPPED, steps_of_epochs, steps_of_minutes, verdict
from entente.training.run_directory import RunDirectory, find_run, open_run, regular_steps, steps
from entente.training.trainer import build_trainer, on_accelerator
from entente.training.translator import Translator


@isolate_rng()  # building a model draws from the caller's generators, and training seeds torch's
def train(settings: RunSettings) -> Path:
    """Trains and evaluates a new run, or resumes one, and returns its directory. Raises every user error before it writes."""
    prepare_process(settings.trainer.threads)
    run = distributed.share(lambda: find_run(settings))
    if run and run.is_finished:
        log.info("%s: this run has finished; nothing is left to do", run.path)
        return run.path
    if run:  # with the number of steps that was chosen when it began
        settings = with_steps(settings, read_yaml(run.path / "config.yaml")["trainer"]["max_steps"])
    data, translator = prepare(settings, run.checkpoint if run else None)
    trainer = build_trainer(translator, data)
    with open_run(run, translator, trainer) as run:
        trainer.fit(translator, datamodule=data, ckpt_path=run.checkpoint, weights_only=True if run.checkpoint else None)
        write_results(run, translator, data, evaluate_best(run, translator, data))
    return run.path


def prepare(settings: RunSettings, resumed: Path | None = None) -> tuple[TranslationData, Translator]:
    """Returns the data of a run and its model, which is untrained, or has the weights of `init`. Raises InputError if the model
    cannot be trained on the data. resumed: the checkpoint to resume from."""
    began, cache = time.perf_counter(), Path(settings.output_dir) / "cache"
    corpus = read_corpus(settings.data, cache)
    with Task("training the tokenizer, or reading it from the cache"):
        ancestor = load_ancestor(settings, resumed) if settings.init or resumed else None
        tokenizer = settings.data.tokenizer
        vocabulary = ancestor.vocabulary if ancestor else Vocabulary.train(corpus.train, tokenizer, cache, corpus.tags)
        words = known_words("\n".join(map(corpus.without_tag, block)) for block in texts(corpus.train, "src"))
    batch, limit = settings.data.batch, settings.trainer.limit_batches
    data = TranslationData(corpus, vocabulary, batch, settings.seed, settings.overfit, limit, cache)
    with Task("splitting the sentences into pieces"):
        data.check()
    if ancestor and (unknown := [tag for tag in corpus.tags if tag not in vocabulary.src.pieces(vocabulary.src.encode(tag))]):
        raise InputError(f"tag {unknown[0]} in data.extra: the tokenizer of init={settings.init} lacks it; leave tag out")
    for name, counts in (("read", corpus.read), ("dropped", corpus.dropped)):
        log.info("pairs %s: %s", name, ", ".join(f"{split} {count:,}" for split, count in counts.items()) or "none")
    if corpus.varied:
        log.info("pairs that are trained on again with a varied source: %s", f"{corpus.varied:,}")
    if settings.overfit:
        log.info("overfit=true: memorising one batch, whose scores are those of valid, ideally BLEU 100")
    return_freed_memory()  # most of this memory was used to train the tokenizer

    def untrained(steps: int) -> Translator:
        run = with_steps(settings, steps)
        model = attach(build(run.model, checkpoint.sizes_of(vocabulary, run.seed)))
        entry = checkpoint.entry(run, vocabulary, corpus.digest(), words)
        if ancestor:
            model.load_state_dict(ancestor.model.state_dict())
            if "init" in ancestor.provenance:
                entry["provenance"]["init"] = ancestor.provenance["init"]
        return Translator(model, vocabulary, run, entry)

    steps = settings.trainer.max_steps
    if not steps and settings.trainer.epochs:
        steps = steps_of_epochs(settings, data)
    elif not steps:
        steps = steps_of_minutes(settings, untrained(SKIPPED + MEASURED), data, began)
    translator = untrained(steps)
    optim = translator.settings.optim
    if max(optim.warmup, optim.decay_from) >= steps and optim.schedule != "constant":
        values = f"optim.warmup={optim.warmup} optim.decay_from={optim.decay_from}"
        log.warning("%s: the learning rate does not decay in %d steps; lower these, or train longer", values, steps)
    log.info("%s parameters, %d pieces", f"{parameter_count(translator.model):,}", len(vocabulary.tgt))
    return data, translator


def load_ancestor(settings: RunSettings, resumed: Path | None) -> checkpoint.TrainedRun:
    """Returns the ancestor of a run, `init`, with an entry `init` in its provenance that names it; or the checkpoint `resumed`,
    from which a run resumes without its ancestor, and with the same pieces."""
    run = checkpoint.load(str(resumed or settings.init))
    if not resumed:
        run.provenance["init"] = f"{settings.init}: {run.summary()}, commit {run.provenance['commit']}"
        log.info("init=%s", run.provenance["init"])
    return run


def evaluate_best(run: RunDirectory, translator: Translator, data: TranslationData) -> dict[str, Evaluation]:
    """Evaluates the best weights on every split: those of best.ckpt, or the mean of the last checkpoints if it is better."""
    settings, device, splits = translator.settings, translator.trainer.strategy.root_device, ["valid"]
    with on_accelerator(translator.model, device.type, settings.trainer.precision, device.index):
        if settings.checkpoint.average > 1:
            keep_mean_if_better(run, translator, data)
        translator.load_state_dict(checkpoint.read(run.checkpoints / "best.ckpt")["state_dict"])
        if not settings.overfit:  # with `overfit`, all splits are the same batch
            tests = [*data.corpus.tests]
            splits += [*tests, *(f"{split}@{grouping}" for split in tests[:1] for grouping in settings.also_evaluate)]
        evaluations = {}
        for split in splits:
            log.info("evaluating %s", split)
            with Task(f"evaluating {split}"):
                evaluations[split] = translator.evaluate(data.evaluation(split))
    return evaluations


def keep_mean_if_better(run: RunDirectory, translator: Translator, data: TranslationData) -> None:
    """Writes the mean of the last checkpoints to best.ckpt unless a single checkpoint is better on validation."""
    settings, files = translator.settings.checkpoint, steps(run.checkpoints)
    averaged = regular_steps(files, settings.every, translator.global_step)[-settings.average :]
    translator.load_state_dict(checkpoint.average([files[step] for step in averaged]))
    with Task(f"evaluating the mean of the last {len(averaged)} checkpoints"):
        evaluation = translator.evaluate(data.evaluation("valid"))
    bleu = evaluation.scores("bleu")["bleu"]
    is_best = (bleu, -evaluation.nll) >= translator.best
    if is_best:
        content = {"state_dict": translator.state_dict(), "global_step": translator.global_step}
        content[checkpoint.ENTRY] = translator.checkpoint_entry
        # The others wait, since all of them read the file next.
        distributed.share(lambda: checkpoint.write(content, run.checkpoints / "best.ckpt"))
    translator.mean_report = {"of": averaged, "bleu": bleu, "best_single_bleu": translator.best[0], "chosen": is_best}
    values = f"validation BLEU {bleu:.2f} with their mean, {translator.best[0]:.2f} with the best single one"
    log.info("last %d checkpoints: %s; keeping the %s", len(averaged), values, "mean" if is_best else "single one")


def write_results(run: RunDirectory, translator: Translator, data: TranslationData, evaluations: dict[str, Evaluation]) -> None:
    """Writes translations, training.json and metrics.json, logs the scores to TensorBoard, and prints them."""
    if distributed.rank():
        return
    steps, settings = translator.global_step, translator.settings.trainer
    write_translations(run.path, evaluations)  # not after the scores, which may take long and be interrupted
    metrics = {}
    for split, evaluation in evaluations.items():
        with Task(f"scoring the translations of {split}"):
            metrics[split] = evaluation.metrics(translator.settings.evaluation.metrics)
    table: Any = translator.trainer.loggers[1]
    judgement = None if translator.settings.overfit else verdict(table.rows.values(), translator.settings)
    report = {
        "steps": steps,
        "seconds": round(translator.elapsed, 1),
        "parameters": parameter_count(translator.model),
        "tokens_per_second": round(translator.tokens / (translator.seconds or 1), 1),
        "mean_of_checkpoints": translator.mean_report,
        "unigram_nll": data.unigram_nll(),
        "verdict": judgement and judgement[0],
        "commit": translator.checkpoint_entry["provenance"]["commit"],
    }
    write_json(run.path / "training.json", report)
    views.log_final(translator.trainer, metrics)
    write_json(run.path / "metrics.json", metrics)  # written last, since a run with this file is finished
    if steps < settings.steps:
        log.info("stopped early: no improvement in the last %s validations", settings.patience)
    for line in judgement[1:] if judgement else ():
        log.info("%s", line)
    log.info("trained %d steps in %s (minutes:seconds)", steps, clock(translator.elapsed))
    show(metrics, f"scores of {run.path}")
