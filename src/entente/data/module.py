"""The LightningDataModule that encodes a corpus with a vocabulary and groups it into batches."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import lightning as L
import numpy as np
import sentencepiece
import torch
from datasets import Dataset, concatenate_datasets

from entente import distributed
from entente.console import log
from entente.data.batches import Batch, EvaluationBatches, EvaluationSplit, Rows, TrainingBatches, collate, split_of, to_device
from entente.data.corpora import Corpus
from entente.data.tokenizer import BOS, Vocabulary, texts
from entente.errors import InputError
from entente.files import build_once, name_of
from entente.settings import BatchSettings, Grouping


class TranslationData(L.LightningDataModule):
    """The training and evaluation batches of a corpus. With `overfit`, every split consists of the pairs of one training batch,
    which a correct model can memorise. `limit_batches` is the `limit` of every EvaluationSplit.

    With `both_directions`, train also has every pair with its sides swapped, after all others, so that a model first learns to
    translate in both directions (Ding, Wu & Tao 2021, "Improving neural machine translation by bidirectional training")."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        settings: BatchSettings,
        seed: int = 1,
        overfit: bool = False,
        limit_batches: int | float = 1.0,
        cache_dir: Path | None = None,
    ) -> None:
        super().__init__()
        self._own_pairs = len(corpus.train)  # the pairs of the model's own direction come first
        if settings.both_directions:
            pairs = corpus.train.select(range(len(corpus.train) - corpus.varied))  # a varied source is no good target
            swapped = pairs.rename_columns({"src": "tgt", "tgt": "src"}).select_columns(["src", "tgt"])
            weights = None if corpus.weights is None else np.append(corpus.weights, corpus.weights[: len(pairs)])
            corpus = replace(corpus, train=concatenate_datasets([corpus.train, swapped]), weights=weights)
        self.corpus, self.vocabulary, self.settings, self.seed = corpus, vocabulary, settings, seed
        self.limit_batches, self._cache_dir = limit_batches, cache_dir
        self._ids: dict[str, tuple[Rows, Rows]] = {}  # by split
        if overfit:
            batch = corpus.train.select(self.train_dataloader().epoch(0)[0])
            tests = dict.fromkeys(corpus.tests, batch)
            self.corpus = replace(corpus, train=batch, valid=batch, tests=tests, gold={}, weights=None)
            self._ids, self._cache_dir, self._own_pairs = {}, None, len(batch)

    def check(self) -> None:
        """Raises InputError if all training pairs, or a sentence in another split, are too long."""
        if dropped := self.train_dataloader().dropped:
            log.warning("%d training pairs with more than %d tokens were dropped", dropped, self.settings.max_tokens)
        for split in ("valid", *self.corpus.tests):
            self.evaluation(split)

    def pairs(self, split: str) -> Dataset:
        return self.corpus.split(split_of(split))

    def ids(self, split: str) -> tuple[Rows, Rows]:
        """Returns the token ids of a split: source ids with EOS, target ids with BOS and EOS."""
        if (name := split_of(split)) not in self._ids:
            self._ids[name] = self._encode(name, "src"), self._encode(name, "tgt")
        return self._ids[name]

    def _encode(self, split: str, side: str) -> Rows:
        pairs, tokenizer, encode = self.pairs(split), getattr(self.vocabulary, side), getattr(self.vocabulary, f"encode_{side}")
        ids = chain.from_iterable(map(encode, texts(pairs, side)))  # nothing is encoded before it is needed
        if split != "train" or not self._cache_dir:
            return Rows(ids)
        name = name_of(pairs._fingerprint, side, tokenizer.model, tokenizer.plain, sentencepiece.__version__)
        path = self._cache_dir / "ids" / f"{name}.npy"
        build_once(path, lambda file: Rows(ids).write(file, len(tokenizer)))
        return Rows(path)

    def train_dataloader(self) -> TrainingBatches:
        return TrainingBatches(
            *self.ids("train"),
            self.settings.max_tokens,
            self.seed,
            accumulate=self.trainer.accumulate_grad_batches if self.trainer else 1,
            weights=self.corpus.weights,
            always=self._own_pairs,
            all_epochs=self.settings.both_directions,
            rank=distributed.rank(),
            processes=distributed.world_size(),
        )

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return to_device(batch, device)

    def val_dataloader(self) -> EvaluationBatches:
        """Returns one batch of a single pair: Lightning needs a batch to validate, but a hook evaluates the whole split."""
        src, tgt = self.ids("valid")
        return EvaluationBatches(Rows([src[0].tolist()]), Rows([tgt[0].tolist()]), 1)

    def evaluation(self, split: str) -> EvaluationSplit:
        """Returns a split and its batches. The name may end in "@" and a grouping (see EvaluationBatches), as in test@mixed."""
        grouping: Any = split.partition("@")[2] or None
        if grouping not in (None, *get_args(Grouping)):
            raise InputError(f"split={split}: the part after @ must be one of {', '.join(get_args(Grouping))}")
        pairs, ids = self.pairs(split), self.ids(split)
        for side, rows in zip(("src", "tgt"), ids, strict=True):
            longest = pairs[int(rows.lengths.argmax())][side]
            getattr(self.vocabulary, side).refuse_too_long(longest, f"{split}, {side}, '{longest[:30]}...'")
        batches = EvaluationBatches(*ids, self.settings.eval_max_tokens, grouping)
        return EvaluationSplit(split, batches, list(pairs["src"]), list(pairs["tgt"]), self.limit_batches)

    def sample(self, n: int) -> Batch:
        """Returns the first n validation pairs as one batch, regardless of their lengths."""
        src, tgt = self.ids("valid")
        return collate(src, tgt, range(min(n, len(src))))

    def unigram_nll(self) -> float:
        """Returns the validation loss, in nats per target token (with EOS), of an add-one-smoothed unigram model of train."""
        (_, train), (_, valid), pieces = self.ids("train"), self.ids("valid"), len(self.vocabulary.tgt)
        counts = np.bincount(train.values[: train.ends[self._own_pairs - 1]], minlength=pieces)
        of_valid = np.bincount(valid.values, minlength=pieces)
        counts[BOS] = of_valid[BOS] = 0
        return float(-(of_valid * np.log((counts + 1) / (counts + 1).sum())).sum() / of_valid.sum())
