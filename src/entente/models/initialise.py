"""Initialises the parameters of a model."""

import hashlib

import torch
from torch import nn

from entente.models.attention import SlicedLinear

# The number of gates in each class. torch stacks the gates' matrices along dim 0, but `initialise` fills them one by one, as it
# does those of the heads of a SlicedLinear.
GATES = {nn.GRU: 3, nn.GRUCell: 3, nn.LSTM: 4, nn.LSTMCell: 4}
FORGET_GATE = 1  # index among an LSTM's gates: input, forget, cell, output


def generator_of(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def initialise(model: nn.Module, seed: int, embedding_std: float, forget_bias: float = 1.0) -> None:
    """Fills each parameter from its own generator, seeded by the SHA-256 of the seed and the parameter's name, so that removing
    a part of the model leaves all other initial values unchanged. Matrices are Xavier-uniform (Glorot & Bengio 2010), recurrent
    matrices orthogonal (Bahdanau et al. 2015, B.1), embeddings normal, and biases 0, except that the two biases of an LSTM's
    forget gate sum to `forget_bias`, usually 1 (Jozefowicz et al. 2015). Norms are left as they are. A tied matrix is seeded by
    its first name, as an embedding: with small embeddings, the initial predictions are nearly uniform."""
    owners = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        owner, generator = owners[path], generator_of(seed, name)
        if isinstance(owner, nn.LayerNorm | nn.RMSNorm) or parameter.is_meta:  # meta tensors have no values
            continue
        values = torch.empty(parameter.shape, dtype=torch.float32)  # on the CPU, so that every device gets the same values
        if leaf == "factor":
            nn.init.ones_(values)
        elif values.dim() < 2:
            nn.init.zeros_(values)
            if isinstance(owner, nn.LSTM | nn.LSTMCell) and leaf.startswith("bias_ih"):  # torch adds bias_hh, which stays 0
                nn.init.constant_(values.chunk(GATES[type(owner)])[FORGET_GATE], forget_bias)
        elif isinstance(owner, nn.Embedding):
            nn.init.normal_(values, std=embedding_std, generator=generator)  # even the padding row: a tied output trains it
        else:
            parts = owner.n_heads if isinstance(owner, SlicedLinear) else GATES.get(type(owner), 1)
            fill = nn.init.orthogonal_ if leaf.startswith("weight_hh") else nn.init.xavier_uniform_
            for matrix in values.unbind() if values.dim() == 3 else values.chunk(parts):  # 3-D: (H, K, K), bilinear
                fill(matrix, generator=generator)
        with torch.no_grad():
            parameter.copy_(values)
