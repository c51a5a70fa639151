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

import errno
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from filelock import FileLock, Timeout
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from rich.console import Console
from rich.table import Table

from entente import checkpoint
from entente.board import Board, log_final, log_settings
from entente.callbacks import AttentionMaps, AttentionNumbers, Diagnosis, SampleTranslations, TrainingProgress, clock
from entente.data.corpora import CORPORA, Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.escape import LineFormatter
from entente.evaluation.scores import Evaluation
from entente.memory import keep_freed_memory
from entente.models.seq2seq import parameter_count
from entente.names import file_in
from entente.reading import path_of
from entente.resume import (
    BEGINNING,
    FINISHED,
    Checkpoints,
    Point,
    VerifiedCheckpoints,
    forget_after,
    is_finished,
    newest,
    resumable,
    steps_of_mean,
    unfinished,
)
from entente.schema import fill
from entente.search import Search
from entente.settings import completed, problems_of_run
from entente.translator import Optim, Translator
from entente.writing import clear, made, scratch, write_json, write_text

log = logging.getLogger("entente")

Proof = Callable[[Mapping[str, Any], TranslationData], dict[str, Any]]

# Two sentences whose attention is worth watching: two-word negation in a comparative, and an elided article.
FIXED_SENTENCES = {
    "fr": ("Il n'est pas aussi grand que son père.", "Jane visite l'Afrique en septembre."),
    "en": ("He is not as tall as his father.", "Jane visits Africa in September."),
}


def read_corpus(data: Mapping[str, Any]) -> Corpus:
    """The corpus a configuration's `data` part names; what it says of tokenizer and batches is not the reader's."""
    arguments = {key: value for key, value in data.items() if key not in ("name", "tokenizer", "batch")}
    if data["name"] not in CORPORA:
        raise InputError(f"data.name={data['name']}: choose one of {', '.join(CORPORA)}")
    try:
        return CORPORA[data["name"]](**arguments)
    except TypeError as error:
        raise InputError(f"data={data['name']}: {error}") from error


def check(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the configuration of a run, one line each, before anything is read or written."""
    prepare_process(None)
    return problems_of_run(config) or refused_by_lightning(completed(config)["trainer"]) or no_folder(config["output_dir"])


def train(config: dict[str, Any], prove: Proof | None = None) -> Path:
    """Trains, evaluates and writes one run, or goes on with one; returns its directory. Everything the user could have got
    wrong is checked before a directory is made. prove: called before that too, with configuration and data; what it returns is
    kept as proof.json."""
    if found := check(config):
        raise InputError(*found)
    config = {**completed(config), "output_dir": str(path_of(config["output_dir"]))}
    prepare_process(config["trainer"]["threads"])
    resume, config = config["resume"], {key: value for key, value in config.items() if key != "resume"}
    name = config["name"] + ("-overfit" if config["overfit"] else "")
    run_dir = to_go_on_with(resume, Path(config["output_dir"]), name, config)
    if run_dir and is_finished(run_dir):
        log.info("%s: has finished, nothing left to do", run_dir)
        return run_dir
    L.seed_everything(config["seed"], verbose=False)
    if run_dir is None:
        data, translator = prepared(config)
        proof = prove(config, data) if prove else None
        run_dir = new_run_directory(Path(config["output_dir"]), name, config)
        with resumable(run_dir), one_process(run_dir), LogFile(run_dir / "train.log"):
            if proof:
                write_json(run_dir / "proof.json", proof)
            fit(config, run_dir, data, translator, None)
        return run_dir
    with resumable(run_dir), one_process(run_dir):
        every, average = config["checkpoint"]["every"], config["checkpoint"]["average"]
        last = None if config["trainer"]["patience"] else config["trainer"]["max_steps"]
        with LogFile(run_dir / "train.log"):
            point = newest(run_dir, every, average, last)
        data, translator = prepared(config, point)
        forget_after(run_dir, point)
        with LogFile(run_dir / "train.log"):
            fit(config, run_dir, data, translator, point)
    return run_dir


def fit(config: Mapping[str, Any], run_dir: Path, data: TranslationData, translator: Translator, point: Point | None) -> None:
    """Trains a run from its beginning, or from a point of it, to its end."""
    clear(run_dir, run_dir / "checkpoints", run_dir / "translations", pattern=".*.new")
    clear(Path(config["output_dir"]), *(Path(config["output_dir"]) / "cache" / kind for kind in ("tokenizer", "tokens")))
    say_what_begins(run_dir, data.corpus, translator)
    if point:
        log.info("%s: %s", run_dir, what_is_left(point, config["trainer"]["max_steps"]))
    kept = max(config["checkpoint"][key] for key in ("keep", "average"))
    saving = Checkpoints(run_dir / "checkpoints", config["checkpoint"]["every"], kept)
    trainer = build_trainer(
        {**config["trainer"], "max_steps": point.step} if point and point.trained else config["trainer"],
        run_dir,
        [saving, *callbacks(config)],
        purge_step=point.step + 1 if point else 0,
    )
    log_settings(trainer, config, decoded(config, data.corpus))
    path = point.path if point else None
    trainer.fit(translator, datamodule=data, ckpt_path=path, weights_only=True if path else None)
    saving.stop_if_asked(trainer.global_step)  # by a signal that came while Lightning tore down
    finish(config, run_dir, trainer, translator, data, saving)


def prepared(config: Mapping[str, Any], point: Point = BEGINNING) -> tuple[TranslationData, Translator]:
    """The data of a run, and the model on its first step; what cannot be trained is refused, and whatever is not the text that
    `point` was trained on."""
    log.info("reading the corpus: %s", config["data"]["name"])
    corpus = read_corpus(config["data"])
    text = corpus.digest()
    point.refuse_text(text)  # before pieces are learned from it
    cache = Path(config["output_dir"]) / "cache"
    vocabulary = Vocabulary.train(corpus.train, **config["data"]["tokenizer"], cache_dir=cache / "tokenizer")
    point.refuse_vocabulary(vocabulary)
    data = TranslationData(
        corpus,
        vocabulary,
        **config["data"]["batch"],
        seed=config["seed"],
        overfit=config["overfit"],
        cache_dir=cache / "tokens",
    )
    data.check(decoded=["valid", *corpus.tests])
    refuse_no_batch(config["trainer"]["limit_batches"], data)
    with torch.device("meta"):  # shapes without memory
        planned = checkpoint.build(config["model"], vocabulary, seed=0)
    checkpoint.refuse_beyond_memory(planned, copies=4)  # weights, gradients, Adam's two
    translator = Translator(
        checkpoint.build(config["model"], vocabulary, config["seed"]),
        vocabulary,
        fill(Optim, "optim", config["optim"]),
        fill(Search, "search", config["search"]),
        max_steps=config["trainer"]["max_steps"],
        log_every=config["trainer"]["log_every"],
        checkpoint_entry=checkpoint.entry(config, vocabulary, text),
    )
    return data, translator


def say_what_begins(run_dir: Path, corpus: Corpus, translator: Translator) -> None:
    pieces = len(translator.vocabulary.tgt)
    log.info("%s: %s parameters, %d pieces", run_dir, f"{parameter_count(translator.model):,}", pieces)
    read = ", ".join(f"{split} {count:,}" for split, count in corpus.read.items())
    dropped = ", ".join(f"{why} {count:,}" for why, count in corpus.dropped.items()) or "none"
    log.info("pairs read: %s; dropped: %s", read, dropped)


def finish(
    config: Mapping[str, Any],
    run_dir: Path,
    trainer: L.Trainer,
    translator: Translator,
    data: TranslationData,
    saving: Checkpoints,
) -> None:
    """What comes after training: the model to keep is chosen, decoded and scored, and everything written."""
    started = time.perf_counter()
    averaged = None
    if config["checkpoint"]["average"] > 1:
        averaged = keep_mean_if_better(trainer, translator, data, saving, config["checkpoint"]["average"])
    if saving.best is None:  # trained by a version that did not always validate
        saving.write_best(trainer, translator)
    translator.load_state_dict(checkpoint.read(saving.folder / "best.ckpt")["state_dict"])
    evaluations = evaluate(trainer, translator, data, decoded(config, data.corpus))
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


def decoded(config: Mapping[str, Any], corpus: Corpus) -> list[str]:
    """The splits of the final evaluation."""
    return ["valid", *corpus.tests, *(f"{split}@{how}" for split in [*corpus.tests][:1] for how in config["also_evaluate"])]


def to_go_on_with(resume: str | None, root: Path, name: str, config: Mapping[str, Any]) -> Path | None:
    """The directory of the run that `resume` means: `auto`, a directory, or None for a new run."""
    if resume is None:
        return None
    if resume != "auto":
        return path_of(resume)
    found = unfinished(root, name, config)
    if found is None:
        log.info("resume=auto: no run %s of this configuration yet, a new one begins", root / name)
    return found


def what_is_left(point: Point, max_steps: int) -> str:
    if point.trained:
        return f"has trained its {point.step} steps, its evaluation is left"
    if point.path is None:
        return f"has no checkpoint, starts again from step 0 of {max_steps}"
    return f"goes on from step {point.step} to {max_steps}"


@contextmanager
def one_process(run_dir: Path) -> Iterator[None]:
    """Two processes must not write one run; the lock goes with the process, however that ends."""
    try:
        with FileLock(run_dir / ".lock", timeout=0):
            yield
    except Timeout:
        raise InputError(f"{run_dir}: another process is training this run; wait for it or stop it") from None


def keep_mean_if_better(
    trainer: L.Trainer, translator: Translator, data: TranslationData, saving: Checkpoints, n: int
) -> dict[str, Any]:
    """The mean of the last n regular checkpoints becomes best.ckpt where it scores at least as well on validation. Returns a
    report."""
    paths = [saving.folder / f"step-{step}.ckpt" for step in steps_of_mean(trainer.global_step, saving.every, n)]
    translator.load_state_dict(checkpoint.average(paths))
    bleu = evaluate(trainer, translator, data, ["valid"])["valid"].metrics()["bleu"]
    chosen = saving.best is None or bleu >= saving.best
    if chosen:
        saving.write_best(trainer, translator)
    report = {"of": [path.stem for path in paths], "bleu": bleu, "best_single_bleu": saving.best, "chosen": chosen}
    log.info("mean of %s: validation BLEU %.2f, the best single one %.2f", ", ".join(report["of"]), bleu, saving.best or 0)
    return report


def prepare_process(threads: int | None) -> None:
    """Threads for matrix products (None: all cores), memory that is kept, a console for our log, and quiet for the libraries'
    chatter."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = PrintHandler()
        handler.setFormatter(LineFormatter())
        log.addHandler(handler)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Lightning 2.6 asks torch 2.13 in a form that torch is giving up; nothing a user could do about it.
    warnings.filterwarnings("ignore", message=r"`isinstance.treespec, LeafSpec.` is deprecated", category=FutureWarning)


class PrintHandler(logging.Handler):
    """Prints to whatever standard output is now, so that a live progress display can step aside."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # work goes on without a reader; what is printed at its end raises again
            print(self.format(record), flush=True)


class LogFile:
    """While open, what is logged is also written to a file, with the time. An OSError where it cannot be."""

    class _Handler(logging.FileHandler):
        def handleError(self, record: logging.LogRecord) -> None:
            raise

    def __init__(self, path: Path) -> None:
        self._handler = self._Handler(path, encoding="utf-8")
        self._handler.setFormatter(LineFormatter("%(asctime)s %(message)s"))

    def __enter__(self) -> None:
        log.addHandler(self._handler)

    def __exit__(self, *exception: object) -> None:
        log.removeHandler(self._handler)
        self._handler.close()


def new_run_directory(root: Path, name: str, config: Mapping[str, Any]) -> Path:
    """Makes root/name, or root/name-2 and so on where that is taken: a run never writes over another. It appears with its
    configuration in it or not at all."""
    try:
        with made((root / name).parent), scratch(root) as new:
            write_text(new / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
            number = 1
            while True:
                path = root / (name if number == 1 else f"{name}-{number}")
                try:
                    os.rename(new, path)  # fails where there is a file, or a directory with anything in it
                    return path
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise InputError(f"name={name}: no directory of this name can be made ({error.strerror})") from error
                    number += 1
    except OSError as error:
        raise InputError(f"output_dir={root} name={name}: cannot be written ({error.strerror or error})") from error


def callbacks(config: Mapping[str, Any]) -> list[Callback]:
    """What accompanies training beside its checkpoints: early stopping, progress, and views for TensorBoard."""
    chosen: list[Callback] = [TrainingProgress()]
    if config["views"]["diagnosis"]:
        chosen.append(Diagnosis(config["views"]["diagnosis"]))
    if config["trainer"]["patience"]:
        chosen.append(EarlyStopping("valid/bleu", mode="max", patience=config["trainer"]["patience"]))
    if config["views"]["attention"]:
        fixed = [(text, text) for text in FIXED_SENTENCES.get(config["data"]["src"], ())]
        chosen.append(AttentionMaps(fixed, config["views"]["attention_every"]))
    if config["views"]["heads"]:
        chosen.append(AttentionNumbers(config["views"]["heads"]))
    if config["views"]["translations"]:
        chosen.append(SampleTranslations(config["views"]["translations"]))
    return chosen


def refused_by_lightning(config: Mapping[str, Any], part: str = "trainer.") -> list[str]:
    """What no signature says: accelerators and precisions that are not to be had here."""
    for key, known in (("accelerator", {"precision": "32-true"}), ("precision", {})):
        try:
            build_trainer({**config, **known}, None)
        except (TypeError, ValueError, ImportError, MisconfigurationException) as error:
            return [f"{part}{key}={config[key]}: choose another ({str(error).splitlines()[0]})"]
    return []


def refuse_no_batch(limit: float, data: TranslationData) -> None:
    """A share of the batches so small that nothing would be validated."""
    for split in ("valid", *data.corpus.tests):
        count = len(data.evaluation_batches(split))
        if isinstance(limit, float) and int(limit * count) == 0:
            raise InputError(
                f"trainer.limit_batches={limit}: that is no whole batch of {split}, which has {count}; "
                "give a larger share, or a number of batches"
            )


def no_folder(output_dir: str) -> list[str]:
    """Why nothing can be written there, in a line; nothing is made to find out."""
    try:
        path = path_of(output_dir)
    except InputError as error:
        return [f"output_dir={problem}" for problem in error.problems]
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not there.is_dir():
        return [f"output_dir={output_dir}: {there} is a file; give a folder"]
    if not os.access(there, os.W_OK | os.X_OK):
        return [f"output_dir={output_dir}: you may not write in {there}; give another folder"]
    return []


def build_trainer(
    config: Mapping[str, Any], run_dir: Path | None, chosen: Iterable[Callback] = (), purge_step: int = 0
) -> L.Trainer:
    """Lightning's Trainer with our budget in steps. Without a run's directory it only evaluates. purge_step: TensorBoard
    forgets what it was shown from this step on; only if the first of a run's writers says so as well."""
    board: dict[str, Any] = {"name": "", "version": "", "default_hp_metric": False, "purge_step": purge_step}
    return L.Trainer(
        accelerator=config["accelerator"],
        devices=1,
        precision=config["precision"],
        max_steps=config["max_steps"],
        max_epochs=-1,
        val_check_interval=config["validate_every"] * config["accumulate"],
        check_val_every_n_epoch=None,
        gradient_clip_val=config["gradient_clip"] or None,
        accumulate_grad_batches=config["accumulate"],
        limit_val_batches=config["limit_batches"],
        limit_test_batches=config["limit_batches"],
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


def evaluate(trainer: L.Trainer, translator: Translator, data: TranslationData, splits: list[str]) -> dict[str, Evaluation]:
    """Decodes and scores the splits; the road of validation."""
    data.test_splits = splits
    trainer.test(translator, datamodule=data, verbose=False)
    return {split: translator.evaluations[split] for split in splits}


def write_translations(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """translations/SPLIT.tsv of each split, under a line of headings."""
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(part.replace("\t", " ") for part in line) + "\n" for line in lines)
        write_text(file_in(directory / "translations", split, ".tsv"), "source\treference\ttranslation\n" + text)


def show(metrics: Mapping[str, Any], title: str) -> None:
    """The table at a run's end."""
    log.info("%s", title)
    table = Table()
    table.add_column("split")
    for column in ("sentences", "BLEU", "chrF", "TER", "NLL"):
        table.add_column(column, justify="right")
    for split, m in metrics.items():
        table.add_row(
            split, str(m["sentences"]), *(f"{m[k]:.{d}f}" for k, d in (("bleu", 2), ("chrf", 2), ("ter", 2), ("nll", 4)))
        )
    Console(markup=False, emoji=False).print(table)
