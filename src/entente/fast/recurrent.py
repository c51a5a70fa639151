"""Implements the loops of the BiRNN efficiently: each step does as little work as possible.

Everything that does not depend on the previous step is computed outside the loop. On a CPU, the encoder computes one step of
both directions as one product, and its backward pass takes time linear in the sentence length, where torch's own takes
quadratic time. On other devices, torch's network (on GPUs, cuDNN) is faster.

Shapes: B batch, S source length, T target length, E embedding width, D state width, R number of encoder directions, M = R D
width of the encoder's output, G gates of a cell: 3 in a GRU, 4 in an LSTM.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente.models.birnn import BiRNN, BiRNNState, Recurrent

STEP_DEVICES = {"cpu"}  # device types on which a loop of our own encodes faster than torch's network


def gru_step(input_gates: Tensor, hidden_gates: Tensor, state: Recurrent) -> Recurrent:
    """Returns the next state of torch's GRUCell, given the products (..., 3 D) of its weights with the input and the state."""
    (hidden,) = state
    input_r, input_z, input_n = input_gates.chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = hidden_gates.chunk(3, dim=-1)
    reset = torch.sigmoid(input_r + hidden_r)
    update = torch.sigmoid(input_z + hidden_z)
    return (torch.lerp(torch.tanh(input_n + reset * hidden_n), hidden, update),)


def lstm_step(input_gates: Tensor, hidden_gates: Tensor, state: Recurrent) -> Recurrent:
    """Returns the next state of torch's LSTMCell, given the products (..., 4 D) of its weights with the input and the state."""
    hidden, cell = state
    let_in, forget, new, out = (input_gates + hidden_gates).chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(let_in) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cell), cell


def read(model: BiRNN, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Implements BiRNN.read: returns outputs (B, S, M) and last states (R, B, D) for embedded (B, S, E) and mask (B, S)."""
    if embedded.device.type not in STEP_DEVICES:
        return BiRNN.read(model, embedded, mask)
    encoder = model.encoder
    w_ih, w_hh, b_ih, b_hh = zip(*encoder.all_weights, strict=True)  # R tensors each
    gates = [F.linear(embedded, w, b) for w, b in zip(w_ih, b_ih, strict=True)]  # R x (B, S, G D)
    masks = [mask.unsqueeze(-1) for _ in gates]  # R x (B, S, 1)
    if encoder.bidirectional:  # the backward direction starts at the end
        gates[1], masks[1] = gates[1].flip(1), masks[1].flip(1)
    w_hidden, b_hidden = torch.stack(w_hh).transpose(1, 2), torch.stack(b_hh).unsqueeze(1)  # (R, D, G D), (R, 1, G D)
    zeros = gates[0].new_zeros(len(gates), len(embedded), encoder.hidden_size)
    step = gru_step if isinstance(encoder, nn.GRU) else lstm_step
    state: Recurrent = (zeros,) if step is gru_step else (zeros, zeros)
    outputs = []
    for input_gates, real in zip(torch.stack(gates).unbind(2), torch.stack(masks).unbind(2), strict=True):
        new = step(input_gates, torch.baddbmm(b_hidden, state[0], w_hidden), state)
        state = tuple(torch.where(real, a, b) for a, b in zip(new, state, strict=True))  # padding leaves the state unchanged
        outputs.append(state[0])
    states = torch.stack(outputs, dim=2)  # (R, B, S, D), each direction in its own reading order
    in_order = [states[0], states[1].flip(1)] if encoder.bidirectional else [states[0]]
    return torch.cat(in_order, dim=-1) * mask.unsqueeze(-1), state[0]


def write(model: BiRNN, embedded: Tensor, state: BiRNNState) -> tuple[Tensor, Tensor, Recurrent]:
    """Implements BiRNN.write: returns states (B, T, D), contexts (B, T, M) and the last state, for embedded (B, T, E)."""
    kv, mask = state.source
    cell = model.cell
    step = gru_step if isinstance(cell, nn.GRUCell) else lstm_step
    weight_embedded, weight_context = cell.weight_ih.split([embedded.size(-1), kv.value.size(-1)], dim=1)
    gates = F.linear(embedded, weight_embedded, cell.bias_ih)  # (B, T, G D)
    recurrent, hiddens, contexts = state.written, [], []
    for input_gates in gates.unbind(1):
        query = recurrent[0].unflatten(0, (len(kv.value), -1))
        context = model.attention(query, kv, mask).flatten(0, 1)  # (B, M)
        input_gates = input_gates + F.linear(context, weight_context)
        recurrent = step(input_gates, F.linear(recurrent[0], cell.weight_hh, cell.bias_hh), recurrent)
        recurrent = (model.state(recurrent[0]), *recurrent[1:])
        hiddens.append(recurrent[0])
        contexts.append(context)
    return torch.stack(hiddens, 1), torch.stack(contexts, 1), recurrent
