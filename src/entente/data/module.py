"""The LightningDataModule: a corpus through a vocabulary, in batches."""

from dataclasses import replace
from pathlib import Path

import lightning as L

from entente.data.batches import EvaluationBatches, TrainingBatches
from entente.data.corpora import Corpus
from entente.data.tokenizer import Vocabulary
from entente.data.tokens import Rows, tokenise


class TranslationData(L.LightningDataModule):
    """`overfit` makes every split the pairs of one training batch, which a sound model learns by heart. `cache_dir` keeps the
    token ids for the next time; None: they are made each time, in memory."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        max_tokens: int,
        seed: int,
        eval_max_tokens: int = 4096,
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
            self.corpus = replace(corpus, train=one, valid=one, tests=dict.fromkeys(corpus.tests, one))

    def sources(self, split: str) -> list[str]:
        return list(self.corpus.split(split)["src"])

    def references(self, split: str) -> list[str]:
        return list(self.corpus.split(split)["tgt"])

    def ids(self, split: str) -> tuple[Rows, Rows]:
        """Token ids of both sides of a split, with their BOS and EOS."""
        return tokenise(self.corpus.split(split), self.vocabulary, self.cache_dir)

    def train_dataloader(self) -> TrainingBatches:
        return TrainingBatches(*self.ids("train"), self.max_tokens, self.seed)

    def val_dataloader(self) -> EvaluationBatches:
        return self.evaluation_batches("valid")

    def test_dataloader(self) -> list[EvaluationBatches]:
        return [self.evaluation_batches(split) for split in self.test_splits]

    def evaluation_batches(self, split: str) -> EvaluationBatches:
        """Each pair of the split once; the batches' `index` are rows of `sources(split)` and `references(split)`."""
        return EvaluationBatches(*self.ids(split), self.eval_max_tokens)
