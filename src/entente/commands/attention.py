"""Where trained checkpoints look at one sentence: pictures of every attention of one, or of several side by side; and one
attention step by step."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from rich.console import Console

from entente import checkpoint
from entente.attention.draw import draw, draw_pair
from entente.attention.numbers import Pair, head_correlations, occlusion_table, words_of_pair
from entente.attention.occlusion import occlusion
from entente.attention.record import KIND_NAMES, NAME_OF_KIND, TO_SOURCE, AttentionMap, has_attention, record
from entente.attention.trace import trace
from entente.attention.trace.example import examples
from entente.attention.trace.render import markdown
from entente.attention.trace.render import show as show_trace
from entente.attention.trace.steps import Labels, Trace
from entente.attention.words import in_words, sides_in_words
from entente.commands.trained import load_run, stored_corpus
from entente.commands.translate import standard_output
from entente.data.alignments import Gold
from entente.data.files import clean
from entente.data.module import split_of
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import Search, translate
from entente.errors import InputError
from entente.files.reading import path_of
from entente.files.writing import made, writable, written_whole
from entente.process import prepare_process

log = logging.getLogger("entente")

PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps", ".ps", ".tif", ".tiff")
IN_FOLDER = (".png", ".svg")  # each picture, where a folder is asked for
FRAMES = "Frames: the gold links, sure ones drawn through, possible ones dashed."


class Text(NamedTuple):
    """What is looked at: a source, perhaps a target to read instead of the model's own translation, and gold links."""

    source: str
    target: str | None = None
    gold: Gold | None = None


class Looked(NamedTuple):
    """One checkpoint's maps of a sentence."""

    name: str
    run: checkpoint.Run
    pair: Pair
    maps: list[AttentionMap]


def picture_attention(config: Mapping[str, Any]) -> None:
    """Of one checkpoint: a picture of each kind of attention with all layers and heads, and one of the chosen head (or mean)
    large; in a folder as PNG and SVG. Of several, or where `output` names a picture: the attention to the source alone."""
    prepare_process(config["threads"])
    paths = [config["checkpoint"]] if isinstance(config["checkpoint"], str) else config["checkpoint"]
    if not paths:
        raise InputError("checkpoint=[]: give one at least")
    output = _output(config["output"])
    alone = bool(output.suffix)  # one picture
    text = _text(config, paths[0])
    looked = [_look(path, text, i, config) for i, path in enumerate(paths, start=1 if len(paths) > 1 else 0)]
    translations = [f"{one.name}: {one.run.vocabulary.tgt.decode(one.pair.tgt)}" for one in looked]
    read = [f"given, not translated: {text.target}"] if text.target else translations
    title = "\n".join([text.source, *read, *([FRAMES] if text.gold else [])])
    for name, figure in _figures(config, looked, title, alone):
        for path in [output] if alone else [output / f"{name}{suffix}" for suffix in IN_FOLDER]:
            with writable(f"output={config['output']}"), made(path.parent), written_whole(path) as file:
                figure.savefig(file, format=path.suffix[1:].lower())
            log.info("%s", path)
        if alone:
            break


def _text(config: Mapping[str, Any], path: str) -> Text:
    if config["pair"] is None:
        return Text(_sentence(config), clean(config["target"] or "") or None)
    split, _, number = config["pair"].partition("/")
    corpus = stored_corpus(load_run(path, "cpu"), path, config["trust_data"])
    rows = corpus.split(split_of(split))
    if not number.isdecimal() or not 1 <= int(number) <= len(rows):
        raise InputError(f"pair={config['pair']}: give SPLIT/NUMBER, a number from 1 to {len(rows)}")
    row, gold = rows[int(number) - 1], corpus.gold.get(split)
    return Text(row["src"], row["tgt"], gold[int(number) - 1] if gold else None)


def _look(path: str, text: Text, number: int, config: Mapping[str, Any]) -> Looked:
    """number: of several checkpoints; 0 where there is one."""
    run = checkpoint.load(path)
    src, tgt = _read(run, text.source, text.target, config["beam"])
    maps = record(run.model, run.vocabulary, src, tgt) if has_attention(run.model) else []
    if not maps:
        raise InputError(f"checkpoint={path}: this model has no attention to its source, nor any; give another checkpoint")
    pair = Pair(src, tgt, text.gold)
    if config["words"] or config["occlusion"] or text.gold:
        sides = sides_in_words(*words_of_pair(run.vocabulary, pair))
        maps = [in_words(map, sides) for map in maps]
    name = run.config["model"]["name"]
    return Looked(f"{number}. {name}" if number else name, run, pair, maps)


def _of_kind(one: Looked, name: str | None) -> AttentionMap:
    """The map of a kind; where none is named, that to the source."""
    kinds = {KIND_NAMES[name]} if name else set(TO_SOURCE)
    for map in one.maps:
        if map.kind in kinds:
            return map
    there = ", ".join(NAME_OF_KIND[map.kind] for map in one.maps)
    if not name:
        raise InputError(f"{one.name}: this model has no attention to its source, only {there}; choose with kind=")
    raise InputError(f"kind={name}: this model has {there}; choose of these")


def _figures(config: Mapping[str, Any], looked: list[Looked], title: str, alone: bool) -> Iterator[tuple[str, Figure]]:
    """The name of each picture's file, and the picture; if it shall be alone, the first is the one."""
    first = looked[0]
    one_kind = config["kind"] or alone or config["occlusion"] or len(looked) > 1
    maps = [_of_kind(first, config["kind"])] if one_kind else first.maps
    for key, axis in (("layer", 0), ("head", 1)):
        all_maps = [*maps, *(_of_kind(one, config["kind"]) for one in looked[1:])]
        sizes = [map.weights.shape[axis] for map in all_maps if map.weights.shape[axis] > 1]
        if config[key] is not None and config[key] not in range(1, min(sizes, default=1) + 1):
            raise InputError(f"{key}={config[key]}: choose from 1 to {min(sizes, default=1)}")
    layer = -1 if config["layer"] is None else config["layer"] - 1
    head = None if config["head"] is None else config["head"] - 1
    gold = first.pair.gold
    links = {(j, i): (i, j) in gold.sure for i, j in gold.possible} if gold else {}
    if config["occlusion"]:
        panels = {name: map for one in looked for name, map in _beside_change(one)}
        yield "occlusion", draw_pair(panels, title, layer, head, links)
    elif len(looked) > 1:
        yield "side-by-side", draw_pair({one.name: _of_kind(one, config["kind"]) for one in looked}, title, layer, head, links)
    else:
        for map in maps:
            name = NAME_OF_KIND[map.kind]
            several = map.weights.shape[:2].numel() > 1
            if several and not (alone and (config["layer"] or config["head"])):
                yield name, draw(map, title)
            marks = links if map.kind in TO_SOURCE else {}
            yield f"{name}-large" if several else name, draw_pair({first.name: map}, title, layer, head, marks)


def _beside_change(one: Looked) -> Iterator[tuple[str, AttentionMap]]:
    """The map of words, without the end symbols, and beside it what leaving a source word out changes. How far each head
    agrees with that is printed."""
    map = _of_kind(one, None)
    rows, columns = map.rows[:-1], map.columns[:-1]
    change = occlusion(one.run.model, one.pair.src, one.pair.tgt, *words_of_pair(one.run.vocabulary, one.pair))
    attention = map._replace(weights=map.weights[..., :-1, :-1], rows=rows, columns=columns)
    yield one.name, attention
    yield f"{one.name}: change when left out", AttentionMap("change", change[None, None], rows, columns)
    Console().print(occlusion_table(one.name, head_correlations(attention.weights, change)))


def _output(path: str) -> Path:
    """A folder, or a picture that can be written."""
    output = path_of(path)
    if output.suffix and output.suffix.lower() not in PICTURES and not output.is_dir():
        raise InputError(f"output={path}: no kind of picture; give a folder, or a name that ends in {', '.join(PICTURES)}")
    if output.suffix and output.is_dir():
        raise InputError(f"output={path}: this is a folder; give a file")
    if output.suffix and not output.parent.is_dir():
        raise InputError(f"output={path}: cannot be written, {output.parent} is no folder; make it, or give another")
    return output


def trace_attention(config: Mapping[str, Any]) -> None:
    """Prints one attention of a checkpoint step by step, with its numbers; of the example, all of them one after another. And
    writes it as Markdown where `output` is given."""
    prepare_process(config["threads"])
    output = path_of(config["output"]) if config["output"] else None
    if output and output.suffix.lower() != ".md":
        raise InputError(f"output={output}: give a name that ends in .md")
    chosen = [config[key] for key in ("kind", "layer", "head", "step")]
    if config["example"]:
        if config["checkpoint"]:
            raise InputError(f"checkpoint={config['checkpoint']}: an example has a model of its own; leave out one of both")
        traces = examples("transformer" if config["example"] is True else config["example"], *chosen)
    elif config["checkpoint"]:
        traces = [_traced(config, *chosen)]
    else:
        raise InputError("checkpoint is not set: give checkpoint=FILE, or example=true for a tiny model of its own")
    if output:
        with written_whole(output) as file:
            file.write(markdown(traces, config["columns"]).encode())
    console = Console(file=standard_output(), highlight=False)
    with writable("standard output"):
        for one in traces:
            show_trace(one, console, config["columns"])
    if output:
        log.info("%s", output)


def _traced(config: Mapping[str, Any], *chosen: Any) -> Trace:
    """Of one sentence, and the target given or the model's own translation."""
    source = _sentence(config)
    run = checkpoint.load(config["checkpoint"])
    src, tgt = _read(run, source, config["target"])
    read, produced = (run.vocabulary.tgt.pieces(ids) for ids in ([BOS, *tgt], [*tgt, EOS]))
    labels = Labels(run.vocabulary.src.pieces(src), read, produced)
    return trace(run.model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]), [labels], *chosen)


def _sentence(config: Mapping[str, Any]) -> str:
    source = clean(config["sentence"])
    if not source:
        raise InputError("sentence is empty: give one as sentence='...'")
    return source


def _read(run: checkpoint.Run, source: str, target: str | None, beam: int = 1) -> tuple[list[int], list[int]]:
    """Ids of the source, with EOS, and of the target or, where that is None, of the model's own translation."""
    run.vocabulary.src.refuse_too_long(source, "sentence")
    [src] = run.vocabulary.encode_src([source])
    if target is None:
        return src, translate(run.model, run.vocabulary, [source], Search(beam=beam))[0][0].tokens
    run.vocabulary.tgt.refuse_too_long(clean(target), "target")
    return src, run.vocabulary.tgt.encode(clean(target))
