"""The LightningDataModule: a corpus through a vocabulary, in batches."""

from dataclasses import replace

import lightning as L

from entente.data.batches import EvaluationBatches, TrainingBatches
from entente.data.corpora import Corpus
from entente.data.tokenizer import Vocabulary


class TranslationData(L.LightningDataModule):
    """`overfit` makes every split the pairs of one training batch, which a sound model learns by heart."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        max_tokens: int,
        seed: int,
        eval_max_tokens: int = 4096,
        overfit: bool = False,
    ) -> None:
        super().__init__()
        self.corpus, self.vocabulary = corpus, vocabulary
        self.test_splits = list(corpus.tests)  # what test_dataloader gives, in this order
        self.max_tokens, self.eval_max_tokens, self.seed = max_tokens, eval_max_tokens, seed
        if overfit:
            one = corpus.train.select(self.train_dataloader().epoch(0)[0])
            self.corpus = replace(corpus, train=one, valid=one, tests=dict.fromkeys(corpus.tests, one))

    def sources(self, split: str) -> list[str]:
        return list(self.corpus.split(split)["src"])

    def references(self, split: str) -> list[str]:
        return list(self.corpus.split(split)["tgt"])

    def ids(self, split: str) -> tuple[list[list[int]], list[list[int]]]:
        """Token ids of both sides of a split, with their BOS and EOS."""
        return self.vocabulary.encode_src(self.sources(split)), self.vocabulary.encode_tgt(self.references(split))

    def train_dataloader(self) -> TrainingBatches:
        return TrainingBatches(*self.ids("train"), self.max_tokens, self.seed)

    def val_dataloader(self) -> EvaluationBatches:
        return self.evaluation_batches("valid")

    def test_dataloader(self) -> list[EvaluationBatches]:
        return [self.evaluation_batches(split) for split in self.test_splits]

    def evaluation_batches(self, split: str) -> EvaluationBatches:
        """Each pair of the split once; the batches' `index` are rows of `sources(split)` and `references(split)`."""
        return EvaluationBatches(*self.ids(split), self.eval_max_tokens)
