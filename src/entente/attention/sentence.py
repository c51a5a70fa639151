"""The attention of one model over one sentence and its translation.

Shapes: L layers, H heads, S source tokens, T target tokens, both with their end symbol.
"""

from typing import NamedTuple

from torch import Tensor

from entente.attention.record import NAME_OF_KIND, has_attention, record
from entente.data.files import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Search, translate
from entente.errors import InputError
from entente.models import Seq2Seq


class SentenceAttention(NamedTuple):
    """weights: by kind. Of a Transformer "encoder" (L, H, S, S), "decoder" (L, H, T, T) and "cross" (L, H, T, S); of a BiRNN
    "alignment" (1, 1, T, S). A kind that the model does not have is left out. A row of the decoder is the step that produces a
    token; columns are source tokens, in "decoder" the tokens read so far."""

    weights: dict[str, Tensor]
    source: list[str]  # S, </s> at the end
    read: list[str]  # T, <s> at the start
    produced: list[str]  # T, </s> at the end


def attend(
    model: Seq2Seq, vocabulary: Vocabulary, source: str, target: str | None = None, search: Search | None = None
) -> SentenceAttention:
    """The attention of a model that reads this target or, if None, its own translation, by default the greedy one."""
    src, tgt = read_sentence(model, vocabulary, source, target, search)
    maps = record(model, vocabulary, src, tgt) if has_attention(model) else []
    return SentenceAttention(
        {NAME_OF_KIND[map.kind]: map.weights for map in maps},
        vocabulary.src.pieces(src),
        vocabulary.tgt.pieces([BOS, *tgt]),
        vocabulary.tgt.pieces([*tgt, EOS]),
    )


def read_sentence(
    model: Seq2Seq, vocabulary: Vocabulary, source: str, target: str | None = None, search: Search | None = None
) -> tuple[list[int], list[int]]:
    """Ids of the source, with EOS, and of the target or the model's own translation, without BOS and EOS."""
    source = clean(source)
    if not source:
        raise InputError("sentence is empty: give one as sentence='...'")
    vocabulary.src.refuse_too_long(source, "sentence")
    [src] = vocabulary.encode_src([source])
    if target is None:
        return src, translate(model, vocabulary, [source], search or Search(beam=1))[0][0].tokens
    vocabulary.tgt.refuse_too_long(clean(target), "target")
    return src, vocabulary.tgt.encode(clean(target))
