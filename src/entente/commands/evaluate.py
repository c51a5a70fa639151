"""Scores a trained checkpoint on splits of its corpus, or on the user's own files."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge, doc
from rich.console import Console

from entente import checkpoint
from entente.attention.numbers import Measured, measure_split, pairs_of, tables
from entente.commands.stored import load_run, stored_corpus
from entente.commands.trained import Decoding, TrustData, search_and_engine
from entente.console.log import Task
from entente.data.alignments import pharaoh, read_pharaoh
from entente.data.batches import split_of
from entente.data.corpora import Corpus
from entente.data.files import read_parallel
from entente.data.module import TranslationData
from entente.data.pairs import Pair, Pairs
from entente.decoding.search import Search
from entente.errors import InputError
from entente.evaluation import evaluate, show, write_translations
from entente.files import file_in, is_split, is_stream, path_of, scratch, writable, write_json, write_text
from entente.process import prepare_process
from entente.training.train import on_accelerator

log = logging.getLogger("entente")

ONE_TOKEN = Search(length_factor=0, length_offset=1)  # the shortest search, used if torch only computes the NLL


def check_alignment_files(src: str | None, alignments: str | None) -> None:
    """Raises ValueError if `alignments` is set without `src`: the run's own corpus already contains its gold links, if any."""
    if alignments and not src:
        raise ValueError(f"alignments={alignments} needs src=FILE and tgt=FILE; give these too, or leave out alignments")


def check_attention_enabled(attention: bool, alignments: str | None, occlusion: int) -> None:
    """Raises ValueError if a setting that needs attention=true is given without it."""
    for name, value in (("alignments", alignments), ("occlusion", occlusion)):
        if value and not attention:
            raise ValueError(f"{name}={value} needs attention=true; add it, or leave out {name}")


@dataclass(frozen=True, kw_only=True)
class Evaluate(Decoding):
    """The settings of `entente evaluate`."""

    split: Annotated[
        str | Sequence[str],
        doc("split or splits of the run's corpus, or all; test@alone batches each sentence alone, test@mixed mixes lengths"),
    ] = "test"
    trust_data: TrustData = False
    src: Annotated[str | None, doc("file of source sentences to score instead of a split; needs tgt=FILE too")] = None
    tgt: str | None = None
    attention: Annotated[bool, doc("also measure the attention, and score it as a word alignment")] = False
    alignments: Annotated[
        str | None,
        doc("file of gold links between words split at spaces, one line per pair; 0-0 is a sure link, 1?3 a possible one"),
    ] = None
    occlusion: Annotated[
        int, Ge(0), doc("number of sentences on which to compare attention with the effect of leaving out words")
    ] = 0
    output: Annotated[str | None, doc("folder for metrics.json, translations and alignments")] = None

    relations = (*Decoding.relations, check_alignment_files, check_attention_enabled)


def evaluate_checkpoint(settings: Evaluate) -> dict[str, Any]:
    """Translates and scores splits of the corpus that a checkpoint was trained on, or the user's own pair of files. Prints and
    returns the scores, and writes metrics.json and translations to `output`, if given. The NLL always comes from torch."""
    output = path_of(settings.output) if settings.output else None
    if output and os.path.exists(output / "config.yaml"):  # metrics.json would mark the run as finished
        raise InputError(f"output={output}: this is the directory of a run, which keeps its own scores; give another folder")
    prepare_process(settings.threads)
    run = load_run(settings.checkpoint, settings.accelerator)
    how, engine = search_and_engine(run, settings)
    corpus, splits = _own_files(settings, run) if settings.src or settings.tgt else _stored_splits(settings, run)
    data = TranslationData(corpus, run.vocabulary, **{**run.config["data"]["batch"], "both_directions": 0})
    chosen = {split: data.evaluation(split) for split in splits}
    if output:
        with writable(f"output={output}"), scratch(output):
            pass  # raises an error before decoding if the folder cannot be written to
    with on_accelerator(run.model, settings.accelerator, run.config["trainer"]["precision"]):
        evaluations, metrics, named = {}, {}, {"engine": engine.name} if engine else {}
        for split in splits:
            log.info("evaluating %s", split)
            with Task(f"evaluating {split}"):
                found = evaluate(run.model, run.vocabulary, chosen[split], ONE_TOKEN if engine else how)
                if engine:
                    best = [run.vocabulary.tgt.decode(n_best[0].tokens) for n_best in engine(found.sources)]
                    found = replace(found, hypotheses=best)
                evaluations[split], metrics[split] = found, {**found.metrics(), **named}
    measured = _measured(run, data, splits, settings.occlusion) if settings.attention else {}
    for split, one in measured.items():
        metrics[split]["attention"] = one.report
    if output:
        with writable(f"output={output}"):
            write_translations(output, evaluations)
            for split, one in measured.items():
                if one.links:
                    write_text(file_in(output / "alignments", split, ".pharaoh"), pharaoh(one.links))
            write_json(output / "metrics.json", metrics)
    show(metrics, ", ".join([settings.checkpoint, f"step {run.step}", how.name(), *named.values()]))
    for split in splits:
        lengths = ", ".join(f"{row['words']} words {row['bleu']:.1f}" for row in metrics[split]["bleu_by_source_length"])
        log.info("BLEU on %s by source length: %s", split, lengths)
    console = Console(markup=False, emoji=False)
    for split in measured:
        for table in tables(metrics[split]["attention"], split):
            console.print(table)
    for name, signature in metrics[splits[0]]["signature"].items():
        log.info("signature of %s: %s", name, signature)
    return metrics


def _measured(run: checkpoint.Run, data: TranslationData, splits: list[str], occluded: int) -> dict[str, Measured]:
    """Measures the attention on each split. The head that aligns words best is chosen on the validation split if that split has
    gold links, and otherwise on the measured split itself. The report says which split was used."""
    corpus = data.corpus
    known = "valid" in corpus.gold and any(split_of(split) in corpus.gold for split in splits)
    found: dict[str, Measured] = {}
    for split in dict.fromkeys(["valid", *splits] if known or "valid" in splits else splits):
        log.info("measuring the attention on %s", split)
        with Task(f"measuring the attention on {split}"):
            found[split] = measure_split(run.model, run.vocabulary, pairs_of(data, split), occluded, found.get("valid"))
    return {split: found[split] for split in splits}


def _stored_splits(settings: Evaluate, run: checkpoint.Run) -> tuple[Corpus, list[str]]:
    """Returns the corpus of the run, and the requested splits without duplicates."""
    corpus = stored_corpus(run, settings.checkpoint, settings.trust_data)
    asked = [settings.split] if isinstance(settings.split, str) else settings.split
    splits = list(dict.fromkeys(split for one in asked for split in (["valid", *corpus.tests] if one == "all" else [one])))
    if not splits:
        raise InputError("split=[]: give at least one split, or split=all")
    return corpus, splits


def _own_files(settings: Evaluate, run: checkpoint.Run) -> tuple[Corpus, list[str]]:
    """Returns a corpus and the name of its only test set, which holds the user's files and, if given, their gold links."""
    if not settings.src or not settings.tgt:
        raise InputError("src and tgt go together: give both files, src=FILE tgt=FILE")
    src, tgt = path_of(settings.src), path_of(settings.tgt)
    if is_stream(src) and is_stream(tgt) and src.samefile(tgt):
        raise InputError(f"src={src} tgt={tgt}: this is one stream, which can be read only once; give two")

    def short_enough() -> Iterator[Pair]:
        for number, pair in enumerate(read_parallel(src, tgt), start=1):
            for tokenizer, sentence, file in zip((run.vocabulary.src, run.vocabulary.tgt), pair, (src, tgt), strict=True):
                tokenizer.refuse_too_long(sentence, f"{file}, line {number}")
            yield pair

    pairs = Pairs(short_enough(), f"{src} and {tgt}")
    name = src.name if is_split(src.name) else "own"
    if pairs.empty:
        log.info("dropped %d pairs: empty", pairs.empty)
    usable = pairs.dataset()
    corpus = Corpus(train=usable, valid=usable, tests={name: usable})
    if settings.alignments:
        corpus.gold[name] = read_pharaoh(path_of(settings.alignments), usable["src"], usable["tgt"])
    return corpus, [name]
