"""BPE dropout (Provilkov et al. 2020): splits words into pieces at random, so that a model sees several splits of each word.

To save time, a word is split at random 32 times when it first occurs, and each occurrence uses one of them at random.
SentencePiece can sample pieces too, but not reproducibly: whatever the seed, its random numbers differ between processes."""

import random
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
import sentencepiece

SPLITS = 32  # number of random splits of each word
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
        self._starts = [piece.startswith(WORD_START) for piece in self._pieces]
        self._splits: dict[tuple[int, ...], list[tuple[int, ...]]] = {}  # random splits of each word, keyed by its usual split

    def sample(self, texts: Sequence[Sequence[int]], seed: int) -> list[list[int]]:
        """Takes the piece ids of texts as split without dropout, and returns the piece ids of random splits. The same arguments
        give the same result."""
        generator = np.random.default_rng(seed)
        sampled = []
        for ids in texts:
            starts = [i for i, piece in enumerate(ids) if i and self._starts[piece]]
            words = [tuple(ids[start:end]) for start, end in pairwise([0, *starts, len(ids)])]
            chosen = generator.integers(SPLITS, size=len(words)).tolist()
            sampled.append([*chain.from_iterable(self._splits_of(word)[n] for word, n in zip(words, chosen, strict=True))])
        return sampled

    def _splits_of(self, word: tuple[int, ...]) -> list[tuple[int, ...]]:
        if word not in self._splits:
            text = "".join(self._pieces[i] for i in word)
            if all(self._pieces[i] in self._ids for i in word) and self._ids.keys() >= set(text):
                generator = random.Random(f"{self.dropout} {text}")
                known: dict[tuple[int, ...], tuple[int, ...]] = {}  # so that equal splits are stored once
                drawn = (self._split(text, generator) for _ in range(SPLITS))
                self._splits[word] = [known.setdefault(split, split) for split in drawn]
            else:  # a rare character falls back to bytes, which cannot be sampled, so the word keeps its usual split
                self._splits[word] = [word] * SPLITS
        return self._splits[word]

    def _split(self, text: str, generator: random.Random) -> tuple[int, ...]:
        pieces = [*text]
        while merges := [
            (self._rank[both], i)
            for i, both in enumerate(map("".join, pairwise(pieces)))
            if both in self._rank and generator.random() >= self.dropout
        ]:
            _, i = min(merges)
            pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
        return tuple(self._ids[piece] for piece in pieces)
