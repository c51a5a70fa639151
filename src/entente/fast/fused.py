"""Attention in torch's fused kernel, in training on a GPU.

Elsewhere the steps stay separate: weights are recorded in evaluation, and on a CPU separate steps are faster at the lengths of
sentences.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from entente.models.attention import KV, MultiHeadAttention

STEP_BY_STEP = {"cpu"}  # types of devices on which the fused kernel is the slower one


def attend(layer: MultiHeadAttention, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
    """MultiHeadAttention.attend: query (B, H, T, K), keys and values (B, H, S, K) -> (B, H, T, K)."""
    if not layer.training or query.device.type in STEP_BY_STEP:
        return MultiHeadAttention.attend(layer, query, kv, mask)
    return scaled_dot_product_attention(query, kv.key, kv.value, mask, dropout_p=layer.dropout.p)


def is_standard(layer: MultiHeadAttention) -> bool:
    """Whether the layer is what its constructor makes of `d_model`, `n_heads` and `dropout` alone, with which the fused kernel
    computes the same. Any argument that leaves a trace in the layer, one added later too, makes it another layer."""
    with torch.device("meta"):  # shapes without memory
        standard = MultiHeadAttention(layer.out.out_features, layer.n_heads, layer.dropout.p)
    return _parts(layer) == _parts(standard)


def _parts(layer: nn.Module) -> list[Any]:
    """Every module in it: its name, its class, its attributes and its parameters' shapes."""
    own = vars(nn.Module()).keys() | {"attend", "forward"}  # torch's, and what `attach` replaces
    return [
        (
            name,
            type(module),
            {key: value for key, value in vars(module).items() if key not in own},
            {key: value.shape for key, value in module.named_parameters(recurse=False)},
        )
        for name, module in layer.named_modules()
    ]
