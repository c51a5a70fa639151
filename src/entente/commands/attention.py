"""Where trained checkpoints look in one sentence. `entente attention`: pictures of every attention of one, or of several
side by side. `entente trace`: one attention step by step, with its numbers."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Interval, doc
from matplotlib.figure import Figure
from rich.console import Console

from entente import checkpoint
from entente.attention import draw, numbers, record
from entente.attention.alignment import Pair, in_words, with_mean
from entente.attention.record import AttentionMap
from entente.attention.trace import Labels, examples, show, trace
from entente.commands.trained import OutputDir, TrustData, load_run, stored_corpus
from entente.commands.translate import standard_output
from entente.data.alignments import Gold
from entente.data.files import clean
from entente.data.module import split_of
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import open_atomic, open_output, path_of, writable
from entente.process import Threads, prepare_process

log = logging.getLogger("entente")

FORMATS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps", ".ps", ".tif", ".tiff")
IN_FOLDER = (".png", ".svg")  # each picture, if a folder is asked for
FRAMES = "Frames: the gold links, sure ones with solid lines, possible ones with dashed lines."
SENTENCE = "Il n'est pas aussi grand que son père."
Kind = Literal["encoder", "decoder", "cross", "alignment"]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The settings of `entente attention`."""

    checkpoint: Annotated[str | Sequence[str], doc("files or runs' directories; one: all its attention; several: side by side")]
    sentence: Annotated[str, doc("in the source language")] = SENTENCE
    target: Annotated[str | None, doc("a translation that the model is to read; null: its own")] = None
    beam: Annotated[int, Interval(ge=1, le=1000), doc("of its own translation")] = 1
    pair: Annotated[str | None, doc("instead of both: SPLIT/NUMBER of its corpus, with gold links if any: pair=test/1")] = None
    trust_data: TrustData = False
    kind: Annotated[Kind | None, doc("encoder, decoder or cross of a Transformer, alignment of a BiRNN; null: each")] = None
    words: Annotated[bool, doc("whole words instead of pieces")] = False
    layer: Annotated[Annotated[int, Ge(1)] | None, doc("of the large picture, from 1; null: the last")] = None
    head: Annotated[Annotated[int, Ge(1)] | None, doc("from 1; null: the mean of the layer's heads")] = None
    occlusion: Annotated[bool, doc("add what leaving out each source word changes, and how far the two agree")] = False
    output: Annotated[str, doc("a folder, for PNG and SVG; or one picture: .png, .svg, .pdf")] = "outputs/attention"
    output_dir: OutputDir = "outputs"
    threads: Threads = None


@dataclass(frozen=True)
class Trace:
    """The settings of `entente trace`."""

    checkpoint: Annotated[str | None, doc("a file, or a run's directory (its best checkpoint)")] = None
    sentence: Annotated[str, doc("in the source language")] = SENTENCE
    target: Annotated[str | None, doc("what the decoder is to produce; null: the model's own greedy translation")] = None
    kind: Annotated[Kind | None, doc("null: attention to the source; of the example, all")] = None
    layer: Annotated[Annotated[int, Ge(1)] | None, doc("of a Transformer, from 1; null: the first")] = None
    head: Annotated[Annotated[int, Ge(1)] | None, doc("from 1; null: the first")] = None
    step: Annotated[Annotated[int, Ge(1)] | None, doc("of a BiRNN, the target step, from 1; null: the first")] = None
    example: Annotated[
        bool | Literal["transformer", "birnn"],
        doc("no checkpoint but a tiny model, two sentences of 3 tokens, width 4; true: transformer"),
    ] = False
    output: Annotated[str | None, doc("a file, NAME.md: the same as Markdown")] = None
    columns: Annotated[Annotated[int, Ge(1)] | None, doc("columns of a wide tensor that are shown; null: all")] = 8
    output_dir: str = "outputs"
    threads: Threads = None


def picture_attention(settings: Attention) -> None:
    """Of one checkpoint: a picture of each kind of attention with all layers and heads, and one of the chosen head (or mean)
    large; in a folder as PNG and SVG. Of several, or if `output` names a picture: the attention to the source alone."""
    prepare_process(settings.threads)
    paths = [settings.checkpoint] if isinstance(settings.checkpoint, str) else settings.checkpoint
    if not paths:
        raise InputError("checkpoint=[]: give one at least")
    output = _output(settings.output)
    source, target, gold = _sentence(settings, paths[0])
    together = settings.occlusion or len(paths) > 1
    shown: list[tuple[str, AttentionMap]] = []
    translations: list[str] = []
    for number, path in enumerate(paths, start=1):
        run = checkpoint.load(path)
        model, vocabulary, name = run.model, run.vocabulary, run.config["model"]["name"]
        name = name if len(paths) == 1 else f"{number}. {name}"
        src, tgt = record.read_sentence(model, vocabulary, source, target, Search(beam=settings.beam))
        translations.append(f"{name}: {vocabulary.tgt.decode(tgt)}")
        if not record.has_attention(model):
            raise InputError(f"checkpoint={path}: this model has no attention to its source, nor any; give another checkpoint")
        maps, words = record.record(model, vocabulary, src, tgt), Pair(src, tgt, gold).words(vocabulary)
        if settings.words or settings.occlusion or gold:  # gold links are of words
            maps = [in_words(map, *words) for map in maps]
        if settings.kind or output.suffix or together:
            maps = [_of_kind(None if settings.occlusion else settings.kind, name, maps)]
        shown += [(name, map) for map in maps]
        if settings.occlusion:
            [map] = maps  # from which the end symbols are cut
            map = map._replace(weights=map.weights[..., :-1, :-1], rows=map.rows[:-1], columns=map.columns[:-1])
            change = numbers.occlusion(model, src, tgt, *words)
            shown[-1:] = [(name, map), (f"{name}: change when left out", map._replace(weights=change[None, None]))]
            found = numbers.by_head(numbers.correlations(with_mean(map.weights), change))
            Console().print(*numbers.tables({"occlusion": found}, name))
    read = [f"given, not translated: {target}"] if target else translations
    title = "\n".join([source, *read, *([FRAMES] if gold else [])])
    links = {(row, column): (column, row) in gold.sure for column, row in gold.possible} if gold else {}
    for picture, figure in _figures(shown, links, title, settings, together):
        for file in [output] if output.suffix else [output / f"{picture}{suffix}" for suffix in IN_FOLDER]:
            with writable(f"output={settings.output}"), open_atomic(file) as opened:
                figure.savefig(opened, format=file.suffix[1:].lower())
            log.info("%s", file)
        if output.suffix:
            break


def _output(path: str) -> Path:
    """A folder, or a picture that can be written."""
    output = path_of(path)
    if output.suffix and output.suffix.lower() not in FORMATS and not output.is_dir():
        raise InputError(f"output={path}: no kind of picture; give a folder, or a name that ends in {', '.join(FORMATS)}")
    if output.suffix and output.is_dir():
        raise InputError(f"output={path}: this is a folder; give a file")
    if output.suffix and not output.parent.is_dir():
        raise InputError(f"output={path}: cannot be written, {output.parent} is no folder; make it, or give another")
    return output


def _sentence(settings: Attention, path: str) -> tuple[str, str | None, Gold | None]:
    """The source, a target to read (None: the model's own), and gold links; those of `pair` are in the corpus of `path`."""
    if settings.pair is None:
        return clean(settings.sentence), clean(settings.target or "") or None, None
    split, _, number = settings.pair.partition("/")
    corpus = stored_corpus(load_run(path, "cpu"), path, settings.trust_data)
    rows = corpus.split(split_of(split))
    if not number.isdecimal() or not 1 <= int(number) <= len(rows):
        raise InputError(f"pair={settings.pair}: give SPLIT/NUMBER, a number from 1 to {len(rows)}")
    row, gold = rows[int(number) - 1], corpus.gold.get(split)
    return row["src"], row["tgt"], gold[int(number) - 1] if gold else None


def _figures(
    shown: Sequence[tuple[str, AttentionMap]], links: draw.Marks, title: str, settings: Attention, together: bool
) -> Iterator[tuple[str, Figure]]:
    """Names and pictures of the maps, each with the name of its model: all side by side if `together`; else of each all layers
    and heads, if it has several, and the chosen layer and head large."""
    layer, head = settings.layer, settings.head
    for name, number, axis in (("layer", layer, 0), ("head", head, 1)):
        most = min((map.weights.shape[axis] for _, map in shown if map.weights.shape[axis] > 1), default=1)
        if number and number > most:
            raise InputError(f"{name}={number}: choose from 1 to {most}")
    i, j = layer - 1 if layer else -1, head - 1 if head else None
    if together:
        yield "occlusion" if settings.occlusion else "side-by-side", draw.draw_pair(dict(shown), title, i, j, links)
        return
    for name, map in shown:
        picture, several = record.NAME_OF_KIND[map.kind], map.weights.shape[:2].numel() > 1
        if several and not (path_of(settings.output).suffix and (layer or head)):
            yield picture, draw.draw(map, title)
        marks = links if map.kind in record.TO_SOURCE else {}
        yield f"{picture}-large" if several else picture, draw.draw_pair({name: map}, title, i, j, marks)


def _of_kind(kind: Kind | None, name: str, maps: Sequence[AttentionMap]) -> AttentionMap:
    """The map of a kind, None for the one to the source, of the model of that name. InputError if it has none."""
    kinds = (record.KIND_NAMES[kind],) if kind else record.TO_SOURCE
    if found := [map for map in maps if map.kind in kinds]:
        return found[0]
    there = ", ".join(record.NAME_OF_KIND[map.kind] for map in maps)
    if kind:
        raise InputError(f"kind={kind}: this model has {there}; choose of these")
    raise InputError(f"{name}: this model has no attention to its source, only {there}; choose with kind=")


def trace_attention(settings: Trace) -> None:
    """Prints one attention of a checkpoint to one sentence, with the target given or the model's own translation, or every one
    of the example, and writes the same as Markdown to any `output`."""
    prepare_process(settings.threads)
    output = path_of(settings.output) if settings.output else None
    if output and output.suffix.lower() != ".md":
        raise InputError(f"output={output}: give a name that ends in .md")
    choice = settings.layer, settings.head, settings.step, settings.columns
    if settings.example:
        if settings.checkpoint:
            raise InputError(f"checkpoint={settings.checkpoint}: an example has a model of its own; leave out one of both")
        text = examples("transformer" if settings.example is True else settings.example, settings.kind, *choice)
    elif settings.checkpoint:
        run = checkpoint.load(settings.checkpoint)
        src, tgt = record.read_sentence(run.model, run.vocabulary, settings.sentence, settings.target, Search())
        read, produced = (run.vocabulary.tgt.pieces(ids) for ids in ([BOS, *tgt], [*tgt, EOS]))
        labels = Labels(run.vocabulary.src.pieces(src), read, produced)
        text = trace(run.model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]), [labels], settings.kind, *choice)
    else:
        raise InputError("checkpoint is not set: give checkpoint=FILE, or example=true for a tiny model of its own")
    if output:
        with open_output(output) as file:
            file.write(f"{text}\n".encode())
    with writable("standard output"):
        show(text, Console(file=standard_output(), highlight=False))
    if output:
        log.info("%s", output)
