"""Translate text. Without `input`, text is read from standard input; in a terminal, a prompt opens. An empty line stays empty.
With search.n_best above 1, each output line has the sentence's number, a score and a translation, separated by tabs.

  entente translate checkpoint=outputs/RUN input=my.fr output=my.en
  echo "Il dort." | entente translate checkpoint=outputs/RUN
  entente translate checkpoint=outputs/RUN input=my.fr search.n_best=5
"""

import io
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TextIO

import torch

from entente import checkpoint, escape
from entente.commands.settings import TranslateSettings
from entente.console import Task, log
from entente.data.files import clean, read_lines
from entente.data.tokenizer import Tokenizer
from entente.data.words import unseen
from entente.decoding.search import CUT, search_name, translation_search, with_changes
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.files import open_atomic
from entente.process import prepare_process
from entente.settings import SearchSettings

EXAMPLES = 10  # maximum number of lines named in a warning
CHUNK = 1000  # lines translated in one call


def main(settings: TranslateSettings) -> None:
    prepare_process(settings.threads, log_to_stderr=True)
    run = checkpoint.load(settings.checkpoint)
    search = with_changes(translation_search(run.settings.search), settings.search.model_dump())
    if settings.accelerator != "cpu" and (device := torch.accelerator.current_accelerator(check_available=True)):
        run.model.to(device)
    if not settings.input and not settings.output and sys.stdin.isatty():
        _prompt(run, search)
        return
    total = ""
    if settings.input:  # so that nothing is translated if a line is too long
        with Task(f"checking {settings.input}"):
            total = f" of {sum(1 for _ in _read(settings.input, run.vocabulary.src)):,}"
    new_words: dict[str, None] = {}
    output = open_atomic(Path(settings.output)) if settings.output else nullcontext()
    with output as file:
        out = io.TextIOWrapper(file, encoding="utf-8") if file else standard_output()
        first = 1  # number of the first line of the chunk
        lines = _read(settings.input, run.vocabulary.src)
        while chunk := [*islice(lines, CHUNK)]:
            with Task(f"translating lines {first:,} to {first + len(chunk) - 1:,}{total}"):
                translations = translate(run.model, run.vocabulary, chunk, search)
            for number, n_best in enumerate(translations, start=first):
                for hypothesis in n_best:
                    text = run.vocabulary.text(hypothesis.tokens)
                    out.write(f"{text}\n" if search.n_best == 1 else f"{number}\t{hypothesis.score:.4f}\t{text}\n")
            out.flush()
            if cut := [str(number) for number, n_best in enumerate(translations, start=first) if not n_best[0].ended]:
                places = ", ".join(cut[:EXAMPLES]) + (", ..." if len(cut) > EXAMPLES else "")
                log.warning("%d of %d translations were %s (line %s)", len(cut), len(chunk), CUT, places)
            first += len(chunk)
            new_words |= dict.fromkeys(word for line in chunk for word in run.new_words(line))
    if message := unseen(new_words):
        log.warning("%s", message)


def _prompt(run: checkpoint.TrainedRun, search: SearchSettings) -> None:
    """Translates sentences typed by the user until the end of input (Ctrl-D)."""
    with suppress(ImportError):  # Windows has no readline
        import readline  # noqa: F401  adds line editing and a history to `input`
    src, tgt = run.languages
    print(f"{run.summary()}, {search_name(search)}")
    print(f"Type a sentence ({src}) and press Enter. To leave, press Ctrl-D.")
    with suppress(EOFError):
        while True:
            try:
                sentence = clean(input(f"{src}> "))
                run.vocabulary.src.refuse_too_long(sentence, "sentence")
            except InputError as error:
                print(error)
                continue
            if message := unseen(run.new_words(sentence)):
                print(escape.line(message))
            for hypothesis in translate(run.model, run.vocabulary, [sentence], search)[0] if sentence else ():
                text = escape.line(run.vocabulary.text(hypothesis.tokens))
                print(f"{tgt}> {text}" + (f"   ({hypothesis.score:.3f})" if search.n_best > 1 else ""))
                if not hypothesis.ended:
                    print(CUT)
    print()


def _read(path: str | None, tokenizer: Tokenizer) -> Iterator[str]:
    """Yields the lines of a file or of standard input. Raises InputError at a line that is too long."""
    for number, line in enumerate(read_lines(Path(path) if path else None), start=1):
        tokenizer.refuse_too_long(line, f"{path or 'standard input'}, line {number}")
        yield line


def standard_output() -> TextIO:
    """Sets standard output to UTF-8, the encoding of the input, regardless of the locale, and returns it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout
