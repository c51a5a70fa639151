"""Translates text: cleaning, tokens, search, in batches of sentences of similar length."""

from entente.data.batches import Batch, EvaluationBatches
from entente.data.files import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import Hypothesis, Search, search
from entente.decoding.workers import work_through
from entente.models.seq2seq import Seq2Seq, evaluating


def translate(
    model: Seq2Seq, vocabulary: Vocabulary, sentences: list[str], how: Search, max_tokens: int = 2048
) -> list[list[Hypothesis]]:
    """Returns the n best hypotheses of each sentence, in the order given. An empty sentence has one empty translation."""
    device = next(model.parameters()).device
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, True)] for _ in sentences]
    cleaned = [clean(sentence) for sentence in sentences]
    full = [i for i, sentence in enumerate(cleaned) if sentence]
    ids = vocabulary.encode_src([cleaned[i] for i in full])
    batches = EvaluationBatches(ids, ids, max_tokens)

    def decode(batch: Batch) -> list[list[Hypothesis]]:
        return search(model, batch.src.to(device), how, BOS, EOS)

    with evaluating(model):
        decoded = work_through(batches, decode, model)
    for batch, hypotheses in zip(batches, decoded, strict=True):
        for row, n_best in zip(batch.index.tolist(), hypotheses, strict=True):
            found[full[row]] = n_best
    return found
