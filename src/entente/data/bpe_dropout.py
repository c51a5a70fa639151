"""BPE dropout (Provilkov et al. 2020): splits words into pieces at random, so that a model sees several splits of each word.

To save time, a word has at most 32 random splits, and each occurrence uses one of them at random. SentencePiece can sample
pieces too, but not reproducibly: whatever the seed, its random numbers differ between processes."""

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise

import numpy as np
import sentencepiece

SPLITS = 32  # number of random splits of each word
REMEMBERED = 1 << 19  # number of splits kept in memory, of some 400 bytes each
WORD_START = "\u2581"  # marks the beginning of a word in a piece


class PieceSampler:
    """Splits texts into random pieces. Each step skips each possible merge with probability `dropout`, and makes the best of
    the remaining merges. The word is complete if no merge remains."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, dropout: float) -> None:
        self.dropout = dropout
        self._pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        special = (processor.is_unknown, processor.is_control, processor.is_byte, processor.is_unused)
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if not any(is_kind(i) for is_kind in special)}
        self._rank = {piece: -processor.get_score(i) for piece, i in self._ids.items()}  # merges of a lower rank come first
        # BOS and EOS count as words of their own.
        self._starts = [piece.startswith(WORD_START) or processor.is_control(i) for i, piece in enumerate(self._pieces)]
        self._split_of = lru_cache(REMEMBERED)(self._split)

    def sample(self, texts: Iterable[Sequence[int]], seed: Sequence[int]) -> Iterator[list[int]]:
        """Takes the piece ids of texts as split without dropout, and yields the piece ids of random splits. The same arguments
        give the same result."""
        generator = np.random.default_rng(seed)
        for ids in texts:
            starts = [i for i, piece in enumerate(ids) if i and self._starts[piece]]
            words = [tuple(ids[start:end]) for start, end in pairwise([0, *starts, len(ids)])]
            chosen = generator.integers(SPLITS, size=len(words)).tolist()
            yield [*chain.from_iterable(map(self._split_of, words, chosen))]

    def _split(self, word: tuple[int, ...], n: int) -> tuple[int, ...]:
        """Returns the n-th random split of a word. word: its usual split"""
        text = "".join(self._pieces[i] for i in word)
        if not (all(self._pieces[i] in self._ids for i in word) and self._ids.keys() >= set(text)):
            return word  # it contains a rare character, which falls back to bytes and cannot be sampled, or is BOS or EOS
        generator, pieces = random.Random(f"{self.dropout} {n} {text}"), [*text]
        while merges := [
            (self._rank[both], i)
            for i, both in enumerate(map("".join, pairwise(pieces)))
            if both in self._rank and generator.random() >= self.dropout
        ]:
            _, i = min(merges)
            pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
        return tuple(self._ids[piece] for piece in pieces)
