"""SentencePiece (Kudo & Richardson 2018): text to piece ids and back, without loss.

Identity normalisation, kept white space and byte fallback make `decode(encode(x)) == x` for any line of text, the piece
marker U+2581 aside. Text is brought to NFC at the door (`corpora.clean`), not here.
"""

import io
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import sentencepiece
import torch
from annotated_types import Interval, doc
from datasets import Dataset
from torch import Tensor

from entente.data.cache import cached
from entente.data.pairs import digest, texts
from entente.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
SAMPLE = 1_000_000  # sentences that pieces are learned from at most: the trainer holds them all in memory
LONGEST = 1024  # pieces of a sentence that is translated or scored: attention takes memory by their square

Type = Literal["bpe", "unigram"]
TYPES: tuple[Type, ...] = get_args(Type)
Size = Annotated[int, Interval(ge=1, le=1_000_000)]

OPTIONS: dict[str, Any] = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    "character_coverage": 0.9999,  # a corpus with a few foreign characters spells those in bytes
    "hard_vocab_limit": False,  # the size is an upper limit: a small corpus has fewer pieces
    "max_sentence_length": 1 << 30,  # in bytes, the most there is: longer lines would be skipped in silence
    "num_threads": 1,  # the sums of unigram training depend on the split into threads
    "minloglevel": 2,
    "pad_id": PAD,
    "unk_id": UNK,
    "bos_id": BOS,
    "eos_id": EOS,
}
BYTES = 256
# What the trainer cannot take in a line, or uses itself (U+2581 marks a space, U+2585 an unknown, tab ends a piece).
# Their bytes encode them all the same.
RESERVED = re.compile("[\0\t\n\r\u2581\u2585]")

log = logging.getLogger("entente")


class Tokenizer:
    """One language's or two languages' pieces, held as the serialized SentencePiece model they come from."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.load_from_serialized_proto(model)
        except RuntimeError:
            raise InputError("the tokenizer is damaged: its bytes are no SentencePiece model") from None
        if tuple(self._processor.id_to_piece(i) for i in range(min(len(self), len(SPECIAL)))) != SPECIAL:
            raise InputError(f"the tokenizer is not one of ours: its first pieces are not {' '.join(SPECIAL)}")

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, type: Type = "bpe") -> "Tokenizer":
        """At most `vocab_size` pieces (fewer if the lines have no more), the same ones for the same lines."""
        if type not in TYPES:
            raise InputError(f"data.tokenizer.type={type}: choose one of {', '.join(TYPES)}")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(RESERVED.sub(" ", line) for line in lines),
                model_writer=model,
                model_type=type,
                # below this the trainer fails before it has counted the characters it must hold
                vocab_size=max(vocab_size, len(SPECIAL) + BYTES),
                **OPTIONS,
            )
        except RuntimeError as error:
            if smallest := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
                raise InputError(
                    f"data.tokenizer.vocab_size={vocab_size} is too small: this corpus needs at least {smallest[1]} "
                    f"({len(SPECIAL)} special pieces, {BYTES} bytes and its characters)"
                ) from None
            raise
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Piece ids, without BOS and EOS."""
        ids: list[int] = self._processor.encode(text)
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(list(texts))
        return ids

    def refuse_too_long(self, sentence: str, where: str) -> None:
        """An InputError where a sentence has more than LONGEST pieces."""
        if (pieces := len(self.encode(sentence))) > LONGEST:
            raise InputError(f"{where}: {too_long(sentence, pieces)}")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces; the special ids are nothing in it."""
        text: str = self._processor.decode([i for i in ids if i >= len(SPECIAL)])
        return text

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of the pieces, as `decode`, and the characters of it that each piece gives: first, and one behind the last.
        A space belongs to the piece that it begins; a special id has no character; of the bytes of one, the last has it."""
        proto = self._processor.decode([i for i in ids if i >= len(SPECIAL)], return_type="proto")
        encoded = proto.text.encode()
        ends = [len(encoded[: piece.end].decode()) for piece in proto.pieces]  # SentencePiece counts bytes
        places: list[tuple[int, int]] = []
        plain = iter(ends)
        end = 0
        for i in ids:
            begin, end = end, end if i < len(SPECIAL) else next(plain)
            places.append((begin, end))
        return proto.text, places

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Labels: pieces with their "▁" at a word's start, special ones as <s>, byte pieces as <0x41>."""
        return [self._processor.id_to_piece(i) for i in ids]


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizers of both sides; if `joint` they are one, which tied embeddings need."""

    src: Tokenizer
    tgt: Tokenizer
    joint: bool

    @classmethod
    def train(
        cls,
        corpus_train: Dataset,
        vocab_size: Annotated[Size, doc("pieces at most")] = 8000,
        type: Annotated[Type, doc("how pieces are learned")] = "bpe",
        joint: Annotated[bool, doc("one vocabulary for both sides, which tied embeddings need")] = True,
        cache_dir: Path | None = None,
    ) -> "Vocabulary":
        """Learns from the training pairs only, or takes from `cache_dir` (None: no cache) what the same lines gave before. Of
        more than SAMPLE sentences it learns from every second, every third, ..."""
        if joint:
            both = _cached(corpus_train, ["src", "tgt"], vocab_size, type, cache_dir)
            return cls(both, both, joint)
        src, tgt = (_cached(corpus_train, [side], vocab_size, type, cache_dir) for side in ("src", "tgt"))
        return cls(src, tgt, joint)

    def encode_src(self, texts: Sequence[str]) -> list[list[int]]:
        """What an encoder reads: pieces, EOS. So no source is ever empty."""
        return [[*ids, EOS] for ids in self.src.encode_all(texts)]

    def encode_tgt(self, texts: Sequence[str]) -> list[list[int]]:
        """What a decoder reads and predicts: BOS, pieces, EOS."""
        return [[BOS, *ids, EOS] for ids in self.tgt.encode_all(texts)]

    def state(self) -> dict[str, Tensor | bool]:
        """For a checkpoint that loads with `weights_only=True`: the models' bytes as uint8 tensors."""
        src = _tensor(self.src.model)
        return {"src": src, "tgt": src if self.joint else _tensor(self.tgt.model), "joint": self.joint}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Vocabulary":
        src = Tokenizer(_bytes(state["src"]))
        joint = bool(state["joint"])
        return cls(src, src if joint else Tokenizer(_bytes(state["tgt"])), joint)


def _cached(pairs: Dataset, sides: Sequence[str], vocab_size: int, type: Type, cache_dir: Path | None) -> Tokenizer:
    def learn() -> Tokenizer:
        step = -(-len(pairs) * len(sides) // SAMPLE)  # rounded up
        return Tokenizer.train(islice(chain.from_iterable(texts(pairs, *sides)), 0, None, step), vocab_size, type)

    if cache_dir is None:
        tokenizer = learn()
    else:
        options = (sentencepiece.__version__, vocab_size, type, sorted(OPTIONS.items()), RESERVED.pattern, SAMPLE)
        key = (options, digest(pairs, *sides))
        path = cached(cache_dir, key, ".model", lambda path: path.write_bytes(learn().model), "tokenizer")
        tokenizer = Tokenizer(path.read_bytes())
    if len(tokenizer) < vocab_size:
        log.warning("a vocabulary of %d pieces is more than this text fills: it has %d", vocab_size, len(tokenizer))
    return tokenizer


def too_long(sentence: str, pieces: int) -> str:
    """Of a sentence of so many pieces, more than LONGEST: why it is refused."""
    words = len(sentence.split())
    return f"{words:,} word{'s' * (words != 1)} are {pieces:,} pieces, more than the {LONGEST:,} a sentence may have; split it"


def _tensor(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
