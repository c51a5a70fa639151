"""Tests that recorded attention weights are those that the model used, and that figures label them correctly."""

import warnings
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import get_data_path
from matplotlib.colors import to_rgba
from torch import Tensor

from conftest import ENGLISH, FRENCH, SIZES
from entente.attention import draw as module
from entente.attention.draw import LINK_COLOR, NOT_AS_DECODED, draw, draw_heads, draw_pair
from entente.attention.record import ALIGNMENT, CROSS, DECODER, ENCODER, KIND_NAMES, AttentionMap, kind_of, record, record_batch
from entente.data.tokenizer import BOS, PAD, Vocabulary
from entente.models.seq2seq import pad
from numerics import has_hooks, model_of, recorded

LAYERS, HEADS = SIZES["transformer"]["n_layers"], SIZES["transformer"]["n_heads"]
EXPECTED = {"transformer": {ENCODER, DECODER, CROSS}, "birnn": {ALIGNMENT}}


@pytest.fixture(scope="module")
def ids(vocabulary: Vocabulary) -> tuple[list[list[int]], list[list[int]]]:
    return vocabulary.encode_src(FRENCH), vocabulary.tgt.encode_all(ENGLISH)


def test_kinds_sizes_and_labels_at_both_ends(name: str, vocabulary: Vocabulary, ids: Any) -> None:
    src, tgt = ids[0][1], ids[1][1]
    maps = {map.kind: map for map in record(model_of(name, vocabulary), vocabulary, src, tgt)}
    assert set(maps) == EXPECTED[name]
    source, target = vocabulary.src.pieces(src), vocabulary.tgt.pieces(tgt)
    assert len(source) != len(target) + 1, "rows and columns must differ in number, or a swap would go unnoticed"
    for kind, map in maps.items():
        stack = (1, 1) if kind == ALIGNMENT else (LAYERS, HEADS)
        assert map.weights.shape == (*stack, len(map.rows), len(map.columns))
        assert map.weights.dtype == torch.float32
        assert map.rows == (source if kind == ENCODER else [*target, "</s>"])
        assert map.columns == (["<s>", *target] if kind == DECODER else source)
    assert "".join(source) == "▁" + FRENCH[1].replace(" ", "▁") + "</s>"
    assert "".join(target) == "▁" + ENGLISH[1].replace(" ", "▁")


def test_the_maps_of_a_batch_are_the_weights_that_the_model_used_without_padding(
    name: str, vocabulary: Vocabulary, ids: Any
) -> None:
    model = model_of(name, vocabulary)
    with recorded(model) as outputs:
        model(pad(ids[0], PAD), pad([[BOS, *row] for row in ids[1]], PAD))
    batch = record_batch(model, vocabulary, *ids)
    for path, calls in outputs.items():
        weights = torch.cat(calls, -2).unsqueeze(1) if name == "birnn" else calls[0]
        layer = int(path.split(".")[1]) if name == "transformer" else 0
        for n, maps in enumerate(batch):
            [map] = [map for map in maps if map.kind == KIND_NAMES[kind_of(path)]]
            assert torch.equal(map.weights[layer], weights[n, :, : len(map.rows), : len(map.columns)])
    for maps, *sides in zip(batch, *ids, strict=True):
        assert [(map.rows, map.columns) for map in maps] == [alone[2:4] for alone in record(model, vocabulary, *sides)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_recording_does_not_change_a_training_step(name: str, precision: str, vocabulary: Vocabulary, ids: Any) -> None:
    src, tgt = pad(ids[0], PAD), pad([[BOS, *row] for row in ids[1]], PAD)
    dropout = {"dropout": 0.3} | ({"attention_dropout": 0.3} if name == "transformer" else {})

    def step(recorded: bool) -> tuple[list[Tensor], Tensor, list[AttentionMap]]:
        model, maps = model_of(name, vocabulary, **dropout).train(), []
        model.output.eval()  # one module is in evaluation mode: `record` must restore the mode of each module
        modes = [module.training for module in model.modules()]
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            if recorded:
                maps = record(model, vocabulary, ids[0][0], ids[1][0])
            hidden, _ = model.decode(tgt, model.encode(src))
            if recorded:
                record(model, vocabulary, ids[0][0], ids[1][0])
            loss = model.output(hidden).float().square().mean()
        loss.backward()
        assert [module.training for module in model.modules()] == modes
        assert not has_hooks(model)
        return [p.grad for p in model.parameters() if p.grad is not None], torch.get_rng_state(), maps

    gradients, state, _ = step(recorded=False)
    other_gradients, other_state, maps = step(recorded=True)
    assert len(gradients) == len(other_gradients) > 10
    assert all(map(torch.equal, gradients, other_gradients)) and torch.equal(state, other_state)
    for map_, exact in zip(maps, record(model_of(name, vocabulary), vocabulary, ids[0][0], ids[1][0]), strict=True):
        assert torch.equal(map_.weights, exact.weights), "not recorded in evaluation mode and full precision"
        assert not map_.weights.requires_grad


@pytest.mark.parametrize(
    ("changes", "as_decoded"),
    [({}, True), ({"mask_future": False}, False), ({"softmax": "queries"}, False), ({"softmax": "batch"}, True)],
)
def test_a_map_that_decoding_does_not_use_is_marked(
    changes: dict[str, Any], as_decoded: bool, vocabulary: Vocabulary, ids: Any
) -> None:
    model = model_of("transformer", vocabulary, **changes)
    for map in record(model, vocabulary, ids[0][1], ids[1][1]):
        assert map.as_decoded == (as_decoded or map.kind == ENCODER)
        for figure in (draw(map, ""), draw_pair({"it": map}, "")):
            assert (NOT_AS_DECODED in " ".join(" ".join(t.get_text() for t in texts(figure)).split())) == (not map.as_decoded)


def fake(kind: str, layers: int, heads: int, rows: list[str], columns: list[str]) -> AttentionMap:
    weights = torch.randn(layers, heads, len(rows), len(columns), generator=torch.Generator().manual_seed(1)).softmax(-1)
    return AttentionMap(kind, weights, rows, columns)


def texts(figure: Any, **properties: Any) -> list[Any]:
    """Returns the figure's text objects that have these properties."""
    every = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    return [text for text in every if all(getattr(text, f"get_{key}")() == value for key, value in properties.items())]


def boxes_inside(figure: Any) -> list[Any]:
    """Returns the bounding boxes of the figure's texts, after checking that none is cut off."""
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    boxes = [text.get_window_extent(figure.canvas.get_renderer()) for text in texts(figure)]
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)
    return boxes


def panels(figure: Any) -> list[Any]:
    """Returns the images of a figure. Each image shows the weights of one head."""
    return [image for axes in figure.axes for image in axes.images]


def test_every_layer_and_head_is_drawn_under_its_labels() -> None:
    rows, columns = ["▁Jane", "▁visits", "</s>"], ["▁Jane", "▁visite", "▁l", "'", "</s>"]
    map = fake(CROSS, 3, 4, rows, columns)
    figure = draw(map, "Jane visite l'  →  Jane visits")
    written = [text.get_text() for text in texts(figure)]
    assert any("produced piece" in text for text in written) and "Jane visite l'  →  Jane visits" in written[0]
    assert len(panels(figure)) == 12
    titles = [(text, text.get_text()) for text in texts(figure, va="baseline")]
    places = [image.get_extent() for image in panels(figure)]
    for i, (image, (left, right, _, top)) in enumerate(zip(panels(figure), places, strict=True)):
        layer, head = divmod(i, 4)
        assert torch.equal(torch.tensor(image.get_array()), map.weights[layer, head])
        assert image.get_clim() == (0, 1)
        above = [name for text, name in titles if left < text.get_position()[0] < right and text.get_position()[1] < top]
        assert above[-1] == f"layer {layer + 1}, head {head + 1}"
    for layer in range(3):  # labels are to the left of the layer's panels, level with the rows they name
        _, _, bottom, top = places[4 * layer]
        left_labels = [t for t in texts(figure, ha="right") if top < t.get_position()[1] < bottom]
        assert [t.get_text() for t in left_labels] == ["·Jane", "·visits", "</s>"]
        heights = [t.get_position()[1] for t in left_labels]
        assert heights == pytest.approx([top + (k + 0.5) / 3 * (bottom - top) for k in range(3)])
    for head in range(4):
        left, right, _, _ = places[8 + head]
        labels_below = [t for t in texts(figure, rotation=90) if left < t.get_position()[0] < right]
        assert [t.get_text() for t in labels_below] == [piece.replace("▁", "·") for piece in columns]
        assert labels_below[0].get_position()[0] == pytest.approx(left + 0.1 * (right - left))


def test_nothing_is_cut_off_and_no_labels_touch() -> None:
    pieces = [f"▁anticonstitutionnellement{i}" for i in range(23)]
    for map in (fake(ENCODER, 2, 3, pieces, pieces), fake(ALIGNMENT, 1, 1, pieces[:2], pieces[:3])):
        figure: Any = draw(map, "un titre large ▁MOT " * 20)
        boxes_inside(figure)
        for labels, side in ((texts(figure, ha="right"), "y"), (texts(figure, rotation=90), "x")):
            boxes = [text.get_window_extent(figure.canvas.get_renderer()) for text in labels[: len(map.rows)]]
            for box, other in pairwise(boxes):
                assert (box.y0 >= other.y1 - 1) if side == "y" else (box.x1 <= other.x0 + 1)


@pytest.mark.parametrize("words", [1, 2, 3, 7])
def test_the_titles_of_small_panels_fit_side_by_side(words: int) -> None:
    pieces = [f"▁{i}" for i in range(words)]
    names = ("1. transformer", "2. transformer: change when left out")
    figure: Any = draw_pair({name: fake(CROSS, 2, 4, pieces, pieces) for name in names}, "un titre")
    boxes_inside(figure)
    titles = [text for text in texts(figure, ha="center") if "transformer" in text.get_text()]
    first, second = (title.get_window_extent(figure.canvas.get_renderer()) for title in titles)
    assert first.x1 < second.x0


@pytest.mark.parametrize(("layers", "heads"), [(3, 5), (2, 1)])
def test_every_head_has_its_number_and_color(layers: int, heads: int) -> None:
    generator = torch.Generator().manual_seed(3)
    values = {
        kind: {name: torch.rand(layers, heads, generator=generator) for name in ("entropy", "end")} for kind in (DECODER, CROSS)
    }
    values[CROSS]["aer"] = torch.zeros(layers, heads)
    figure = draw_heads(values, "un titre large " * 9)
    [image] = panels(figure)
    colors, wide, high = image.get_array(), max(heads, 4) + 1, layers + 1
    assert image.get_clim() == (0, 1)
    written = {text.get_position(): text.get_text() for text in texts(figure, ha="center")}
    assert len(written) == (~colors.mask).sum() == 5 * layers * heads
    for i, kind in enumerate((DECODER, CROSS)):
        for j, of_heads in enumerate(values[kind].values()):
            left, top = i * wide + 1, j * high + 1
            torch.testing.assert_close(
                torch.tensor(colors.data[top : top + layers, left : left + heads]), of_heads, check_dtype=False
            )
            for (layer, head), value in np.ndenumerate(of_heads.numpy()):
                assert written[left + head + 0.5, top + layer + 0.5] == f"{value:.2f}"
    assert not any(box.overlaps(other) for box, other in combinations(boxes_inside(figure), 2))


@pytest.mark.parametrize(
    ("piece", "label"),
    [("😀", "😀"), ("Ⓐ中", "Ⓐ□"), ("$x$", r"\$x\$"), ("$\\frac{$", r"\$\frac{\$"), ("a\nb", "a□b"), ("œÉ’«…", "œÉ’«…")],
)
def test_odd_pieces_are_drawn_without_a_warning(piece: str, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A character that the default font lacks is drawn by an installed one, or named in a hint."""
    monkeypatch.setattr(module, "FALLBACKS", {})
    monkeypatch.setattr(module.fontManager, "ttflist", [])  # the fonts that ship with matplotlib, and no installed one
    for font in sorted(Path(get_data_path(), "fonts", "ttf").glob("*.ttf")):
        module.fontManager.addfont(font)
    hints: list[str] = []
    monkeypatch.setattr(module.log, "warning", lambda text, *values: hints.append(text % values))
    figures: list[Any] = [draw(fake(CROSS, 2, 2, [piece, "b"], ["c", piece, piece]), f"{piece} → {piece}") for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures[0].canvas.draw()
    for figure in figures:
        assert [text.get_text() for text in texts(figure, ha="right")] == [label, "b"] * 2
        assert ("STIXGeneral" in figure.texts[0].get_fontfamily()) == ("Ⓐ" in piece)
    assert [hint[:25] for hint in hints] == ["no installed font has 中, "] * ("中" in piece)


def test_pair_shows_the_chosen_attention_of_each_model() -> None:
    rows, columns = ["▁He", "▁sleeps", "</s>"], ["▁Il", "▁dort", ".", "</s>"]
    many, single = fake(CROSS, 3, 4, rows, columns), fake(ALIGNMENT, 1, 1, [*rows[:1], "</s>"], columns)
    models = {"Transformer": many, "BiRNN": single}
    figure = draw_pair(models, "Il dort.", layer=2)
    images = [torch.tensor(image.get_array()) for image in panels(figure)]
    assert torch.equal(images[0], many.weights[1].mean(0)) and torch.equal(images[1], single.weights[0, 0])
    assert [text.get_text() for text in texts(figure, va="baseline")] == ["Transformer, layer 2, mean of 4 heads", "BiRNN"]
    assert [text.get_text() for text in texts(figure, ha="right")] == ["·He", "·sleeps", "</s>", "·He", "</s>"]
    figure = draw_pair(models, "Il dort.", head=4)
    assert torch.equal(torch.tensor(panels(figure)[0].get_array()), many.weights[2, 3])
    assert texts(figure, va="baseline")[0].get_text() == "Transformer, layer 3, head 4"


def test_links_are_framed_in_their_cells() -> None:
    map = fake(CROSS, 1, 1, ["a", "b", "c"], ["x", "y", "z", "</s>", "w"])
    figure = draw_pair({"it": map}, "", marks={(2, 1): True, (0, 4): False})
    [image] = panels(figure)
    left, right, bottom, top = image.get_extent()
    frames = [patch for patch in image.axes.patches if to_rgba(LINK_COLOR) == patch.get_edgecolor()]
    places = {}
    for frame in frames:
        x, y = frame.get_center()
        places[int((y - top) / (bottom - top) * 3), int((x - left) / (right - left) * 5)] = frame.get_linestyle()
    assert places == {(2, 1): "-", (0, 4): "--"}
    assert "Frames mark the gold links" in figure.get_suptitle()
    of_source = draw_pair({"it": map._replace(kind=ENCODER)}, "", marks={(2, 1): True})
    assert not any(patch.get_edgecolor() == to_rgba(LINK_COLOR) for patch in of_source.axes[0].patches)
    assert "Frames" not in of_source.get_suptitle()
