"""The LightningDataModule: a corpus through a vocabulary, in batches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast, get_args

import lightning as L
import numpy as np
import torch
from annotated_types import Ge, doc

from entente.data.batches import Batch, EvaluationBatches, Together, TrainingBatches, collate, fitting
from entente.data.corpora import Corpus
from entente.data.tokenizer import BOS, LONGEST, Vocabulary, too_long
from entente.data.tokens import Rows, tokenise
from entente.errors import InputError

AtLeastOne = Annotated[int, Ge(1)]


def split_of(name: str) -> str:
    """The split of "test@alone" is "test"."""
    return name.partition("@")[0]


def together_of(name: str) -> Together:
    together = name.partition("@")[2] or "alike"
    if together not in get_args(Together):
        raise InputError(f"split={name}: after the @ stands one of {', '.join(get_args(Together))}")
    return cast(Together, together)


class TranslationData(L.LightningDataModule):
    """`overfit` makes every split the pairs of one training batch, which a sound model learns by heart. `cache_dir` keeps the
    token ids for the next time; None: they are made each time, in memory."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        max_tokens: Annotated[AtLeastOne, doc("padded positions of a batch, of its longer side")] = 4096,
        seed: int = 1,
        eval_max_tokens: Annotated[AtLeastOne, doc("the same, of an evaluation batch")] = 4096,
        overfit: bool = False,
        cache_dir: Path | None = None,
    ) -> None:
        super().__init__()
        self.corpus, self.vocabulary = corpus, vocabulary
        self.test_splits = list(corpus.tests)  # what test_dataloader gives, in this order
        self.cache_dir = cache_dir
        self.max_tokens, self.eval_max_tokens, self.seed = max_tokens, eval_max_tokens, seed
        if overfit:
            one = corpus.train.select(self.train_dataloader().epoch(0)[0])
            self.corpus = replace(corpus, train=one, valid=one, tests=dict.fromkeys(corpus.tests, one), gold={})

    def check(self, decoded: Sequence[str]) -> None:
        """What can be known before anything is written: that there is a pair to train on, and that no sentence of the splits
        that are decoded is too long for it."""
        src, tgt = self.ids("train")
        fitting(np.maximum(src.lengths, tgt.lengths), self.max_tokens)
        self.check_lengths(decoded)

    def check_lengths(self, splits: Sequence[str]) -> None:
        for split in splits:
            for side, rows, marks in zip(("src", "tgt"), self.ids(split), (1, 2), strict=True):  # EOS; BOS and EOS
                row, pieces = int(rows.lengths.argmax()), int(rows.lengths.max()) - marks
                if pieces > LONGEST:
                    sentence = (self.sources(split) if side == "src" else self.references(split))[row]
                    raise InputError(f"{split}, {side}, '{sentence[:30]}...': {too_long(sentence, pieces)}")

    def sources(self, split: str) -> list[str]:
        return list(self.corpus.split(split_of(split))["src"])

    def references(self, split: str) -> list[str]:
        return list(self.corpus.split(split_of(split))["tgt"])

    def ids(self, split: str) -> tuple[Rows, Rows]:
        """Token ids of both sides of a split, with their BOS and EOS."""
        return tokenise(self.corpus.split(split_of(split)), self.vocabulary, self.cache_dir)

    def train_dataloader(self) -> TrainingBatches:
        accumulate = self.trainer.accumulate_grad_batches if self.trainer else 1
        return TrainingBatches(*self.ids("train"), self.max_tokens, self.seed, accumulate)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """To a GPU from memory that it reads by itself, so that nobody waits."""
        cuda = device.type == "cuda"
        src, tgt, index = ((t.pin_memory() if cuda else t).to(device, non_blocking=cuda) for t in batch[:3])
        return batch._replace(src=src, tgt=tgt, index=index)

    def val_dataloader(self) -> EvaluationBatches:
        return self.evaluation_batches("valid")

    def test_dataloader(self) -> list[EvaluationBatches]:
        return [self.evaluation_batches(split) for split in self.test_splits]

    def evaluation_batches(self, split: str) -> EvaluationBatches:
        """Each pair of the split once; the batches' `index` are rows of `sources(split)` and `references(split)`. A split may
        say how its sentences come together: test@alone, test@mixed."""
        return EvaluationBatches(*self.ids(split), self.eval_max_tokens, together_of(split))

    def sample(self, n: int) -> Batch:
        """The first n pairs of validation, of whatever lengths."""
        src, tgt = self.ids("valid")
        rows = range(min(n, len(src)))
        return collate([src[i] for i in rows], [tgt[i] for i in rows], rows)

    def unigram_nll(self) -> float:
        """Nats per target token of validation, end symbols counted, for one who knows how often each piece occurs in training
        (each counted once more) and nothing else."""
        size = len(self.vocabulary.tgt)
        train, valid = (np.bincount(self.ids(split)[1].values(), minlength=size) for split in ("train", "valid"))
        train[BOS] = valid[BOS] = 0
        return float(-(valid * np.log((train + 1) / (train + 1).sum())).sum() / valid.sum())
