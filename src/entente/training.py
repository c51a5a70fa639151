"""One run, from a configuration to a directory with its metrics.

outputs/NAME/config.yaml            the composed configuration
             train.log              what was printed
             events.out.tfevents.*  for TensorBoard
             checkpoints/           best.ckpt by validation BLEU, last.ckpt
             translations/          one file a split: source, reference, translation
             metrics.json           {split: {bleu, chrf, ter, nll, signature, ...}}; the run is finished when it is there
             training.json          steps, seconds, parameters, speed
"""

import errno
import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from rich.console import Console
from rich.table import Table

from entente import checkpoint
from entente.callbacks import AttentionMaps, SampleTranslations, TrainingProgress, clock
from entente.data.corpora import CORPORA, Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.evaluation.scores import Evaluation
from entente.models.seq2seq import parameter_count
from entente.search import Search
from entente.translator import Optim, Translator

log = logging.getLogger("entente")

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


def settings(kind: type, part: str, values: Mapping[str, Any]) -> Any:
    """A dataclass filled from a part of the configuration; what it refuses is an InputError that names the part."""
    for field in fields(kind):
        value = values.get(field.name, field.default)
        if field.type in (int, float) and (isinstance(value, bool) or not isinstance(value, int | field.type)):
            number = "a whole number" if field.type is int else "a number"
            raise InputError(f"{part}.{field.name}={value}: give {number}")
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{part}: {error}") from error


def train(config: dict[str, Any]) -> Path:
    """Trains, evaluates and writes one run; returns its directory. Everything the user could have got wrong is
    checked before the directory is made."""
    started = time.perf_counter()
    prepare_process(config["trainer"]["threads"])
    if not isinstance(config["seed"], int) or not 0 <= config["seed"] < 2**32:
        raise InputError(f"seed={config['seed']}: give a whole number from 0 to {2**32 - 1}")
    L.seed_everything(config["seed"], verbose=False)
    log.info("reading the corpus: %s", config["data"]["name"])
    corpus = read_corpus(config["data"])
    vocabulary = Vocabulary.train(
        corpus.train, **config["data"]["tokenizer"], cache_dir=Path(config["output_dir"]) / "cache" / "tokenizer"
    )
    data = TranslationData(corpus, vocabulary, **config["data"]["batch"], seed=config["seed"], overfit=config["overfit"])
    model = checkpoint.build(config["model"], vocabulary, config["seed"])
    trainer_config = config["trainer"]
    translator = Translator(
        model,
        vocabulary,
        settings(Optim, "optim", config["optim"]),
        settings(Search, "search", config["search"]),
        max_steps=trainer_config["max_steps"],
        log_every=trainer_config["log_every"],
        checkpoint_entry=checkpoint.entry(config, vocabulary),
    )
    build_trainer(trainer_config, None)  # refuses what Lightning refuses, before anything is written
    name = config["name"] + ("-overfit" if config["overfit"] else "")
    run_dir = new_run_directory(Path(config["output_dir"]), name, config)
    with LogFile(run_dir / "train.log"):
        log.info("%s: %s parameters, %d pieces", run_dir, f"{parameter_count(model):,}", len(vocabulary.tgt))
        for why, count in corpus.dropped.items():
            log.info("dropped %d pairs: %s", count, why)
        trainer = build_trainer(trainer_config, run_dir, callbacks(config, run_dir))
        trainer.fit(translator, datamodule=data)
        trained = time.perf_counter()
        best = run_dir / "checkpoints" / "best.ckpt"
        if best.exists():
            translator.load_state_dict(torch.load(best, map_location="cpu", weights_only=True)["state_dict"])
        evaluations = evaluate(trainer, translator, data, ["valid", *corpus.tests])
        write_translations(run_dir, evaluations)
        metrics = {split: evaluation.metrics() for split, evaluation in evaluations.items()}
        report = {
            "steps": trainer.global_step,
            "seconds": round(trained - started, 1),
            "parameters": parameter_count(model),
            "tokens_per_second": round(translator.tokens_per_second, 1),
        }
        write_json(run_dir / "training.json", report)
        log_final(trainer, config, metrics)
        write_json(run_dir / "metrics.json", metrics)  # last: a run that has it is finished
        times = (clock(trained - started), clock(time.perf_counter() - trained))
        log.info("read, prepared and trained %d steps in %s, evaluated in %s (minutes:seconds)", trainer.global_step, *times)
        show(metrics, str(run_dir))
    return run_dir


def prepare_process(threads: int | None) -> None:
    """Threads for matrix products (None: all cores), a console for our log, and quiet for the libraries' chatter."""
    if threads:
        torch.set_num_threads(threads)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        log.addHandler(PrintHandler())
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Lightning 2.6 asks torch 2.13 in a form that torch is giving up; nothing a user could do about it.
    warnings.filterwarnings("ignore", message=r"`isinstance.treespec, LeafSpec.` is deprecated", category=FutureWarning)


class PrintHandler(logging.Handler):
    """Prints to whatever standard output is now, so that a live progress display can step aside."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)


class LogFile:
    """While open, what is logged is also written to a file, with the time."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.FileHandler(path, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def __enter__(self) -> None:
        log.addHandler(self._handler)

    def __exit__(self, *exception: object) -> None:
        log.removeHandler(self._handler)
        self._handler.close()


def new_run_directory(root: Path, name: str, config: Mapping[str, Any]) -> Path:
    """Makes root/name, or root/name-2 and so on where that is taken: a run never writes over another. It appears with its
    configuration in it or not at all."""
    try:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        (beside / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")
        beside.chmod(0o755)
    except OSError as error:
        raise InputError(f"output_dir={root} name={name}: cannot be written ({error.strerror})") from error
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            os.rename(beside, path)  # fails where a file, or a directory with anything in it, stands
            return path
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                shutil.rmtree(beside)
                raise InputError(f"name={name}: no directory of this name can be made ({error.strerror})") from error
            number += 1


def callbacks(config: Mapping[str, Any], run_dir: Path) -> list[Callback]:
    """What accompanies training: checkpoints, early stopping, progress, and views for TensorBoard."""
    trainer = config["trainer"]
    saving: dict[str, Any] = {
        "dirpath": run_dir / "checkpoints",
        "enable_version_counter": False,
        "auto_insert_metric_name": False,
    }
    chosen: list[Callback] = [
        TrainingProgress(),
        ModelCheckpoint(filename="last", every_n_train_steps=trainer["validate_every"], **saving),
    ]
    if trainer["limit_batches"] != 0:
        chosen.append(ModelCheckpoint(filename="best", monitor="valid/bleu", mode="max", **saving))
    if trainer["patience"]:
        chosen.append(EarlyStopping("valid/bleu", mode="max", patience=trainer["patience"]))
    if config["views"]["attention"]:
        fixed = [(text, text) for text in FIXED_SENTENCES.get(config["data"]["src"], ())]
        chosen.append(AttentionMaps(fixed))
    if config["views"]["translations"]:
        chosen.append(SampleTranslations(config["views"]["translations"]))
    return chosen


def build_trainer(config: Mapping[str, Any], run_dir: Path | None, chosen: Iterable[Callback] = ()) -> L.Trainer:
    """Lightning's Trainer with our budget in steps. Without a run's directory it only evaluates."""
    try:
        return _trainer(config, run_dir, chosen)
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise InputError(f"trainer: {str(error).splitlines()[0]}") from error


def _trainer(config: Mapping[str, Any], run_dir: Path | None, chosen: Iterable[Callback]) -> L.Trainer:
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
        logger=TensorBoardLogger(run_dir, name="", version="", default_hp_metric=False) if run_dir else False,
        callbacks=list(chosen),
        default_root_dir=run_dir,
        enable_checkpointing=run_dir is not None,
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
    folder = directory / "translations"
    folder.mkdir(parents=True, exist_ok=True)
    for split, evaluation in evaluations.items():
        lines = zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True)
        text = "".join("\t".join(part.replace("\t", " ") for part in line) + "\n" for line in lines)
        (folder / f"{split}.tsv").write_text("source\treference\ttranslation\n" + text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Beside, then renamed: a reader sees all of it or nothing."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(beside, path)


def log_final(trainer: L.Trainer, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """The final figures for TensorBoard: as scalars and, with every setting, in its HParams table."""
    finals = {f"{split}/{name}": m[name] for split, m in metrics.items() for name in ("bleu", "chrf", "ter", "nll")}
    assert isinstance(trainer.logger, TensorBoardLogger)
    trainer.logger.log_hyperparams(
        dict(config), {f"final/{name}": value for name, value in finals.items()}, trainer.global_step
    )
    trainer.logger.finalize("success")


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
    Console().print(table)
