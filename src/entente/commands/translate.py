"""Translates text with a trained checkpoint."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, TextIO

import torch
from annotated_types import doc

from entente import checkpoint
from entente.commands.trained import Decoding, search_and_engine
from entente.console import escape
from entente.console.log import Task
from entente.data.files import clean, read_lines
from entente.data.tokenizer import Tokenizer
from entente.decoding.search import Hypothesis, Search
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.files import is_stream, open_output, path_of, writable
from entente.process import prepare_process

CHUNK = 1000  # lines passed to the engine in one call

Engine = Callable[[list[str]], list[list[Hypothesis]]]  # sentences -> the n best translations of each


@dataclass(frozen=True, kw_only=True)
class Translate(Decoding):
    """The settings of `entente translate`."""

    input: Annotated[str | None, doc("text file, plain or gzip; null: standard input, or a prompt in a terminal")] = None
    output: Annotated[str | None, doc("file for the translations; null: standard output")] = None


def translate_text(settings: Translate) -> None:
    """Translates `input` to `output` line by line; an empty line stays empty. If n_best > 1, writes n_best lines per input
    line, each with the number of the input line, the score and the translation, separated by tabs."""
    prepare_process(settings.threads, log_to_stderr=True)
    run = checkpoint.load(settings.checkpoint)
    if settings.accelerator not in ("auto", "cpu"):
        from entente.commands.stored import refuse_accelerator  # imports Lightning, which takes 2 seconds

        refuse_accelerator(settings.accelerator)
    how, other = search_and_engine(run, settings)
    if settings.accelerator != "cpu" and (device := torch.accelerator.current_accelerator(check_available=True)):
        run.model.to(device)
    engine: Engine = other or partial(translate, run.model, run.vocabulary, settings=how)
    if not settings.input and not settings.output and sys.stdin and sys.stdin.isatty():
        _prompt(run, how, engine)
        return
    lines, total = _input_lines(settings.input, run.vocabulary.src)
    with open_output(path_of(settings.output)) if settings.output else writable("standard output") as file:
        out = io.TextIOWrapper(file, encoding="utf-8") if file else standard_output()
        first = 1  # number of the first line of the chunk
        for chunk in _chunks(lines):
            with Task(f"translating lines {first:,} to {first + len(chunk) - 1:,}{f' of {total:,}' if total else ''}"):
                found = engine(chunk)
            for number, n_best in enumerate(found, start=first):
                for hypothesis in n_best:
                    text = run.vocabulary.tgt.decode(hypothesis.tokens).replace("\n", " ")
                    out.write(f"{text}\n" if how.n_best == 1 else f"{number}\t{hypothesis.score:.4f}\t{text}\n")
                out.flush()
            first += len(chunk)


def _prompt(run: checkpoint.Run, how: Search, engine: Engine) -> None:
    """Prompts for sentences and translates them until the end of input (Ctrl-D)."""
    with suppress(ImportError):  # Windows has no readline
        import readline  # noqa: F401  adds line editing and a history to `input`
    src, tgt = run.languages
    print(f"{run.summary()}, {how.name()}")
    print(f"Type a sentence ({src}) and press Enter. To leave, press Ctrl-D.")
    print("Use the arrow keys to edit the line and to recall earlier ones.")
    try:
        while True:
            try:
                sentence = clean(input(f"{src}> "))
                sentence.encode()  # depending on the locale, Python reads a byte that is not UTF-8 as a lone surrogate
                run.vocabulary.src.refuse_too_long(sentence, "sentence")
            except UnicodeError:
                print("not UTF-8 text; set the terminal's encoding to UTF-8")
                continue
            except InputError as error:
                print(error)
                continue
            if not sentence:
                continue
            if new := run.new_words(sentence):
                print(f"not seen in training: {escape.line(', '.join(new))}")
            for hypothesis in engine([sentence])[0]:
                text = escape.line(run.vocabulary.tgt.decode(hypothesis.tokens))
                print(f"{tgt}> {text}" + (f"   ({hypothesis.score:.3f})" if how.n_best > 1 else ""))
    except EOFError:
        print()


def _input_lines(given: str | None, tokenizer: Tokenizer) -> tuple[Iterator[str], int | None]:
    """Returns the lines of a file or of standard input, and how many there are (None for a stream). A file is first read to
    check and count its lines, so that nothing is translated if a line is too long. A stream is translated up to that line."""
    path = path_of(given) if given else None
    if not path and not sys.stdin:
        raise InputError("standard input is closed: give input=FILE")

    def short_enough() -> Iterator[str]:
        for number, line in enumerate(read_lines(path), start=1):
            tokenizer.refuse_too_long(line, f"{given or 'standard input'}, line {number}")
            yield line

    if not path or is_stream(path):
        return short_enough(), None
    with Task(f"checking {given}"):
        return short_enough(), sum(1 for _ in short_enough())


def standard_output() -> TextIO:
    """Sets standard output to UTF-8, the encoding of the input, regardless of the locale, and returns it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yields CHUNK lines at a time. If reading a line raises InputError, yields the preceding lines before raising it."""
    while True:
        chunk: list[str] = []
        try:
            chunk.extend(islice(lines, CHUNK))
        except InputError:
            yield chunk
            raise
        if not chunk:
            return
        yield chunk
