"""Laws of interventions on a trained model: what each of them equals, that it holds in every way of running the model, and that
nothing of it remains."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import BOS, EOS, LENGTHS, PAD, T, small
from entente.attention.hook_points import hooked
from entente.attention.interventions import (
    Intervention,
    cell,
    intervene,
    mute,
    mute_part,
    no_residual,
    patch,
    scale,
    skip,
    unmask,
    weights,
    with_means,
)
from entente.data.batches import Batch
from entente.data.tokenizer import BOS as BOS_ID
from entente.data.tokenizer import EOS as EOS_ID
from entente.data.tokenizer import PAD as PAD_ID
from entente.data.tokenizer import Vocabulary
from entente.decoding.search import search
from entente.errors import InputError
from entente.fast.attach import attach
from entente.models.seq2seq import Seq2Seq, pad
from entente.settings import SearchSettings
from numerics import REAL, close, has_hooks, logits, logits_in_chunks, model_of

OF_TRANSFORMER: dict[str, Intervention] = {
    "mute": mute("cross", layer=2, head=1),
    "mute_mean": mute("decoder", layer=1, head=3, to=[0.5, -1.0, 2.0, 0.0, 1.0, -0.25, 3.0]),
    "mute_uniform": mute("encoder", layer=2, head=2, to="uniform"),
    "scale": scale("cross", 0.5),
    "no_residual": no_residual("decoder", "cross"),
    "skip": skip("decoder", "self", layer=2),
    "weights": weights("cross", row=2, values=[0.25, 0.75], layer=1, head=2),
    "weights_self": weights("decoder", row=1, values=[0.9, 0.1]),
    "cell": cell("cross", row=3, column=1, value=0.875),
    "padding": unmask("padding"),
}
OF_BIRNN: dict[str, Intervention] = {
    "scale": scale("alignment", 3.0),
    "uniform": mute("alignment", to="uniform"),
    "weights": weights("alignment", row=2, values=[0.25, 0.75]),
    "cell": cell("alignment", row=3, column=1, value=0.875),
    "padding": unmask("padding"),
    "state": mute_part("state"),
    "word": mute_part("word"),
    "context": mute_part("context"),
}
TO_SOURCE = {"transformer": ("cross", "decoder.1.cross_attn.hook_pattern"), "birnn": ("alignment", "alignment.hook_pattern")}
CASES = [("transformer", key) for key in OF_TRANSFORMER] + [("birnn", key) for key in OF_BIRNN]


def of(name: str, key: str) -> Intervention:
    return (OF_TRANSFORMER if name == "transformer" else OF_BIRNN)[key]


@pytest.mark.parametrize("fast", [False, True])
def test_without_interventions_every_bit_is_equal(model: Seq2Seq, fast: bool, src: Tensor, tgt: Tensor) -> None:
    model = attach(model) if fast else model
    expected = logits(model, src, tgt)
    with intervene(model, []):
        assert torch.equal(logits(model, src, tgt), expected)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_an_intervention_changes_the_output_and_leaves_nothing_behind(name: str, key: str, src: Tensor, tgt: Tensor) -> None:
    model = attach(small(name, spread=0.3))
    expected, modules = logits(model, src, tgt), [dict(vars(module)) for module in model.modules()]
    with pytest.raises(ZeroDivisionError), intervene(model, [of(name, key)]):
        assert (logits(model, src, tgt) - expected).abs().max() > 1e-6
        raise ZeroDivisionError
    assert torch.equal(logits(model, src, tgt), expected)
    for module, before in zip(model.modules(), modules, strict=True):
        assert vars(module).keys() == before.keys()
    assert not has_hooks(model)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_search_with_the_cache_scores_its_outputs_as_teacher_forcing_does(name: str, key: str, src: Tensor) -> None:
    model = attach(small(name, spread=0.3))
    settings = SearchSettings(beam=5, length_penalty=0, length_factor=0, length_offset=T)
    with intervene(model, [of(name, key)]):
        for i, [best, *_] in enumerate(search(model, src, settings, BOS, EOS)):
            read = torch.tensor([[BOS, *best.tokens][:T]])
            produced = torch.tensor([*best.tokens, EOS][: read.size(1)])
            row = logits(model, src[i : i + 1], read)[0]
            row[:, model.pad_id] = -torch.inf
            scores = row.log_softmax(-1).gather(1, produced[:, None])
            assert float(scores.sum().detach()) == pytest.approx(best.score, abs=1e-9)


Weights = Callable[[Any], Iterable[Tensor]]
SCALED = {"dot": "query", "bilinear": "query", "cosine": "score", "additive": "score"}  # the part that scales each score


def cross(part: str) -> Weights:
    return lambda m: [p for block in m.decoder for p in block.cross_attention.get_submodule(part).parameters()]


# A model, an intervention, and the factor and the weights whose product it equals
PRODUCTS: list[tuple[str, dict[str, Any], Intervention, float, Weights]] = [
    ("transformer", {}, mute("cross", 2, 1), 0, lambda m: [m.decoder[1].cross_attention.out.weight[:, :7]]),
    ("transformer", {"output_projection": False}, mute("cross", head=1), 0, lambda m: [p[:7] for p in cross("value")(m)]),
    *(("transformer", {"score": score}, scale("cross", 0.5), 0.5, cross(part)) for score, part in SCALED.items()),
    ("transformer", {}, skip("encoder", "ff"), 0, lambda m: [p for block in m.encoder for p in block.ff[2].parameters()]),
    ("birnn", {}, scale("alignment", 3.0), 3, lambda m: [m.attention.score.weight]),
    ("birnn", {}, mute_part("state"), 0, lambda m: [m.readout.weight[:, :19]]),
    ("birnn", {}, mute_part("word"), 0, lambda m: [m.readout.weight[:, 19:36]]),
    ("birnn", {}, mute_part("context"), 0, lambda m: [m.readout.weight[:, 36:]]),
    ("birnn", {"readout": "residual"}, mute_part("context"), 0, lambda m: m.context.parameters()),
]


@pytest.mark.parametrize(("name", "settings", "intervention", "factor", "parts"), PRODUCTS)
def test_an_intervention_equals_a_product_of_weights(
    name: str, settings: dict[str, Any], intervention: Intervention, factor: float, parts: Weights, src: Tensor, tgt: Tensor
) -> None:
    model = small(name, spread=0.3, **settings)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in parts(twin):
            weight.mul_(factor)
    with intervene(model, [intervention]):
        close(logits(model, src, tgt), logits(twin, src, tgt))


REBUILT: list[tuple[dict[str, Any], Intervention, dict[str, Any]]] = [({}, no_residual(), {"residual": []})]
for mask in ("future", "padding"):
    REBUILT += [({"scale": by}, unmask(mask), {f"mask_{mask}": False}) for by in ("d_k", "n_keys")]


@pytest.mark.parametrize(("settings", "intervention", "changes"), REBUILT)
def test_an_intervention_equals_a_model_built_that_way(
    settings: dict[str, Any], intervention: Intervention, changes: dict[str, Any], src: Tensor, tgt: Tensor
) -> None:
    model, other = (small("transformer", spread=0.3, **settings, **each) for each in ({}, changes))
    other.load_state_dict(model.state_dict())
    with intervene(model, [intervention]):
        close(logits(model, src, tgt), logits(other, src, tgt))


def test_a_factor_of_1_changes_no_bit(name: str, model: Seq2Seq, src: Tensor, tgt: Tensor) -> None:
    plain = logits(model, src, tgt)
    with intervene(model, [scale(TO_SOURCE[name][0], 1.0)]):
        assert torch.equal(logits(model, src, tgt), plain)


def recorded(
    model: Seq2Seq,
    name: str,
    interventions: Sequence[Intervention],
    src: Tensor,
    tgt: Tensor,
    vocabulary: Vocabulary | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the logits, and the activation with this name: (B, T, H, K), or (B, T, S) with H = 1 as (B, H, T, S)."""
    values: list[Tensor] = []
    with intervene(model, interventions, vocabulary), hooked(model, [(name, lambda value, hook: values.append(value.clone()))]):
        output = logits(model, src, tgt)
    value = torch.cat(values, dim=-2 if "alignment" in name else 0)
    return output, value if value.dim() == 4 else value.unsqueeze(1)


def test_uniform_weights_are_equal_on_the_real_keys(name: str, src: Tensor, tgt: Tensor) -> None:
    kind, pattern = TO_SOURCE[name]
    _, values = recorded(small(name, spread=0.3), pattern, [mute(kind, to="uniform")], src, tgt)
    close(values, (REAL / REAL.double().sum(-1, keepdim=True))[:, None, None].expand_as(values))


def test_weights_change_one_row_of_the_sentences_that_have_its_keys(name: str, src: Tensor, tgt: Tensor) -> None:
    model, (kind, pattern), row = small(name, spread=0.3), TO_SOURCE[name], [0.25, 0.5, 0.25]
    layer = 2 if name == "transformer" else None
    changes = [], [weights(kind, 2, row, layer)], [cell(kind, 2, column=3, value=0.875, layer=layer)]
    before, of_row, of_cell = (recorded(model, pattern, change, src, tgt)[1] for change in changes)
    assert torch.equal(of_row[:, :, :2], before[:, :, :2]) and torch.equal(of_cell[:, :, :2], before[:, :, :2])
    for b, length in enumerate(LENGTHS):
        old, of_row_2, of_cell_2 = (values[b, :, 2] for values in (before, of_row, of_cell))  # (H, S)
        expected = torch.nn.functional.pad(old.new_tensor(row), (0, old.size(-1) - 3)).expand_as(old)
        assert torch.equal(of_row_2, expected if length >= 3 else old)
        rest = old.index_fill(-1, torch.tensor(3), 0.0)
        scaled = (rest * (0.125 / rest.sum(-1, keepdim=True))).index_fill(-1, torch.tensor(3), 0.875)
        close(of_cell_2, scaled if length >= 4 else old)


def test_weights_that_no_sentence_can_have_change_nothing(src: Tensor, tgt: Tensor) -> None:
    model = small("transformer", spread=0.3)
    expected = logits(model, src, tgt)
    for kind, column in (("cross", 11), ("decoder", 2)):  # sources have at most 11 pieces; row 1 sees two target pieces
        with intervene(model, [cell(kind, row=1, column=column, value=1.0)]):
            assert torch.equal(logits(model, src, tgt), expected)


def test_what_a_key_with_all_the_weight_loses_goes_to_the_others_alike(src: Tensor, tgt: Tensor) -> None:
    model, name = small("transformer", spread=0.3), "decoder.1.cross_attn.hook_pattern"
    changes = [weights("cross", 2, [0.0, 1.0], layer=2), cell("cross", 2, column=1, value=0.25, layer=2)]
    values = recorded(model, name, changes, src, tgt)[1][0, :, 2]
    close(values, torch.full_like(values, 0.075).index_fill(-1, torch.tensor(1), 0.25))


def test_weights_hold_in_bfloat16(name: str, src: Tensor, tgt: Tensor) -> None:
    model, (kind, pattern) = small(name, spread=0.3).bfloat16(), TO_SOURCE[name]
    values = recorded(model, pattern, [weights(kind, 2, [0.3, 0.7])], src, tgt)[1][0, :, 2, :2]
    assert torch.equal(values, torch.tensor([0.3, 0.7], dtype=torch.bfloat16).expand_as(values))


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_mean_outputs_are_means_over_all_pieces(kind: str) -> None:
    model, point = small("transformer", spread=0.3), {"encoder": "encoder.1.attn", "decoder": "decoder.1.attn"}
    pairs = [([5, 6, 7, EOS], [BOS, 9, EOS]), ([8, EOS], [BOS, 9, 10, 11, 12, EOS])]
    outputs = [
        recorded(
            model, f"{point.get(kind, 'decoder.1.cross_attn')}.hook_z", [], torch.tensor([source]), torch.tensor([target[:-1]])
        )[1][0]
        for source, target in pairs
    ]
    src, tgt = pad([source for source, _ in pairs], PAD), pad([target for _, target in pairs], PAD)
    batch = Batch(src, tgt, torch.arange(2), torch.empty(0))
    [resolved] = with_means(model, [mute(kind, layer=2, head=3, to="mean")], lambda: [batch])
    close(torch.tensor(resolved["to"], dtype=torch.float64), torch.cat(outputs).mean(0)[2])
    assert len(with_means(model, [mute(kind, to="mean"), scale(kind, 2.0)], lambda: [batch])) == 2 * 3 + 1


@pytest.mark.parametrize(
    ("name", "kind", "of", "point"),
    [
        ("transformer", "encoder", "output", "encoder.1.attn.hook_z"),
        ("transformer", "decoder", "output", "decoder.1.attn.hook_z"),
        ("transformer", "cross", "output", "decoder.1.cross_attn.hook_z"),
        ("transformer", "encoder", "weights", "encoder.1.attn.hook_pattern"),
        ("transformer", "decoder", "weights", "decoder.1.attn.hook_pattern"),
        ("transformer", "cross", "weights", "decoder.1.cross_attn.hook_pattern"),
        ("birnn", "alignment", "weights", "alignment.hook_pattern"),
    ],
)
def test_a_patch_puts_in_what_another_pair_gives(name: str, kind: str, of: str, point: str, vocabulary: Vocabulary) -> None:
    model = model_of(name, vocabulary).double()
    texts = {"plain": ("Le chat noir dort.", "He sleeps here."), "other": ("Le noir chat dort.", "He is hungry here, Jane.")}
    ids = {
        key: (
            torch.tensor([[*vocabulary.src.encode(source), EOS_ID]]),
            torch.tensor([[BOS_ID, *vocabulary.tgt.encode(target)]]),
        )
        for key, (source, target) in texts.items()
    }
    layer, head = (2, 3) if name == "transformer" else (None, None)
    change = patch(kind, *texts["other"], of=of, layer=layer, head=head)
    before, plain = recorded(model, point, [], *ids["plain"])
    after, patched = recorded(model, point, [change], *ids["plain"], vocabulary)
    _, other = recorded(model, point, [], *ids["other"])
    assert (after - before).abs().max() > 1e-6
    if of == "output":  # (B, T, H, K) -> (B, H, T, K)
        plain, patched, other = (value.transpose(1, 2) for value in (plain, patched, other))
    expected = plain.clone()
    heads, size = slice(2, 3) if head else slice(None), plain.shape[2:]
    expected[:, heads] = other[:, heads, : size[0], : size[1]]
    assert torch.equal(patched, expected)
    with intervene(model, [patch(kind, *texts["plain"], of=of)], vocabulary):
        close(logits(model, *ids["plain"]), before)  # a pair's own output changes nothing


@pytest.mark.parametrize("of", ["weights", "output"])
def test_a_patch_from_a_source_of_another_length_is_refused(of: str, vocabulary: Vocabulary) -> None:
    model = model_of("transformer", vocabulary)
    long, short = ([*vocabulary.src.encode(text), EOS_ID] for text in ("Le chat noir dort.", "Il a faim."))
    change = patch("cross", "Le chat noir dort.", "He is hungry.", of=of)
    read = torch.tensor([[BOS_ID, 9]])
    with intervene(model, [change], vocabulary):
        logits(model, torch.tensor([long]), read)
        for sources in ([short], [long, short]):
            with pytest.raises(InputError, match=f"the sources have [0-9]+ and {len(long)} pieces"):
                logits(model, pad(sources, PAD_ID), read.expand(len(sources), -1))
    with (
        pytest.raises(InputError, match="the sources have"),
        intervene(model, [change, patch("cross", "Il a faim.", "He sleeps.", of=of)], vocabulary),
    ):
        pass
    assert not has_hooks(model)


def test_nested_interventions_end_one_by_one(src: Tensor, tgt: Tensor) -> None:
    model = small("transformer", spread=0.3)
    plain = logits(model, src, tgt)
    with intervene(model, [mute("cross", layer=1)]):
        outer = logits(model, src, tgt)
        with intervene(model, [weights("cross", 2, [1.0], layer=2)]):
            inner = logits(model, src, tgt)
        assert torch.equal(logits(model, src, tgt), outer)
    with intervene(model, [weights("cross", 2, [1.0], layer=2), mute("cross", layer=1)]):
        close(logits(model, src, tgt), inner)
    assert torch.equal(logits(model, src, tgt), plain)


def test_several_interventions_on_one_attention_change_their_own_rows(name: str, src: Tensor, tgt: Tensor) -> None:
    model, kind = attach(small(name, spread=0.3)), TO_SOURCE[name][0]
    first, second = weights(kind, 2, [1.0]), cell(kind, 5, column=0, value=0.75)
    with intervene(model, [first]), intervene(model, [second]):
        nested = logits(model, src, tgt)
    with intervene(model, [first, second]):
        close(logits(model, src, tgt), nested)
        close(logits_in_chunks(model, src, tgt, [1] * T), nested)


@pytest.mark.parametrize(
    ("name", "changes", "intervention", "message"),
    [
        ("transformer", {}, {"mutes": "cross"}, "with one of mute"),
        ("transformer", {}, mute("cross", layer=3), "layer=3: choose from 1 to 2"),
        ("transformer", {}, mute("cross", head=4), "head=4: choose from 1 to 3"),
        ("transformer", {}, mute("alignment"), "this model has no such attention"),
        ("transformer", {"sublayers": ["self", "ff"]}, mute("cross"), "this model has no such attention"),
        ("transformer", {"residual": []}, no_residual(), "does not have that residual connection"),
        ("transformer", {}, skip("encoder", "cross"), "no such sublayer"),
        ("transformer", {}, weights("cross", 1, [0.5, 0.4]), "the sum of values is 0.9; give weights whose sum is 1"),
        ("birnn", {}, mute("alignment"), "no separate heads"),
        ("birnn", {"score": "none"}, scale("alignment", 2.0), "this model has no such attention"),
        ("birnn", {}, no_residual(), "no such sublayer"),
        ("birnn", {}, unmask("future"), "no such mask"),
        ("birnn", {"score": "none"}, unmask("padding"), "no such mask"),
        ("transformer", {"mask_future": False}, unmask("future"), "no such mask"),
        ("transformer", {"mask_padding": False}, unmask("padding"), "no such mask"),
        ("transformer", {}, {"unmask": "future", "layer": 1}, "layer=1: no such setting"),
        ("transformer", {}, {"mute": "cross", "heads": 1}, "heads=1: no such setting; did you mean head"),
        ("transformer", {}, {"weights": "cross", "row": 1}, "^[^=]+: values, or column and value: give one of the two"),
        ("transformer", {}, mute("cross", to=[1.0, 2.0]), "to: give 7 numbers"),
        ("transformer", {}, mute("cross", to="mean"), "to=mean needs sentences"),
        ("transformer", {}, mute_part("state"), "no such readout"),
        ("birnn", {"readout": "residual"}, mute_part("word"), "no such readout"),
        ("birnn", {}, {"mute": "readout"}, "mute=readout and part go together"),
        ("transformer", {}, {"weights": "cross", "row": 1, "values": [1.0], "column": 3}, "give one of the two"),
    ],
)
def test_what_cannot_have_an_effect_is_refused(name: str, changes: Any, intervention: Any, message: str) -> None:
    model = small(name, **changes)
    with pytest.raises(InputError, match=message), intervene(model, [intervention]):
        pass
    assert not has_hooks(model)
