"""What a trained checkpoint does: scores a split, translates text. Where it looks: views.py."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from entente import checkpoint, escape
from entente.data.alignments import pharaoh, read_pharaoh
from entente.data.corpora import Corpus, read_from, with_text
from entente.data.files import clean, read_lines, read_parallel
from entente.data.module import TranslationData, split_of, together_of
from entente.data.pairs import Pairs
from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.errors import InputError
from entente.evaluation.attention import Measured, measure_split, pairs_of
from entente.evaluation.scores import Evaluation
from entente.export import CTranslate2
from entente.names import file_in, is_name
from entente.reading import is_stream, path_of, text_lines
from entente.schema import defaults, fill, problems
from entente.search import Hypothesis, Search, translate
from entente.settings import PARTS, problems_of_data
from entente.training import (
    build_trainer,
    evaluate,
    prepare_process,
    read_corpus,
    refused_by_lightning,
    show,
    write_translations,
)
from entente.translator import Optim, Translator
from entente.writing import made, whole, write_json, write_text

log = logging.getLogger("entente")

CHUNK = 1000  # lines translated together
ONE_TOKEN = Search(length_factor=0, length_offset=1)

Engine = Callable[[list[str]], list[list[Hypothesis]]]  # sentences -> the n best translations of each


def evaluate_checkpoint(config: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes and scores splits of the corpus a checkpoint was trained on, or a user's own pair of files; prints the table
    and, where `output` is given, writes metrics.json and translations there. The NLL is torch's, whatever engine translates."""
    prepare_process(config["threads"])
    output = path_of(config["output"]) if config["output"] else None
    if output:
        with writable(f"output={output}"):
            refuse_run(output)
    run = load_run(config["checkpoint"], config["accelerator"])
    given = {key: value for key, value in config["search"].items() if value is not None}
    how = fill(Search, "search", {**run.config["search"], **given})
    other = None if config["engine"] == "torch" else CTranslate2(run, how, config["quantization"])
    if config["src"] or config["tgt"]:
        corpus = _own_files(config["src"], config["tgt"], run.vocabulary)
        if config["alignments"]:
            [(name, pairs)] = corpus.tests.items()
            corpus.gold[name] = read_pharaoh(path_of(config["alignments"]), pairs["src"], pairs["tgt"])
        splits = list(corpus.tests)
    else:
        corpus = stored_corpus(run, config["checkpoint"], config["trust_data"])
        splits = _chosen(config["split"], corpus)
    data = TranslationData(corpus, run.vocabulary, **run.config["data"]["batch"], seed=run.config["seed"])
    data.check_lengths(splits)
    if output:
        with writable(f"output={output}"), made(output):
            pass  # before any work
    trainer = build_trainer({**run.config["trainer"], "accelerator": config["accelerator"], "limit_batches": 1.0}, None)
    translator = Translator(run.model, run.vocabulary, Optim(), ONE_TOKEN if other else how, max_steps=1)
    evaluations = evaluate(trainer, translator, data, splits)
    if other:
        evaluations = {split: _translated_by(other, run, evaluation) for split, evaluation in evaluations.items()}
    metrics = {split: evaluation.metrics() for split, evaluation in evaluations.items()}
    if other:
        for split in splits:
            metrics[split]["engine"] = other.name
    measured = _measured(run, data, splits, config["occlusion"]) if config["attention"] else {}
    for split, found in measured.items():
        metrics[split]["attention"] = found.report()
    if output:
        with writable(f"output={output}"):
            write_translations(output, evaluations)
            for split, found in measured.items():
                if not found.alignments:
                    continue
                write_text(file_in(output / "alignments", split, ".pharaoh"), pharaoh(found.links()))
            write_json(output / "metrics.json", metrics)
    show(metrics, f"{config['checkpoint']}, step {run.step}, beam {how.beam}" + (f", {other.name}" if other else ""))
    for split in splits:
        lengths = ", ".join(f"{row['words']}: {row['bleu']:.1f}" for row in metrics[split]["bleu_by_source_length"])
        log.info("%s  BLEU by source words  %s", split, lengths)
    for split, found in measured.items():
        show_attention(split, found)
    for name, signature in metrics[splits[0]]["signature"].items():
        log.info("%s signature  %s", name, signature)
    return metrics


def refuse_run(output: Path) -> None:
    """The directory of a run, whose own scores and translations would be lost, and which counts as finished by its scores."""
    if (output / "config.yaml").exists():
        raise InputError(f"output={output}: this is the directory of a run, which keeps its own scores; give another folder")


def _translated_by(engine: Engine, run: checkpoint.Run, evaluation: Evaluation) -> Evaluation:
    """The evaluation with an engine's translations in place of those it has."""
    best = [n_best[0].tokens for n_best in engine(evaluation.sources)]
    return replace(evaluation, hypotheses=[run.vocabulary.tgt.decode(tokens) for tokens in best])


def _measured(run: checkpoint.Run, data: TranslationData, splits: list[str], occluded: int) -> dict[str, Measured]:
    """The attention of each split in numbers. The head whose alignment is reported is chosen on validation where its gold is
    known; else on the split itself, which the report says."""
    corpus = data.corpus
    known = "valid" in corpus.gold and any(split_of(split) in corpus.gold for split in splits)
    found: dict[str, Measured] = {}
    for split in dict.fromkeys(["valid", *splits] if known or "valid" in splits else splits):
        log.info("measuring attention: %s", split)
        found[split] = measure_split(run.model, run.vocabulary, pairs_of(data, split), occluded, found.get("valid"))
    return {split: found[split] for split in splits}


def stored_corpus(run: checkpoint.Run, path: str, trusted: bool, setting: str = "trust_data") -> Corpus:
    """The corpus that a checkpoint names. Its author chose the files and addresses, so these are read or fetched only where
    the user says so, by `setting`."""
    if places := read_from(run.config["data"]):
        if not trusted:
            raise InputError(f"checkpoint={path}: add {setting}=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.config["data"])


def show_attention(split: str, found: Measured) -> None:
    """Tables of what the heads do."""
    console = Console(markup=False, emoji=False)
    for table in found.tables(split):
        console.print(table)


def load_run(path: str, accelerator: str) -> checkpoint.Run:
    """A checkpoint whose configuration says all that is asked of it here, on an accelerator that is there."""
    run = checkpoint.load(path)
    if missing := ", ".join(part for part in ("data", "search", "trainer") if part not in run.config):
        raise InputError(f"{path}: its configuration has no part {missing}; give a checkpoint that training wrote here")
    used = {part: PARTS[part] for part in ("search", "trainer")}
    wrong = problems_of_data(run.config["data"])
    wrong += [problem for part, kind in used.items() for problem in problems(kind, part, run.config[part])]
    if wrong:
        raise InputError(*(f"{path}: in its configuration, {problem}" for problem in wrong))
    run.config.update({part: {**defaults(kind), **run.config[part]} for part, kind in used.items()})
    if refused := refused_by_lightning({**run.config["trainer"], "accelerator": accelerator}, part=""):
        raise InputError(*refused)
    return run


def _chosen(given: str | list[str], corpus: Corpus) -> list[str]:
    """The splits meant, each once."""
    asked = [given] if isinstance(given, str) else given
    splits = list(dict.fromkeys(split for one in asked for split in (["valid", *corpus.tests] if one == "all" else [one])))
    if not splits:
        raise InputError("split=[]: give one at least, or all")
    for split in splits:
        corpus.split(split_of(split))  # refuses an unknown one before any work
        together_of(split)
    return splits


def _own_files(src: str | None, tgt: str | None, vocabulary: Vocabulary) -> Corpus:
    if not src or not tgt:
        raise InputError("src and tgt go together: give both files, src=FILE tgt=FILE")
    one, other = path_of(src), path_of(tgt)
    if is_stream(one) and is_stream(other) and one.samefile(other):
        raise InputError(f"src={src} tgt={tgt}: this is one stream, which can be read only once; give two")
    where = f"{one} and {other}"
    pairs = Pairs.of(read_parallel(one, other), where)
    for tokenizer, side, file in ((vocabulary.src, 0, src), (vocabulary.tgt, 1, tgt)):
        for number, pair in enumerate(pairs, start=1):  # before any is dropped, so that a line has its number
            tokenizer.refuse_too_long(pair[side], f"{file}, line {number}")
    name = one.name if is_name(one.name) and "@" not in one.name else "own"
    usable = with_text(where, pairs)
    return Corpus(name, train=usable, valid=usable, tests={name: usable})


def translate_text(config: Mapping[str, Any]) -> None:
    """Translates `input` (a file, or standard input; a prompt where that is a terminal) to `output` (a file, or
    standard output), line by line; an empty line stays an empty line. With n_best > 1 each line has n: number of the
    sentence, score, translation, separated by tabs."""
    prepare_process(config["threads"])
    run = load_run(config["checkpoint"], config["accelerator"])
    how = fill(Search, "search", {**run.config["search"], **config["search"]})
    if torch.cuda.is_available() and config["accelerator"] in ("auto", "gpu", "cuda"):
        run.model.cuda()
    engine: Engine = partial(translate, run.model, run.vocabulary, how=how)
    if config["engine"] == "ctranslate2":
        engine = CTranslate2(run, how, config["quantization"])
    if not config["input"] and sys.stdin and sys.stdin.isatty():
        _prompt(run, how, engine)
        return
    lines, count = _to_translate(config["input"], run.vocabulary.src)
    with ExitStack() as stack:
        if config["output"]:
            file = stack.enter_context(written_whole(path_of(config["output"])))
            out: TextIO = stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))
        else:
            stack.enter_context(writable("standard output"))
            out = standard_output()
        progress = stack.enter_context(_progress(sys.stderr.isatty()))
        task = progress.add_task("sentences", total=count)
        number = 0
        for chunk in _chunks(lines):
            for n_best in engine(chunk):
                number += 1
                out.writelines(_written(run, n_best, number, how.n_best))
            out.flush()
            progress.advance(task, len(chunk))


def _prompt(run: checkpoint.Run, how: Search, engine: Engine) -> None:
    """Asks for sentences until the end of input (Ctrl-D)."""
    languages = run.config["data"]
    try:
        while True:
            sentence = input(f"{languages['src']}> ")
            try:
                run.vocabulary.src.refuse_too_long(clean(sentence), "sentence")
            except InputError as error:
                print(error)
                continue
            for hypothesis in engine([sentence])[0]:
                text = escape.line(run.vocabulary.tgt.decode(hypothesis.tokens))
                print(f"{languages['tgt']}> {text}" + (f"   ({hypothesis.score:.3f})" if how.n_best > 1 else ""))
    except EOFError:
        print()


def _written(run: checkpoint.Run, n_best: list[Hypothesis], number: int, n: int) -> Iterator[str]:
    for hypothesis in n_best:
        text = run.vocabulary.tgt.decode(hypothesis.tokens).replace("\n", " ")
        yield f"{text}\n" if n == 1 else f"{number}\t{hypothesis.score:.4f}\t{text}\n"


def _to_translate(given: str | None, tokenizer: Tokenizer) -> tuple[Iterator[str], int | None]:
    """The lines of a file, or of standard input, and how many they are. A file is read once before: if a line of it is refused,
    no line is translated. Of what can be read only once the lines before that one are translated, and no one counts them."""

    def short_enough(lines: Iterable[str], where: str) -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            tokenizer.refuse_too_long(line, f"{where}, line {number}")
            yield line

    if not given:
        return short_enough(_standard_input(), "standard input"), None
    path = path_of(given)
    count = None if is_stream(path) else sum(1 for _ in short_enough(read_lines(path), given))
    return short_enough(read_lines(path), given), count


def _standard_input() -> Iterator[str]:
    if not sys.stdin:
        raise InputError("standard input is closed: give input=FILE")
    try:
        yield from map(clean, text_lines(sys.stdin.buffer, "standard input"))
    except OSError as error:
        raise InputError(f"standard input: cannot be read ({error.strerror}); give input=FILE") from None


def standard_output() -> TextIO:
    """It takes what standard input gives, UTF-8, whatever the terminal's language."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


@contextmanager
def writable(what: str) -> Iterator[None]:
    """What keeps a file from being written, in a line."""
    try:
        yield
    except BrokenPipeError:
        raise  # a reader that has enough is no error
    except OSError as error:
        raise InputError(f"{what}: cannot be written ({error.strerror or error}); give another place") from error


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when it is complete: till then, and after a failure, whatever was there is there.
    What is no file (/dev/null, a pipe) is written to as it is."""
    with writable(f"output={path}"):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        with whole(Path(os.path.realpath(path))) as file:  # a link stays one
            yield file


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Some lines at a time; those before a line that is refused are not lost."""
    chunk: list[str] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
    except InputError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
