"""Pictures of the attention to one sentence: all of one model's, or that of several models side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from entente.attention.alignment import Head
from entente.attention.draw import draw, draw_pair
from entente.attention.numbers import Pair, head_correlations, words_of_pair
from entente.attention.occlusion import occlusion
from entente.attention.record import KIND_NAMES, NAME_OF_KIND, TO_SOURCE, AttentionMap, has_attention, record
from entente.attention.words import in_words, sides_in_words
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.models import Seq2Seq


class Attended(NamedTuple):
    """One model's maps of a sentence."""

    name: str
    model: Seq2Seq
    vocabulary: Vocabulary
    pair: Pair
    maps: list[AttentionMap]


def attended(name: str, model: Seq2Seq, vocabulary: Vocabulary, pair: Pair, words: bool) -> Attended:
    """words: whole words instead of pieces, in which gold links are, too."""
    maps = record(model, vocabulary, pair.src, pair.tgt) if has_attention(model) else []
    if words or pair.gold:
        sides = sides_in_words(*words_of_pair(vocabulary, pair))
        maps = [in_words(map, sides) for map in maps]
    return Attended(name, model, vocabulary, pair, maps)


def pictures(
    models: Sequence[Attended],
    title: str,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    one_kind: bool = False,
    occluded: Mapping[str, AttentionMap] | None = None,
) -> Iterator[tuple[str, Figure]]:
    """Names and pictures. Of one model each kind of attention with all layers and heads, and the chosen layer and head (from 1;
    None: the last layer, the mean of the heads) large; of several models the latter side by side. kind: None is each, or that
    to the source where there can only be one: of several models, with one_kind, or with `occluded` maps, see `changes`."""
    first = models[0]
    if kind or one_kind or occluded or len(models) > 1:
        maps = [map_of_kind(one, kind) for one in models]
    else:
        maps = first.maps
    for name, number, axis in (("layer", layer, 0), ("head", head, 1)):
        most = min((map.weights.shape[axis] for map in maps if map.weights.shape[axis] > 1), default=1)
        if number is not None and number not in range(1, most + 1):
            raise InputError(f"{name}={number}: choose from 1 to {most}")
    i, j = -1 if layer is None else layer - 1, None if head is None else head - 1
    gold = first.pair.gold
    links = {(row, column): (column, row) in gold.sure for column, row in gold.possible} if gold else {}
    if occluded:
        yield "occlusion", draw_pair(occluded, title, i, j, links)
    elif len(models) > 1:
        yield "side-by-side", draw_pair({one.name: map for one, map in zip(models, maps, strict=True)}, title, i, j, links)
    else:
        for map in maps:
            name = NAME_OF_KIND[map.kind]
            several = map.weights.shape[:2].numel() > 1
            if several and not (one_kind and (layer or head)):
                yield name, draw(map, title)
            marks = links if map.kind in TO_SOURCE else {}
            yield f"{name}-large" if several else name, draw_pair({first.name: map}, title, i, j, marks)


def map_of_kind(one: Attended, name: str | None) -> AttentionMap:
    """The map of a kind, None for the one to the source. InputError if there is none."""
    kinds = {KIND_NAMES[name]} if name else set(TO_SOURCE)
    for map in one.maps:
        if map.kind in kinds:
            return map
    there = ", ".join(NAME_OF_KIND[map.kind] for map in one.maps)
    if not name:
        raise InputError(f"{one.name}: this model has no attention to its source, only {there}; choose with kind=")
    raise InputError(f"kind={name}: this model has {there}; choose of these")


def changes(one: Attended) -> tuple[dict[str, AttentionMap], dict[Head, dict[str, float]]]:
    """By name, the map of words to the source, without end symbols, and a map of what leaving out each source word changes; and
    how far each head agrees with that, see `correlations`."""
    map = map_of_kind(one, None)
    change = occlusion(one.model, one.pair.src, one.pair.tgt, *words_of_pair(one.vocabulary, one.pair))
    attention = map._replace(weights=map.weights[..., :-1, :-1], rows=map.rows[:-1], columns=map.columns[:-1])
    changed = AttentionMap("change", change[None, None], attention.rows, attention.columns)
    maps = {one.name: attention, f"{one.name}: change when left out": changed}
    return maps, head_correlations(attention.weights, change)
