"""The measurements that explain failures have the values of their definitions."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import LENGTHS, PAD, small
from entente.attention.diagnose import SOURCES, diagnose, gradient_norms
from numerics import T, logits


def test_the_diagnosis_has_the_numbers_of_its_definitions(src: Tensor, tgt: Tensor) -> None:
    tgt[1:, 4:] = PAD
    model: Any = small("transformer", spread=0.3)
    calls: dict[str, Any] = {}
    for path in ("residual.cross", "cross_attention.weights"):

        def keep(_: nn.Module, inputs: Any, output: Any, path: str = path) -> None:
            calls.setdefault(path, (inputs, output))

        model.decoder[1].get_submodule(path).register_forward_hook(keep)
    values = diagnose(model, src, tgt)
    (x, update), after = calls["residual.cross"]
    scores, real = calls["cross_attention.weights"][0][0], tgt != PAD
    tokens = [(b, t) for b in range(5) for t in range(T) if real[b, t]]
    expected = {
        "update_ratio": [update[b, t].norm() / x[b, t].norm() for b, t in tokens],
        "update_cosine": [torch.cosine_similarity(x[b, t], update[b, t], dim=0) for b, t in tokens],
        "score_variance": [scores[b, h, t, :n].var(correction=0) for b, t in tokens for h in range(3) if (n := LENGTHS[b]) > 1],
        "position_cosine": [
            torch.stack([torch.cosine_similarity(after[b, i], after[b, j], dim=0) for i in ts for j in ts if i != j]).mean()
            for b in range(5)
            for ts in [[t for c, t in tokens if c == b]]
        ],
    }
    for aspect, numbers in expected.items():
        assert values[f"{aspect}/decoder 2 cross"] == pytest.approx(float(torch.stack(numbers).mean())), aspect
    p, q = (logits(model, text[:SOURCES], tgt[:SOURCES]).softmax(-1) for text in (src, src[:SOURCES].roll(1, 0)))
    assert values["source_effect/output"] == pytest.approx(float((p - q).detach().clamp(min=0).sum(-1)[real[:SOURCES]].mean()))
    logits(model, src, tgt).square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in model.decoder[1].parameters()])
    assert gradient_norms(model)["decoder 2"] == pytest.approx(float(flat.norm()))
