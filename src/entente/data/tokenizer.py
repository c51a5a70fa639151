"""SentencePiece tokenizers (Kudo & Richardson 2018), which turn text into piece ids and back without loss.

`decode(encode(x)) == x` for any line of text without the piece marker U+2581. Text is converted to NFC when it is read
(`text.clean`), not here. Only a `plain` tokenizer changes text: it encodes typographic punctuation as people type it.
"""

import io
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece
import torch
from torch import Tensor

from entente.console import show_share
from entente.data.pairs import BLOCK
from entente.data.text import MARK_SPACES, SEPARATORS, as_typed, count_words, sources_of
from entente.errors import InputError
from entente.files import build_once, name_of
from entente.settings import TokenizerSettings

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
SAMPLE = 1_000_000  # maximum number of training sentences, all held in memory; larger corpora are sampled evenly
MAX_PIECES = 1024  # limit for a sentence to translate or score: attention takes memory quadratic in the length

OPTIONS: dict[str, Any] = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    "character_coverage": 0.9999,  # the rarest characters fall back to bytes
    "hard_vocab_limit": False,  # the size is an upper limit: a small corpus has fewer pieces
    "max_sentence_length": 1 << 30,  # in bytes; as large as possible, since the trainer silently skips longer lines
    "num_threads": 1,  # the sums in unigram training depend on the number of threads
    "minloglevel": 2,
    "pad_id": PAD,
    "unk_id": UNK,
    "bos_id": BOS,
    "eos_id": EOS,
}
BYTES = 256
SURROGATE = re.compile("[\ud800-\udfff]")  # how Python reads bytes that are not UTF-8
# Characters that the trainer rejects in a line, or uses itself (U+2581 marks a space, U+2585 an unknown, tab ends a piece).
# In training they become spaces. In `encode` they fall back to bytes, unless they are pieces.
RESERVED = re.compile("[\0\t\n\r\u2581\u2585]")

if TYPE_CHECKING:
    from datasets import Dataset  # importing it takes half a second, and translation does not need it


class Tokenizer:
    """A tokenizer for one or both languages. model: a serialised SentencePiece model. plain: encodes text as people type it."""

    def __init__(self, model: bytes, plain: bool = False) -> None:
        self.model, self.plain = model, plain
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.load_from_serialized_proto(model)

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, type: str = "bpe", tags: Sequence[str] = ()) -> "Tokenizer":
        """Returns a tokenizer of `vocab_size` pieces, or fewer if there is little text. The same lines give the same pieces.
        tags: texts that are always one piece."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(RESERVED.sub(" ", line) for line in lines),
                model_writer=model,
                model_type=type,
                # With a smaller size, the trainer fails before it counts the characters, and our error needs this count.
                vocab_size=max(vocab_size, len(SPECIAL) + BYTES),
                user_defined_symbols=[*tags],
                **OPTIONS,
            )
        except RuntimeError as error:
            if not (smallest := re.search(r"required_chars\. \d+ vs (\d+)", str(error))):
                raise
            raise InputError(
                f"data.tokenizer.vocab_size={vocab_size} is too small: this corpus needs at least {smallest[1]} "
                f"({len(SPECIAL)} special pieces, {BYTES} bytes and its characters)"
            ) from None
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Returns the piece ids of a text, without BOS and EOS."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode([as_typed(text) if self.plain else text for text in texts])

    def place(self, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Converts spans [start, end) in a text to spans in its decoded pieces, which lack some spaces if `plain`."""
        lost = [i for match in MARK_SPACES.finditer(text) for i in range(*match.span())] if self.plain else []
        return [(start - bisect_left(lost, start), end - bisect_left(lost, end)) for start, end in spans]

    def refuse_too_long(self, line: str, where: str, is_plain: bool = False) -> None:
        """Raises InputError if one of the `sources_of` a line has more than MAX_PIECES pieces, or was not typed in UTF-8."""
        for sentence in sources_of(line, is_plain):
            if SURROGATE.search(sentence):
                raise InputError(f"{where}: not UTF-8 text")
            if (pieces := len(self.encode(sentence))) > MAX_PIECES:
                words = f"{(n := count_words(sentence)):,} word{'s' * (n != 1)} has {pieces:,} pieces"
                raise InputError(f"{where}: a sentence of {words}, more than the {MAX_PIECES:,} allowed; split it")

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the pieces, ignoring special ids."""
        return self._processor.decode([i for i in ids if i >= len(SPECIAL)])

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text of the pieces, like `decode`, and the span [start, end) of each piece in that text. A character that
        falls back to bytes belongs to the piece of its last byte. Special ids have empty spans."""
        decoded = self._processor.decode([i for i in ids if i >= len(SPECIAL)], return_type="offset_mapping")
        ends, bounds = (end for _, end in decoded["offsets"]), [0]
        for i in ids:
            bounds.append(bounds[-1] if i < len(SPECIAL) else next(ends))
        return decoded["text"], list(pairwise(bounds))

    def scores(self, ids: Sequence[int]) -> list[float]:
        """Returns the pieces' scores: in a unigram model their log-probabilities, in BPE minus the order of the merges."""
        return [self._processor.get_score(i) for i in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the pieces as labels: "▁" marks the start of a word; special pieces look like <s>, bytes like <0x41>."""
        return [self._processor.id_to_piece(i) for i in ids]


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizers of both sides. If `joint`, both have the same pieces. Only `src` may be plain."""

    src: Tokenizer
    tgt: Tokenizer
    joint: bool

    @classmethod
    def train(
        cls, train: "Dataset", settings: TokenizerSettings, cache_dir: Path | None = None, tags: Sequence[str] = ()
    ) -> "Vocabulary":
        """Returns a vocabulary trained on the training pairs only, or loads it from `cache_dir`/tokenizer if stored there."""
        groups: list[tuple[str, ...]] = [("src", "tgt")] if settings.joint else [("src",), ("tgt",)]
        tokenizers = [_load_or_train(train, sides, settings, cache_dir, tags if "src" in sides else ()) for sides in groups]
        src, tgt = tokenizers[0], tokenizers[-1]
        return cls(Tokenizer(src.model, plain=True) if settings.plain_source else src, tgt, settings.joint)

    def encode_src(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids that an encoder reads: pieces and EOS, so that no source is empty."""
        return [[*ids, EOS] for ids in self.src.encode_all(texts)]

    def encode_tgt(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids that a decoder reads and predicts: BOS, pieces, EOS."""
        return [[BOS, *ids, EOS] for ids in self.tgt.encode_all(texts)]

    def text(self, ids: Sequence[int]) -> str:
        """Returns the translation that the decoder produced as `ids`: one line without tabs."""
        return SEPARATORS.sub(" ", self.tgt.decode(ids))

    def state(self) -> dict[str, Tensor | bool]:
        """Returns the serialised models as uint8 tensors, for a checkpoint that loads with `weights_only=True`."""
        src, tgt = (torch.frombuffer(bytearray(side.model), dtype=torch.uint8) for side in (self.src, self.tgt))
        return {"src": src, "tgt": src if self.joint else tgt, "joint": self.joint, "plain_source": self.src.plain}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Vocabulary":
        src, tgt = (Tokenizer(state[side].numpy().tobytes()) for side in ("src", "tgt"))
        plain, joint = state.get("plain_source", False), state["joint"]
        return cls(Tokenizer(src.model, plain=True) if plain else src, src if joint else tgt, joint)


def texts(pairs: "Dataset", *sides: str) -> Iterator[list[str]]:
    """Yields the sentences of each given side in turn, in blocks, and shows progress."""
    for side in sides:
        for block in show_share(pairs.with_format("arrow").iter(BLOCK), -(-len(pairs) // BLOCK), f"the {side} sentences"):
            yield block[side].to_pylist()


def _load_or_train(
    pairs: "Dataset", sides: Sequence[str], settings: TokenizerSettings, cache_dir: Path | None, tags: Sequence[str]
) -> Tokenizer:
    """Returns the tokenizer for `sides`, from the cache if possible."""
    step = -(-len(pairs) * len(sides) // SAMPLE)  # rounded up
    lines = islice(chain.from_iterable(texts(pairs, *sides)), 0, None, step)  # nothing is read before it is needed
    train = partial(Tokenizer.train, lines, settings.vocab_size, settings.type, tags)
    if not cache_dir:
        return train()
    options = sorted(OPTIONS.items()), RESERVED.pattern, SAMPLE, sentencepiece.__version__
    name = name_of(pairs._fingerprint, sides, settings.vocab_size, settings.type, options, *filter(None, [tags]))
    path = cache_dir / "tokenizer" / f"{name}.model"
    build_once(path, lambda file: file.write(train().model))
    return Tokenizer(path.read_bytes())
