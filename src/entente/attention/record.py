"""Attention maps: the weights that the model used, of all layers and heads, over one teacher-forced pass.

They are the outputs of the modules that turn scores into weights, in evaluation mode and before dropout, see `capture`.

Shapes: N sentences, S source length, T target length (both with their end symbol), L layers, H heads.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from entente.attention.capture import Call, capture
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.models import Seq2Seq
from entente.models.attention import AttentionWeights
from entente.models.seq2seq import evaluating, pad

ENCODER, DECODER, CROSS, ALIGNMENT = (
    "encoder self-attention",
    "decoder masked self-attention",
    "cross-attention",
    "alignment",
)
TO_SOURCE = (CROSS, ALIGNMENT)
KIND_NAMES = {"encoder": ENCODER, "decoder": DECODER, "cross": CROSS, "alignment": ALIGNMENT}  # as commands name them
NAME_OF_KIND = {kind: name for name, kind in KIND_NAMES.items()}
Side = Literal["source", "produced", "read"]
SMALLEST = 1e-12  # keeps a division by the sum of an empty row finite
KINDS = {  # the path of an attention's weights, numbers left out -> its kind
    "encoder.self_attention.weights": ENCODER,
    "decoder.self_attention.weights": DECODER,
    "decoder.cross_attention.weights": CROSS,
    "attention.weights": ALIGNMENT,
}


class AttentionMap(NamedTuple):
    """One kind of attention of one sentence, padding cut.

    A row is a query. In the decoder it is the step that *produces* the row's piece: y1 .. yn, </s>. Columns are what the row
    looks at: in the decoder's self-attention the pieces *read* so far, <s>, y1 .. yn; elsewhere the source's, </s> included.
    """

    kind: str
    weights: Tensor  # (L, H, rows, columns), float32 on the CPU
    rows: list[str]
    columns: list[str]
    unit: str = "piece"  # what rows and columns are: pieces or words
    as_decoded: bool = True  # False: rows depend on target pieces behind them, which decoding has not yet written
    allowed: Tensor | None = None  # (rows, columns), True where a row could look, whether or not it did; None: everywhere


def has_attention(model: nn.Module) -> bool:
    """Whether a model has attention. A BiRNN that encodes the source as one vector (score: none) has not."""
    return any(isinstance(module, AttentionWeights) for module in model.modules())


def record(model: Seq2Seq, vocabulary: Vocabulary, src: Sequence[int], tgt: Sequence[int]) -> list[AttentionMap]:
    """The maps of one sentence, one per kind. src ends with EOS; tgt has neither BOS nor EOS."""
    maps = record_batch(model, vocabulary, [src], [tgt])[0]
    causal = is_causal(model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]))
    return [map._replace(as_decoded=causal or map.kind == ENCODER) for map in maps]


def record_batch(
    model: Seq2Seq, vocabulary: Vocabulary, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]
) -> list[list[AttentionMap]]:
    """The maps of each sentence, recorded in one pass. May be called at any time, in a training step too: modes, gradients and
    random numbers stay as they were. RuntimeError if an attention was not seen, or if there is none."""
    sources, targets = pad(src, model.pad_id), pad([[BOS, *ids] for ids in tgt], model.pad_id)
    calls = capture(model, sources, targets, lambda path, module: isinstance(module, AttentionWeights))
    if not calls:
        raise RuntimeError("no attention was recorded: the model has no AttentionWeights")
    sides: list[dict[Side, list[str]]] = [
        {
            "source": vocabulary.src.pieces(s),
            "produced": vocabulary.tgt.pieces([*t, EOS]),
            "read": vocabulary.tgt.pieces([BOS, *t]),
        }
        for s, t in zip(src, tgt, strict=True)
    ]
    maps: list[list[AttentionMap]] = [[] for _ in sides]
    for kind, (weights, allowed) in _by_kind(calls).items():
        row_side, column_side = sides_of(kind)
        size = tuple(max(len(labels[side]) for labels in sides) for side in (row_side, column_side))
        if weights.shape[-2:] != size:
            raise RuntimeError(f"{kind}: weights of {tuple(weights.shape[-2:])} where {row_side} x {column_side} are {size}")
        for n, labels in enumerate(sides):
            rows, columns = labels[row_side], labels[column_side]
            own = (..., slice(len(rows)), slice(len(columns)))
            maps[n].append(AttentionMap(kind, weights[n][own].clone(), rows, columns, allowed=allowed[n][own].clone()))
    return maps


def is_causal(model: Seq2Seq, src: Tensor, tgt: Tensor) -> bool:
    """src (1, S), tgt (1, T) as read -> whether the decoder's output for the first half of tgt is the same without the rest."""
    src, tgt = src.to(model.output.weight.device), tgt.to(model.output.weight.device)
    half = max(1, tgt.size(1) // 2)
    with evaluating(model), torch.no_grad(), torch.autocast(src.device.type, enabled=False):
        state = model.encode(src)
        whole, part = model.decode(tgt, state)[0][:, :half], model.decode(tgt[:, :half], state)[0]
    return torch.allclose(whole, part, rtol=1e-3, atol=1e-4)


def entropy_share(weights: Tensor, allowed: Tensor) -> Tensor:
    """The entropy of each row (..., S) as a share of the entropy of a uniform row over its allowed keys; 0 where there are
    fewer than two. Rows that do not sum to 1, as those of some ablations, are scaled first."""
    p = weights / weights.sum(-1, keepdim=True).clamp(min=SMALLEST)
    return -torch.xlogy(p, p).sum(-1) / allowed.sum(-1).clamp(min=2).log()


def weights_of(calls: Sequence[Call]) -> tuple[Tensor, Tensor]:
    """The weights (..., T, S) that an AttentionWeights gave over all its calls, in order, and where each row could look."""
    reachable = [call.module.reachable(*call.inputs) for call in calls]
    return torch.cat([call.output for call in calls], dim=-2), torch.cat(reachable, dim=-2)


def _by_kind(calls: dict[str, list[Call]]) -> dict[str, tuple[Tensor, Tensor]]:
    """Kind -> weights (N, L, H, T, S), and where any layer or head could look (N, T, S)."""
    layers: defaultdict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for path, seen in calls.items():
        weights, allowed = (part.cpu() for part in weights_of(seen))
        if weights.dim() == 3:  # the recurrent model's one head has no dimension of its own
            weights, allowed = weights.unsqueeze(1), allowed.unsqueeze(1)
        layers[kind_of(path)].append((weights.float(), allowed))
    stacked = {kind: [torch.stack(parts, dim=1) for parts in zip(*stack, strict=True)] for kind, stack in layers.items()}
    return {kind: (weights, allowed.flatten(1, 2).any(1)) for kind, (weights, allowed) in stacked.items()}


def kind_of(path: str) -> str:
    """The kind of the weights at a module path, as "encoder.0.self_attention.weights"; the words of the path if it is not in
    KINDS."""
    name = re.sub(r"\.\d+", "", path)
    return KINDS.get(name, re.sub(r"[._]+", " ", name.removesuffix(".weights")))


def sides_of(kind: str) -> tuple[Side, Side]:
    """What the rows and the columns of a kind are."""
    if "encoder" in kind:
        return "source", "source"
    return "produced", "read" if "self" in kind else "source"
