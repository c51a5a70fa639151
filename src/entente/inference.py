"""What a trained checkpoint does: scores a split, translates text, shows where it looks."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch
from datasets import Dataset
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from entente import checkpoint
from entente.data.corpora import Corpus, clean, parallel_files, read_lines
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.maps.draw import draw, draw_pair
from entente.maps.record import ALIGNMENT, CROSS, AttentionMap, record
from entente.schema import fill
from entente.search import Hypothesis, Search, translate
from entente.training import (
    build_trainer,
    evaluate,
    prepare_process,
    read_corpus,
    show,
    write_json,
    write_translations,
)
from entente.translator import Optim, Translator

log = logging.getLogger("entente")

CHUNK = 1000  # lines translated together


def evaluate_checkpoint(config: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes and scores splits of the corpus a checkpoint was trained on, or a user's own pair of files; prints the table
    and, where `output` is given, writes metrics.json and translations there."""
    prepare_process(config["threads"])
    run = checkpoint.load(config["checkpoint"])
    given = {key: value for key, value in config["search"].items() if value is not None}
    how = fill(Search, "search", {**run.config["search"], **given})
    if config["src"] or config["tgt"]:
        corpus = _own_files(config["src"], config["tgt"])
        splits = list(corpus.tests)
    else:
        corpus = read_corpus(run.config["data"])
        splits = [config["split"]] if isinstance(config["split"], str) else list(config["split"])
        if splits == ["all"]:
            splits = ["valid", *corpus.tests]
        for split in splits:
            corpus.split(split)  # refuses an unknown one before any work
    data = TranslationData(corpus, run.vocabulary, **run.config["data"]["batch"], seed=run.config["seed"])
    trainer = build_trainer({**run.config["trainer"], "accelerator": config["accelerator"], "limit_batches": 1.0}, None)
    translator = Translator(run.model, run.vocabulary, Optim(), how, max_steps=1)
    evaluations = evaluate(trainer, translator, data, splits)
    metrics = {split: evaluation.metrics() for split, evaluation in evaluations.items()}
    if config["output"]:
        output = Path(config["output"]).expanduser()
        write_translations(output, evaluations)
        write_json(output / "metrics.json", metrics)
    show(metrics, f"{config['checkpoint']}, step {run.step}, beam {how.beam}")
    for split in splits:
        lengths = ", ".join(f"{row['words']}: {row['bleu']:.1f}" for row in metrics[split]["bleu_by_source_length"])
        log.info("%s  BLEU by source words  %s", split, lengths)
    for name, signature in metrics[splits[0]]["signature"].items():
        log.info("%s signature  %s", name, signature)
    return metrics


def picture_attention(config: Mapping[str, Any]) -> None:
    """Writes one picture: a sentence translated by each of the checkpoints, with its cross-attention or alignment; of a single
    checkpoint, where neither `layer` nor `head` is chosen, all layers and heads."""
    prepare_process(config["threads"])
    paths = [config["checkpoint"]] if isinstance(config["checkpoint"], str) else config["checkpoint"]
    maps: dict[str, AttentionMap] = {}
    titles: list[str] = []
    source = clean(config["sentence"])
    if not source:
        raise InputError("sentence is empty: give one as sentence='...'")
    for path in paths:
        run = checkpoint.load(path)
        [src] = run.vocabulary.encode_src([source])
        hypothesis = translate(run.model, run.vocabulary, [source], Search())[0][0]
        name = f"{len(maps) + 1}. {run.config['model']['name']}" if len(paths) > 1 else run.config["model"]["name"]
        titles.append(f"{name}: {run.vocabulary.tgt.decode(hypothesis.tokens)}")
        recorded = {map.kind: map for map in record(run.model, run.vocabulary, src, hypothesis.tokens)}
        maps[name] = recorded.get(CROSS) or recorded[ALIGNMENT]
    for key, axis in (("layer", 0), ("head", 1)):
        sizes = [map.weights.shape[axis] for map in maps.values() if map.weights.shape[axis] > 1]
        if config[key] is not None and config[key] not in range(1, min(sizes, default=1) + 1):
            raise InputError(f"{key}={config[key]}: choose from 1 to {min(sizes, default=1)}")
    if len(maps) == 1 and config["layer"] is None and config["head"] is None:
        figure = draw(next(iter(maps.values())), f"{source}\n{titles[0]}")
    else:
        layer, head = (None if config[key] is None else config[key] - 1 for key in ("layer", "head"))
        figure = draw_pair(maps, "\n".join([source, *titles]), -1 if layer is None else layer, head)
    output = Path(config["output"]).expanduser()
    try:
        figure.savefig(output)
    except (OSError, ValueError) as error:
        raise InputError(f"output={output}: cannot be written ({error})") from error
    log.info("%s", output)


def _own_files(src: str | None, tgt: str | None) -> Corpus:
    if not src or not tgt:
        raise InputError("src and tgt go together: give both files, src=FILE tgt=FILE")
    name = Path(src).name
    pairs: Dataset = parallel_files(Path(src).expanduser(), Path(tgt).expanduser())
    return Corpus(name, train=pairs, valid=pairs, tests={name: pairs})


def translate_text(config: Mapping[str, Any]) -> None:
    """Translates `input` (a file, or standard input; a prompt where that is a terminal) to `output` (a file, or
    standard output), line by line; an empty line stays an empty line. With n_best > 1 each line has n: number of the
    sentence, score, translation, separated by tabs."""
    prepare_process(config["threads"])
    run = checkpoint.load(config["checkpoint"])
    how = fill(Search, "search", {**run.config["search"], **config["search"]})
    if torch.cuda.is_available() and config["accelerator"] in ("auto", "gpu", "cuda"):
        run.model.cuda()
    if not config["input"] and sys.stdin.isatty():
        _prompt(run, how)
        return
    lines = read_lines(Path(config["input"]).expanduser()) if config["input"] else None
    with ExitStack() as stack:
        out = stack.enter_context(_open(config["output"])) if config["output"] else sys.stdout
        progress = stack.enter_context(_progress(sys.stderr.isatty()))
        task = progress.add_task("sentences", total=len(lines) if lines is not None else None)
        number = 0
        for chunk in _chunks(lines if lines is not None else _standard_input()):
            for n_best in translate(run.model, run.vocabulary, chunk, how):
                number += 1
                out.writelines(_written(run, n_best, number, how.n_best))
            out.flush()
            progress.advance(task, len(chunk))


def _prompt(run: checkpoint.Run, how: Search) -> None:
    """Asks for sentences until the end of input (Ctrl-D)."""
    languages = run.config["data"]
    try:
        while True:
            sentence = input(f"{languages['src']}> ")
            for hypothesis in translate(run.model, run.vocabulary, [sentence], how)[0]:
                text = run.vocabulary.tgt.decode(hypothesis.tokens)
                print(f"{languages['tgt']}> {text}" + (f"   ({hypothesis.score:.3f})" if how.n_best > 1 else ""))
    except (EOFError, KeyboardInterrupt):
        print()


def _written(run: checkpoint.Run, n_best: list[Hypothesis], number: int, n: int) -> Iterator[str]:
    for hypothesis in n_best:
        text = run.vocabulary.tgt.decode(hypothesis.tokens).replace("\n", " ")
        yield f"{text}\n" if n == 1 else f"{number}\t{hypothesis.score:.4f}\t{text}\n"


def _standard_input() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError:
            raise InputError(f"standard input, line {number}: not UTF-8 text; convert it to UTF-8 first") from None


def _open(path: str) -> TextIO:
    try:
        return Path(path).expanduser().open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"output={path}: cannot be written ({error.strerror})") from error


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
