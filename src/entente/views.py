"""Where trained checkpoints look, as pictures of one sentence: every attention of one of them, or of several side by side."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from entente import checkpoint
from entente.data.alignments import Gold
from entente.data.corpora import clean
from entente.data.module import split_of
from entente.errors import InputError
from entente.inference import refuse_too_long, writable, written_whole
from entente.maps.draw import draw, draw_pair
from entente.maps.occlusion import WITH_OCCLUSION, correlations, occlusion
from entente.maps.record import KIND_NAMES, TO_SOURCE, AttentionMap, has_attention, record
from entente.maps.words import in_words, sides_in_words, words_of
from entente.search import Search, translate
from entente.training import prepare_process, read_corpus

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
    src: list[int]
    tgt: list[int]
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
    translations = [f"{one.name}: {one.run.vocabulary.tgt.decode(one.tgt)}" for one in looked]
    read = [f"given, not translated: {text.target}"] if text.target else translations
    title = "\n".join([text.source, *read, *([FRAMES] if text.gold else [])])
    for name, figure in _figures(config, looked, title, text.gold, alone):
        for path in [output] if alone else [output / f"{name}{suffix}" for suffix in IN_FOLDER]:
            with writable(f"output={config['output']}"):
                path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as file:
                figure.savefig(file, format=path.suffix[1:].lower())
            log.info("%s", path)
        if alone:
            break
    if config["occlusion"]:
        for one in looked:
            _show_correlations(one, text.gold)


def _text(config: Mapping[str, Any], path: str) -> Text:
    if config["pair"] is None:
        source, target = clean(config["sentence"]), clean(config["target"] or "") or None
        if not source:
            raise InputError("sentence is empty: give one as sentence='...'")
        return Text(source, target)
    split, _, number = config["pair"].partition("/")
    corpus = read_corpus(checkpoint.load(path).config["data"])
    rows = corpus.split(split_of(split))
    if not number.isdecimal() or not 1 <= int(number) <= len(rows):
        raise InputError(f"pair={config['pair']}: give SPLIT/NUMBER, a number from 1 to {len(rows)}")
    row, gold = rows[int(number) - 1], corpus.gold.get(split)
    return Text(row["src"], row["tgt"], gold[int(number) - 1] if gold else None)


def _look(path: str, text: Text, number: int, config: Mapping[str, Any]) -> Looked:
    """number: of several checkpoints; 0 where there is one."""
    run = checkpoint.load(path)
    refuse_too_long(run.vocabulary.src, text.source, "sentence")
    [src] = run.vocabulary.encode_src([text.source])
    if text.target is None:
        tgt = translate(run.model, run.vocabulary, [text.source], Search(beam=config["beam"]))[0][0].tokens
    else:
        refuse_too_long(run.vocabulary.tgt, text.target, "target")
        tgt = run.vocabulary.tgt.encode(text.target)
    maps = record(run.model, run.vocabulary, src, tgt) if has_attention(run.model) else []
    if not maps:
        raise InputError(f"checkpoint={path}: this model has no attention to its source, nor any; give another checkpoint")
    if config["words"] or config["occlusion"] or text.gold:
        sides = sides_in_words(*_words(run, src, tgt, text.gold))
        maps = [in_words(map, sides) for map in maps]
    name = run.config["model"]["name"]
    return Looked(f"{number}. {name}" if number else name, run, src, tgt, maps)


def _words(run: checkpoint.Run, src: list[int], tgt: list[int], gold: Gold | None) -> tuple[Any, Any]:
    return (
        words_of(run.vocabulary.src, src[:-1], gold.src if gold else None),
        words_of(run.vocabulary.tgt, tgt, gold.tgt if gold else None),
    )


def _of_kind(one: Looked, name: str | None) -> AttentionMap:
    """The map of a kind; where none is named, that to the source."""
    kinds = {KIND_NAMES[name]} if name else set(TO_SOURCE)
    for map in one.maps:
        if map.kind in kinds:
            return map
    there = ", ".join(key for key, kind in KIND_NAMES.items() if kind in {map.kind for map in one.maps})
    if not name:
        raise InputError(f"{one.name}: this model has no attention to its source, only {there}; choose with kind=")
    raise InputError(f"kind={name}: this model has {there}; choose of these")


def _figures(
    config: Mapping[str, Any], looked: list[Looked], title: str, gold: Gold | None, alone: bool
) -> Iterator[tuple[str, Figure]]:
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
    links = {(j, i): (i, j) in gold.sure for i, j in gold.possible} if gold else {}
    if config["occlusion"]:
        panels = {name: map for one in looked for name, map in _beside_change(one, gold)}
        yield "occlusion", draw_pair(panels, title, layer, head, links)
    elif len(looked) > 1:
        yield "side-by-side", draw_pair({one.name: _of_kind(one, config["kind"]) for one in looked}, title, layer, head, links)
    else:
        for map in maps:
            name = next(name for name, kind in KIND_NAMES.items() if kind == map.kind)
            several = map.weights.shape[:2].numel() > 1
            if several and not (alone and (config["layer"] or config["head"])):
                yield name, draw(map, title)
            marks = links if map.kind in TO_SOURCE else {}
            yield f"{name}-large" if several else name, draw_pair({first.name: map}, title, layer, head, marks)


def _beside_change(one: Looked, gold: Gold | None) -> Iterator[tuple[str, AttentionMap]]:
    """The map of words, without the end symbols, and beside it what leaving a source word out changes."""
    map = _of_kind(one, None)
    rows, columns = map.rows[:-1], map.columns[:-1]
    change = occlusion(one.run.model, one.src, one.tgt, *_words(one.run, one.src, one.tgt, gold))
    yield one.name, map._replace(weights=map.weights[..., :-1, :-1], rows=rows, columns=columns)
    yield f"{one.name}: change when left out", AttentionMap("change", change[None, None], rows, columns)


def _show_correlations(one: Looked, gold: Gold | None) -> None:
    """Of each head, and of the mean of each layer's heads, with what leaving words out changes."""
    change = occlusion(one.run.model, one.src, one.tgt, *_words(one.run, one.src, one.tgt, gold))
    table = Table(title=f"{one.name}: attention and leaving words out, means over the target words")
    for column in ("layer", "head", *WITH_OCCLUSION):
        table.add_column(column, justify="right")
    weights = _of_kind(one, None).weights[..., :-1, :-1]
    for i, layer in enumerate(weights, start=1):
        heads = {str(j): head for j, head in enumerate(layer, start=1)}
        if len(heads) > 1:
            heads["mean"] = layer.mean(0)
        for name, head in heads.items():
            table.add_row(str(i), name, *(f"{value:.2f}" for value in correlations(head, change).values()))
    Console().print(table)


def _output(path: str) -> Path:
    """A folder, or a picture that can be written."""
    output = Path(path).expanduser()
    if output.suffix and output.suffix.lower() not in PICTURES and not output.is_dir():
        raise InputError(f"output={path}: no kind of picture; give a folder, or a name that ends in {', '.join(PICTURES)}")
    if output.suffix and output.is_dir():
        raise InputError(f"output={path}: this is a folder; give a file")
    if output.suffix and not output.parent.is_dir():
        raise InputError(f"output={path}: cannot be written, {output.parent} is no folder; make it, or give another")
    return output
