"""Laws of interventions on a trained model: what each of them equals, that it holds in every way of running the model, and that
nothing of it remains."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import BOS, EOS, T, small
from entente.decoding.search import search
from entente.errors import InputError
from entente.fast.attach import attach
from entente.interventions import Intervention, cell, intervene, mute, no_residual, scale, skip, unmask, weights
from entente.models.seq2seq import Seq2Seq
from entente.settings import SearchSettings
from numerics import close, logits, logits_in_chunks

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
}
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
        assert not module._forward_hooks and not module._forward_pre_hooks


@pytest.mark.parametrize(("name", "key"), CASES)
@pytest.mark.parametrize("beam", [1, 5])
def test_search_with_the_cache_scores_its_outputs_as_teacher_forcing_does(name: str, key: str, beam: int, src: Tensor) -> None:
    model = attach(small(name, spread=0.3))
    settings = SearchSettings(beam=beam, length_penalty=0, length_factor=0, length_offset=T)
    with intervene(model, [of(name, key)]):
        for i, [best, *_] in enumerate(search(model, src, settings, BOS, EOS)):
            read = torch.tensor([[BOS, *best.tokens][:T]])
            produced = torch.tensor([*best.tokens, EOS][: read.size(1)])
            row = logits(model, src[i : i + 1], read)[0]
            row[:, model.pad_id] = -torch.inf
            scores = row.log_softmax(-1).gather(1, produced[:, None])
            assert float(scores.sum().detach()) == pytest.approx(best.score, abs=1e-9)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_steps_one_at_a_time_equal_all_at_once(name: str, key: str, src: Tensor, tgt: Tensor) -> None:
    model = attach(small(name, spread=0.3))
    with intervene(model, [of(name, key)]):
        close(logits_in_chunks(model, src, tgt, [1] * T), logits(model, src, tgt))


def changed(model: Seq2Seq, change: Any) -> Seq2Seq:
    twin = copy.deepcopy(model)
    with torch.no_grad():
        change(twin)
    return twin


def test_a_muted_head_equals_zero_columns_of_w_o(src: Tensor, tgt: Tensor) -> None:
    model: Any = small("transformer", spread=0.3)
    expected = changed(model, lambda m: m.decoder[1].cross_attention.out.weight[:, :7].zero_())
    with intervene(model, [mute("cross", layer=2, head=1)]):
        close(logits(model, src, tgt), logits(expected, src, tgt))


@pytest.mark.parametrize("score", ["dot", "bilinear", "cosine", "additive"])
def test_a_scale_multiplies_the_scores(score: str, src: Tensor, tgt: Tensor) -> None:
    model: Any = small("transformer", spread=0.3, score=score)

    def scaled(m: Any) -> None:
        for block in m.decoder:
            layer = block.cross_attention
            parts = {"cosine": "factor", "additive": "weight"}
            for value in (getattr(layer.score, parts[score]),) if score in parts else layer.query.parameters():
                value.mul_(0.5)

    with intervene(model, [scale("cross", 0.5)]):
        close(logits(model, src, tgt), logits(changed(model, scaled), src, tgt))
    with intervene(model, [scale("cross", 1.0)]):
        assert torch.equal(logits(model, src, tgt), logits(changed(model, lambda m: None), src, tgt))


def test_a_scale_of_additive_alignment_multiplies_v(src: Tensor, tgt: Tensor) -> None:
    model: Any = small("birnn", spread=0.3)
    with intervene(model, [scale("alignment", 3.0)]):
        close(logits(model, src, tgt), logits(changed(model, lambda m: m.attention.score.weight.mul_(3)), src, tgt))


def test_no_residual_equals_a_model_built_without_it(src: Tensor, tgt: Tensor) -> None:
    model = small("transformer", spread=0.3)
    without = small("transformer", residual=[])
    without.load_state_dict(model.state_dict())
    with intervene(model, [no_residual()]):
        close(logits(model, src, tgt), logits(without, src, tgt))


def test_a_skipped_sublayer_adds_nothing(src: Tensor, tgt: Tensor) -> None:
    model: Any = small("transformer", spread=0.3)

    def silent(m: Any) -> None:
        for block in m.encoder:
            block.ff[2].weight.zero_()
            block.ff[2].bias.zero_()

    with intervene(model, [skip("encoder", "ff")]):
        close(logits(model, src, tgt), logits(changed(model, silent), src, tgt))


def test_without_the_mask_of_the_future_a_piece_sees_later_ones(src: Tensor, tgt: Tensor) -> None:
    model, other = small("transformer", spread=0.3), tgt.clone()
    other[:, -1] = (tgt[:, -1] + 5) % 37
    with intervene(model, [unmask("future")]):
        assert not torch.equal(logits(model, src, other)[:, 0], logits(model, src, tgt)[:, 0])


@pytest.mark.parametrize(
    ("name", "changes", "intervention", "message"),
    [
        ("transformer", {}, {"mutes": "cross"}, "give one of mute"),
        ("transformer", {}, mute("cross", layer=3), "layer=3: choose from 1 to 2"),
        ("transformer", {}, mute("cross", head=4), "head=4: choose from 1 to 3"),
        ("transformer", {}, mute("alignment"), "this model has no such attention"),
        ("transformer", {"sublayers": ["self", "ff"]}, mute("cross"), "this model has no such attention"),
        ("transformer", {"residual": []}, no_residual(), "was trained without this residual connection"),
        ("transformer", {}, skip("encoder", "cross"), "no such sublayer"),
        ("transformer", {}, weights("cross", 1, [0.5, 0.4]), "their sum must be 1"),
        ("birnn", {}, mute("alignment"), "no heads"),
        ("birnn", {"score": "none"}, scale("alignment", 2.0), "this model has no such attention"),
        ("birnn", {}, no_residual(), "no such sublayer"),
        ("birnn", {}, unmask("future"), "no such mask"),
    ],
)
def test_what_cannot_have_an_effect_is_refused(name: str, changes: Any, intervention: Any, message: str) -> None:
    model = small(name, **changes)
    with pytest.raises(InputError, match=message), intervene(model, [intervention]):
        pass
    assert "encode" not in vars(model) and "decode" not in vars(model)
