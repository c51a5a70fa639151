"""The attention of one model over one sentence and its translation.

Shapes: L layers, H heads, S source tokens, T target tokens, both with their end symbol.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from entente.attention.record import NAME_OF_KIND, record
from entente.data.files import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Search, translate
from entente.errors import InputError
from entente.models import Seq2Seq


class Attention(NamedTuple):
    """What every head looked at while the model read one sentence pair.

    weights, by kind: of a Transformer "encoder" (L, H, S, S), "decoder" (L, H, T, T) and "cross" (L, H, T, S); of a BiRNN
    "alignment" (1, 1, T, S). Except in "encoder", row t is the step that produces `target[t]`, having read `read[: t + 1]`.
    Each row sums to 1, unless the model is an ablation of that.
    """

    weights: dict[str, Tensor]
    source: list[str]  # S pieces
    target: list[str]  # T pieces
    read: list[str]  # T pieces: <s>, then `target` without its </s>


def attend(model: Seq2Seq, vocabulary: Vocabulary, src: Sequence[int], tgt: Sequence[int]) -> Attention:
    """src ends with EOS; tgt has neither BOS nor EOS, see `read_sentence`. The model has attention, see `has_attention`."""
    weights = {NAME_OF_KIND[map.kind]: map.weights for map in record(model, vocabulary, src, tgt)}
    target, read = vocabulary.tgt.pieces([*tgt, EOS]), vocabulary.tgt.pieces([BOS, *tgt])
    return Attention(weights, vocabulary.src.pieces(src), target, read)


def read_sentence(
    model: Seq2Seq, vocabulary: Vocabulary, source: str, target: str | None, search: Search
) -> tuple[list[int], list[int]]:
    """Ids of the source, with EOS, and of the target or, if that is None, the model's own translation, without BOS and EOS.
    InputError if the source is empty or one is too long."""
    source = clean(source)
    if not source:
        raise InputError("sentence is empty: give one as sentence='...'")
    vocabulary.src.refuse_too_long(source, "sentence")
    [src] = vocabulary.encode_src([source])
    if target is None:
        return src, translate(model, vocabulary, [source], search)[0][0].tokens
    vocabulary.tgt.refuse_too_long(clean(target), "target")
    return src, vocabulary.tgt.encode(clean(target))
