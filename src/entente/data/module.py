"""The LightningDataModule that encodes a corpus with a vocabulary and groups it into batches."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args

import lightning as L
import numpy as np
import sentencepiece
import torch
from annotated_types import Ge, Interval, doc
from datasets import Dataset, concatenate_datasets

from entente import distributed
from entente.console.log import Task, show_share
from entente.data.batches import (
    Batch,
    EvaluationBatches,
    EvaluationSplit,
    Grouping,
    Rows,
    TrainingBatches,
    collate,
    rows_within,
    split_of,
    to_device,
    write_rows,
)
from entente.data.corpora import AtLeastOne, Corpus
from entente.data.tokenizer import BOS, Tokenizer, Vocabulary, digest, texts
from entente.errors import InputError
from entente.files import cached, writable


class TranslationData(L.LightningDataModule):
    """The training and evaluation batches of a corpus. With `overfit`, every split consists of the pairs of one training batch,
    which a correct model can memorise. `limit_batches` is the `limit` of every EvaluationSplit. If `cache_dir` is given,
    the token ids of train are stored in files there and shared with other processes and later runs.

    With `both_directions`, train also has every pair with its sides swapped, after all others. A model then learns first to
    translate in both directions, and only later in its own (Ding, Wu & Tao 2021, "Improving neural machine translation by
    bidirectional training", section 2). This needs a joint vocabulary."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        max_tokens: Annotated[
            AtLeastOne, doc("maximum number of positions, including padding, on either side of a batch")
        ] = 4096,
        seed: int = 1,
        eval_max_tokens: Annotated[AtLeastOne, doc("like max_tokens, but for evaluation batches")] = 4096,
        overfit: bool = False,
        limit_batches: int | float = 1.0,
        bpe_dropout: Annotated[
            float,
            Interval(ge=0, lt=1),
            doc(
                "probability of skipping a merge in training; needs data.tokenizer.type=bpe, and an epoch's token ids in memory"
            ),
        ] = 0.0,
        both_directions: Annotated[
            int,
            Ge(0),
            doc("the first epochs that also contain each pair with its sides swapped; needs data.tokenizer.joint=true"),
        ] = 0,
        cache_dir: Path | None = None,
    ) -> None:
        super().__init__()
        self._own_pairs = len(corpus.train)  # the pairs of the model's own direction come first
        if both_directions:
            swapped = corpus.train.rename_columns({"src": "tgt", "tgt": "src"}).select_columns(["src", "tgt"])
            weights = None if corpus.weights is None else np.tile(corpus.weights, 2)
            corpus = replace(corpus, train=concatenate_datasets([corpus.train, swapped]), weights=weights)
        self.corpus, self.vocabulary, self.seed = corpus, vocabulary, seed
        self.max_tokens, self.eval_max_tokens, self.limit_batches = max_tokens, eval_max_tokens, limit_batches
        self.bpe_dropout, self.both_directions, self._cache_dir = bpe_dropout, both_directions, cache_dir
        self._ids: dict[str, tuple[Rows, Rows]] = {}  # by split
        if overfit:
            one = corpus.train.select(self.train_dataloader().epoch(0).batches[0])
            self.corpus = replace(corpus, train=one, valid=one, tests=dict.fromkeys(corpus.tests, one), gold={}, weights=None)
            self._ids, self._cache_dir, self._own_pairs = {}, None, len(one)

    def check(self) -> None:
        """Raises InputError if all training pairs are too long, or if another split has no batch or contains a sentence that is
        too long."""
        src, tgt = self.ids("train")
        rows_within(np.maximum(src.lengths, tgt.lengths)[: self._own_pairs], self.max_tokens)
        for split in map(self.evaluation, ("valid", *self.corpus.tests)):
            if not len(split):
                raise InputError(
                    f"trainer.limit_batches={self.limit_batches}: that is less than one batch, since {split.name} has only "
                    f"{len(split.batches)}; give a larger share, or a number of batches"
                )

    def pairs(self, split: str) -> Dataset:
        return self.corpus.split(split_of(split))

    def ids(self, split: str) -> tuple[Rows, Rows]:
        """Returns the token ids of a split: source ids with EOS, target ids with BOS and EOS. Each split is encoded once."""
        if (name := split_of(split)) not in self._ids:
            self._ids[name] = self._encode(name, "src"), self._encode(name, "tgt")
        return self._ids[name]

    def _encode(self, split: str, side: str) -> Rows:
        pairs, tokenizer = self.pairs(split), getattr(self.vocabulary, side)
        blocks = map(getattr(self.vocabulary, f"encode_{side}"), texts(pairs, side))
        if split != "train" or not self._cache_dir:
            return Rows(chain.from_iterable(blocks))
        dtype = np.min_scalar_type(len(tokenizer) - 1)  # uint16 for up to 65,536 pieces
        key = side, sentencepiece.__version__, tokenizer.model, tokenizer.plain, digest(pairs, side)
        with writable(f"the token ids in {self._cache_dir}", "output_dir"):
            write = partial(write_rows, blocks=blocks, n=len(pairs), dtype=dtype)
            return Rows.stored(cached(self._cache_dir, key, ".ids", write), len(pairs), dtype)

    def train_dataloader(self) -> TrainingBatches:
        accumulate = self.trainer.accumulate_grad_batches if self.trainer else 1
        sample = self._sample if self.bpe_dropout else None
        place = distributed.rank(), distributed.world_size()
        own = self._own_pairs, self.both_directions
        weights = self.corpus.weights
        return TrainingBatches(*self.ids("train"), self.max_tokens, self.seed, accumulate, weights, sample, *own, *place)

    def _sample(self, epoch: int) -> tuple[Rows, Rows]:
        """Returns the ids of the training pairs, split into random pieces: a function of seed and epoch."""

        def sampled(rows: Rows, tokenizer: Tokenizer, side: int, of: str) -> Rows:
            ids = show_share((rows[i].tolist() for i in range(len(rows))), len(rows), of)
            return Rows(tokenizer.sample(ids, self.bpe_dropout, [self.seed, epoch, side]))

        src, tgt = self.ids("train")
        with Task("splitting words at random"):
            return (
                sampled(src, self.vocabulary.src, 0, "the source sentences"),
                sampled(tgt, self.vocabulary.tgt, 1, "the target sentences"),
            )

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return to_device(batch, device) if isinstance(batch, Batch) else batch

    def val_dataloader(self) -> Iterable[str]:
        """Returns a loader whose only item is the name of the validation split, since `evaluate` takes a split, not a
        batch. The loader is not a list, because Lightning treats a list as several loaders."""
        return {"valid": None}.keys()

    def evaluation(self, split: str) -> EvaluationSplit:
        """Returns a split and its batches. The name may end in "@" and a grouping (see EvaluationBatches), as in
        test@mixed. Raises InputError if there is no such split or grouping, or if a sentence is too long."""
        grouping: Any = split.partition("@")[2] or "alike"
        if grouping not in get_args(Grouping):
            raise InputError(f"split={split}: the part after @ must be one of {', '.join(get_args(Grouping))}")
        pairs, ids = self.pairs(split), self.ids(split)
        for side, rows in zip(("src", "tgt"), ids, strict=True):
            longest = pairs[int(rows.lengths.argmax())][side]
            getattr(self.vocabulary, side).refuse_too_long(longest, f"{split}, {side}, '{longest[:30]}...'")
        batches = EvaluationBatches(*ids, self.eval_max_tokens, grouping)
        return EvaluationSplit(split, batches, list(pairs["src"]), list(pairs["tgt"]), self.limit_batches)

    def sample(self, n: int) -> Batch:
        """Returns the first n validation pairs as one batch, regardless of their lengths."""
        src, tgt = self.ids("valid")
        return collate(src, tgt, range(min(n, len(src))))

    def unigram_nll(self) -> float:
        """Returns the validation loss, in nats per target token (with EOS), of an add-one-smoothed unigram model of train."""
        pieces, rows = len(self.vocabulary.tgt), {"train": self._own_pairs, "valid": len(self.corpus.valid)}
        train, valid = (self.ids(split)[1].counts(pieces, rows[split]) for split in rows)
        train[BOS] = valid[BOS] = 0
        return float(-(valid * np.log((train + 1) / (train + 1).sum())).sum() / valid.sum())
