"""The LightningDataModule: a corpus through a vocabulary, in batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Annotated, Any, get_args

import lightning as L
import numpy as np
import torch
from annotated_types import doc
from datasets import Dataset

from entente.data.batches import Batch, EvaluationBatches, Rows, Together, TrainingBatches, collate, fitting, to_device
from entente.data.corpora import AtLeastOne, Corpus
from entente.data.tokenizer import BOS, Vocabulary, texts
from entente.errors import InputError


def split_of(name: str) -> str:
    """The split of "test@alone" is "test"."""
    return name.partition("@")[0]


@dataclass(frozen=True)
class EvaluationSplit:
    """A split to be evaluated: batches whose `index` are rows of `sources` and `references`. limit: how many batches, a number
    or as a share of them."""

    name: str
    batches: EvaluationBatches
    sources: list[str]
    references: list[str]
    limit: int | float = 1.0

    def __len__(self) -> int:
        n = len(self.batches)
        return min(n, self.limit) if isinstance(self.limit, int) else int(self.limit * n)

    def __iter__(self) -> Iterator[Batch]:
        return islice(self.batches, len(self))


class TranslationData(L.LightningDataModule):
    """`overfit` makes every split the pairs of one training batch, which a sound model learns by heart. `limit_batches`: of
    every evaluation."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        max_tokens: Annotated[AtLeastOne, doc("padded positions of a batch, of its longer side")] = 4096,
        seed: int = 1,
        eval_max_tokens: Annotated[AtLeastOne, doc("the same, of an evaluation batch")] = 4096,
        overfit: bool = False,
        limit_batches: int | float = 1.0,
    ) -> None:
        super().__init__()
        self.corpus, self.vocabulary, self.seed = corpus, vocabulary, seed
        self.max_tokens, self.eval_max_tokens, self.limit_batches = max_tokens, eval_max_tokens, limit_batches
        self._ids: dict[str, tuple[Rows, Rows]] = {}  # by split
        if overfit:
            one = corpus.train.select(self.train_dataloader().epoch(0)[0])
            self.corpus = replace(corpus, train=one, valid=one, tests=dict.fromkeys(corpus.tests, one), gold={})
            self._ids = {}

    def check(self, decoded: Sequence[str]) -> None:
        """Raises InputError where there is no pair to train on, no batch to evaluate, or a sentence too long to decode."""
        src, tgt = self.ids("train")
        fitting(np.maximum(src.lengths, tgt.lengths), self.max_tokens)
        for split in map(self.evaluation, decoded):
            if not len(split):
                raise InputError(
                    f"trainer.limit_batches={self.limit_batches}: that is no whole batch of {split.name}, which has "
                    f"{len(split.batches)}; give a larger share, or a number of batches"
                )

    def pairs(self, split: str) -> Dataset:
        return self.corpus.split(split_of(split))

    def ids(self, split: str) -> tuple[Rows, Rows]:
        """Token ids of both sides of a split, with their BOS and EOS; made once."""
        if (name := split_of(split)) not in self._ids:
            src = map(self.vocabulary.encode_src, texts(self.pairs(name), "src"))
            tgt = map(self.vocabulary.encode_tgt, texts(self.pairs(name), "tgt"))
            self._ids[name] = Rows(chain.from_iterable(src)), Rows(chain.from_iterable(tgt))
        return self._ids[name]

    def train_dataloader(self) -> TrainingBatches:
        accumulate = self.trainer.accumulate_grad_batches if self.trainer else 1
        return TrainingBatches(*self.ids("train"), self.max_tokens, self.seed, accumulate)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return to_device(batch, device) if isinstance(batch, Batch) else batch

    def val_dataloader(self) -> Iterable[EvaluationSplit]:
        """A loader whose only item is the whole split, since `evaluate` takes a split and not a batch; no list, which Lightning
        would take for several loaders."""
        return {"valid": self.evaluation("valid")}.values()

    def evaluation(self, split: str) -> EvaluationSplit:
        """Each pair of the split once. Its name may say how its sentences come together: test@alone, test@mixed. An InputError
        where there is no such split, or a sentence in it is too long."""
        together: Any = split.partition("@")[2] or "alike"
        if together not in get_args(Together):
            raise InputError(f"split={split}: after the @ stands one of {', '.join(get_args(Together))}")
        pairs, ids = self.pairs(split), self.ids(split)
        for side, rows in zip(("src", "tgt"), ids, strict=True):
            longest = pairs[int(rows.lengths.argmax())][side]
            getattr(self.vocabulary, side).refuse_too_long(longest, f"{split}, {side}, '{longest[:30]}...'")
        batches = EvaluationBatches(*ids, self.eval_max_tokens, together)
        return EvaluationSplit(split, batches, list(pairs["src"]), list(pairs["tgt"]), self.limit_batches)

    def sample(self, n: int) -> Batch:
        """The first n pairs of validation, of whatever lengths."""
        src, tgt = self.ids("valid")
        return collate(src, tgt, range(min(n, len(src))))

    def unigram_nll(self) -> float:
        """Nats per target token of validation, end symbols counted, for one who knows how often each piece occurs in training
        (each counted once more) and nothing else."""
        size = len(self.vocabulary.tgt)
        train, valid = (np.bincount(self.ids(split)[1].values, minlength=size) for split in ("train", "valid"))
        train[BOS] = valid[BOS] = 0
        return float(-(valid * np.log((train + 1) / (train + 1).sum())).sum() / valid.sum())
