"""Translate text. Without `input`, text is read from standard input; in a terminal, a prompt opens. An empty line stays empty.
A line of more than 60 words, or of three or more sentences, is translated sentence by sentence, and a line in capitals as if it
were in lower case, unless translations are sampled or search.n_best is above 1. A line with a sentence that is too long stays
empty, too. With search.n_best, each output line has the line's number, a score and a translation, separated by tabs.

  entente translate checkpoint=outputs/RUN input=my.fr output=my.en
  echo "Il dort." | entente translate checkpoint=outputs/RUN
  entente translate checkpoint=outputs/RUN input=my.fr search.n_best=5
"""

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch

from entente import checkpoint, escape
from entente.commands.settings import TranslateSettings
from entente.console import Task, log
from entente.data.files import raw_lines, read_lines
from entente.data.numbers import numbers_differ
from entente.data.text import clean, unseen
from entente.decoding.search import CUT, length_penalty, search_name, translation_search
from entente.decoding.translate import Translation, translate_lines
from entente.errors import InputError
from entente.files import open_atomic
from entente.settings import SearchSettings
from entente.validation import with_changes

EXAMPLES = 10  # maximum number of lines named in a warning
CHUNK = 1000  # lines of a file translated in one call
PIPE = 1 << 16  # bytes of a pipe translated in one call


def main(settings: TranslateSettings) -> None:
    if settings.input and settings.output and Path(settings.output).exists() and Path(settings.output).samefile(settings.input):
        raise InputError(f"output={settings.output}: this is the input; give another file")
    run = checkpoint.load(settings.checkpoint)
    search = with_changes(translation_search(run.settings.search), settings.search.model_dump())
    device = None if settings.accelerator == "cpu" else torch.accelerator.current_accelerator(check_available=True)
    if settings.accelerator not in ("auto", "cpu", device and "gpu", device and device.type):
        raise InputError(f"accelerator={settings.accelerator}: this machine has none; leave it out")
    run.model.to(device or "cpu")
    if not settings.input and not settings.output and sys.stdin.isatty():
        if settings.sampling or settings.scores:
            raise InputError("the prompt has neither sampling nor scores: give input=FILE")
        _prompt(run, search)
        return
    total = ""
    if settings.input and Path(settings.input).is_file():
        with Task(f"counting the lines of {settings.input}"):
            total = f" of {sum(1 for _ in raw_lines(Path(settings.input))):,}"
    too_long: dict[int, str] = {}  # messages by line
    new_words: dict[str, None] = {}
    cut: list[str] = []
    done = 0
    with open_atomic(Path(settings.output)) if settings.output else nullcontext() as file:
        out = io.TextIOWrapper(file, encoding="utf-8") if file else standard_output()
        for chunk in _chunks(settings.input):
            for i, line in enumerate(chunk):
                try:
                    where = f"{settings.input or 'standard input'}, line {done + i + 1}"
                    run.vocabulary.src.refuse_too_long(line, where, search.n_best == 1 and not settings.sampling)
                except InputError as error:
                    chunk[i], too_long[done + i + 1] = "", str(error)
            with Task(f"translating lines {done + 1:,} to {done + len(chunk):,}{total}"):
                translations = translate_lines(run.model, run.vocabulary, chunk, search, sampling=settings.sampling, first=done)
            for line, n_best in zip(chunk, translations, strict=True):
                done += 1
                words = run.new_words(line)
                new_words |= dict.fromkeys(words)
                cut += [str(done)] * (not n_best[0].ended)
                for best in n_best:
                    cells = [best.text]
                    if settings.scores:
                        flags = {"too_long": done in too_long, "cut": not best.ended, "unseen": words}
                        flags["numbers"] = numbers_differ(line, best.text)
                        cells += [f"{best.log_probability / max(1, best.length):.4f}" if line else ""]
                        cells += [" ".join(flag for flag, is_set in flags.items() if is_set)]
                    if search.n_best > 1:
                        cells = [str(done), f"{_score(search, best):.4f}" if line else "", *cells]
                    out.write("\t".join(cells) + "\n")
            out.flush()
    for message in [*too_long.values()][:EXAMPLES]:
        log.warning("%s; its translation is empty", message)
    if len(too_long) > EXAMPLES:
        log.warning("%d lines were too long", len(too_long))
    if cut:
        places = ", ".join(cut[:EXAMPLES]) + (", ..." if len(cut) > EXAMPLES else "")
        log.warning("%d of %d translations were %s (line%s %s)", len(cut), done, CUT, "s" * (len(cut) > 1), places)
    if message := unseen(new_words):
        log.warning("%s", message)


def _score(search: SearchSettings, translation: Translation) -> float:
    return translation.log_probability / length_penalty(search, translation.length)


def _chunks(path: str | None) -> Iterator[list[str]]:
    """Yields the lines of a file, CHUNK at a time, or of a pipe as they come, since a program may wait for a translation."""
    if path and Path(path).is_file():
        lines = read_lines(Path(path))
        yield from iter(lambda: [*islice(lines, CHUNK)], [])
        return
    pipe: Any
    decode, rest = codecs.getincrementaldecoder("utf-8-sig")().decode, ""
    try:
        with open(path, "rb") if path else nullcontext(sys.stdin.buffer) as pipe:
            while data := pipe.read1(PIPE):
                *whole, rest = (rest + decode(data)).split("\n")
                if whole:
                    yield [*map(clean, whole)]
        if rest := rest + decode(b"", final=True):
            yield [clean(rest)]
    except UnicodeDecodeError:
        raise InputError(f"{path or 'standard input'}: not UTF-8 text; convert it to UTF-8 first") from None


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
                run.vocabulary.src.refuse_too_long(sentence, "sentence", search.n_best == 1)
            except InputError as error:
                print(error)
                continue
            if message := unseen(run.new_words(sentence)):
                print(escape.line(message))
            for best in translate_lines(run.model, run.vocabulary, [sentence], search)[0] if sentence else ():
                print(f"{tgt}> {escape.line(best.text)}" + (f"   ({_score(search, best):.3f})" if search.n_best > 1 else ""))
                if not best.ended:
                    print(CUT)
    print()


def standard_output() -> TextIO:
    """Sets standard output to UTF-8, the encoding of the input, regardless of the locale, and returns it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout
