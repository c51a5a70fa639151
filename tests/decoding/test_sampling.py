"""Laws of sampled translations, for both models."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import entente
from bad_inputs import run
from conftest import BOS, EOS
from entente.commands import translate
from entente.decoding.search import Hypothesis, draw, length_penalty, search
from entente.errors import InputError
from entente.models.seq2seq import Seq2Seq
from entente.settings import SamplingSettings as Sampling
from entente.settings import SearchSettings

SETTINGS = SearchSettings(length_penalty=0.7, length_factor=1.5, length_offset=3)


def drawn(model: Seq2Seq, src: Tensor, sampling: Sampling, numbers: list[int]) -> list[Hypothesis]:
    return [h for [h] in search(model, src, SETTINGS, BOS, EOS, sampling=sampling, numbers=numbers)]


def tokens(hypotheses: list[Hypothesis]) -> list[tuple[list[int], bool]]:
    return [(h.tokens, h.ended) for h in hypotheses]


def test_a_draw_depends_on_seed_and_line_and_not_on_the_batch(model: Seq2Seq, src: Tensor) -> None:
    numbers = [3, 11, 7, 5, 2]
    together = tokens(drawn(model, src, Sampling(temperature=1.5), numbers))
    for row, number in enumerate(numbers):
        assert tokens(drawn(model, src[row : row + 1], Sampling(temperature=1.5), [number])) == [together[row]]
    others = (Sampling(temperature=1.5), [4, 12, 8, 6, 1]), (Sampling(temperature=1.5, seed=2), numbers)
    assert all(tokens(drawn(model, src, *other)) != together for other in others)


def test_rounding_changes_no_draw() -> None:
    """Log-probabilities of a sentence differ by rounding between batches."""
    log_p = (3 * torch.randn(499, 8009, generator=torch.Generator().manual_seed(1))).log_softmax(-1)
    rounded = log_p + 1e-4 * torch.randn(log_p.shape, generator=torch.Generator().manual_seed(2))
    for sampling in (Sampling(), Sampling(temperature=0.9, top_k=101)):
        pieces = [draw(sampling, each, [np.random.default_rng(i) for i in range(499)])[1] for each in (log_p, rounded)]
        assert pieces[0].equal(pieces[1]) and len(pieces[0].unique()) > 50


def test_the_likeliest_piece_alone_is_greedy_search(model: Seq2Seq, src: Tensor) -> None:
    likeliest = drawn(model, src, Sampling(temperature=3.0, top_k=1), [*range(len(src))])
    for ours, [greedy] in zip(likeliest, search(model, src, SETTINGS, BOS, EOS), strict=True):
        assert (ours.tokens, ours.ended) == (greedy.tokens, greedy.ended) and ours.score == pytest.approx(greedy.score)


def test_pieces_are_drawn_with_their_probabilities_and_scored_with_them(model: Seq2Seq, src: Tensor) -> None:
    lines, temperature = 1009, 0.5
    one = src[:1]
    hypotheses = drawn(model, one.expand(lines, -1), Sampling(temperature=temperature), [*range(lines)])
    hidden, _ = model.decode(torch.tensor([[BOS]]), model.encode(one))
    logits = model.output(hidden)[0, 0].detach()
    logits[model.pad_id] = -torch.inf
    expected = (logits / temperature).softmax(-1)
    firsts = Counter((h.tokens or [EOS])[0] for h in hypotheses)
    for piece in expected.topk(3).indices.tolist():
        share, p = firsts[piece] / lines, expected[piece].item()
        assert abs(share - p) < 4 * (p * (1 - p) / lines) ** 0.5  # four standard errors
    best = max(hypotheses, key=lambda h: len(h.tokens))
    read = torch.tensor([[BOS, *best.tokens]])
    rows = model.output(model.decode(read, model.encode(one))[0])[0].detach()
    rows[:, model.pad_id] = -torch.inf
    written = [*best.tokens, EOS] if best.ended else best.tokens
    total = sum(rows.log_softmax(-1)[t, piece].item() for t, piece in enumerate(written))
    assert best.score * length_penalty(SETTINGS, best.length) == pytest.approx(total)


def test_the_command_draws_the_same_lines_in_any_batches(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["Le chat voit le chien.", "Le chien dort.", "", "Le grand chat mange."] * 3
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    command = f"translate checkpoint={base / 'run'} input=in.txt sampling.temperature=2 sampling.seed=5"
    first, again = (run(f"{command} threads={threads}", tmp_path) for threads in (1, 2))
    monkeypatch.setattr(translate, "CHUNK", 5)
    chunks = run(command, tmp_path)
    assert first.code == 0 and first.out == again.out == chunks.out and len({*first.out.splitlines()}) > 4
    model = entente.load(base / "run", device="cpu")
    assert model.translate(lines, sampling={"temperature": 2.0, "seed": 5}) == first.out.splitlines()
    assert model.translate(lines[0], sampling={"temperature": 2.0, "seed": 5}) == first.out.splitlines()[0]
    for arguments, problem in (
        ({"sampling": {"top_q": 3}}, "sampling: top_q=3: no such setting; did you mean top_k"),
        ({"sampling": {}, "prefix": "The"}, "leave out beam and prefix"),
        ({"sampling": {}, "beam": 2}, "leave out beam and prefix"),
    ):
        with pytest.raises(InputError, match=problem):
            model.translate(lines, **arguments)
    refused = run(f"{command} search.n_best=2 search.beam=3", tmp_path)
    assert refused.code == 2 and "sampling draws one translation" in refused.err
    assert run(f"translate checkpoint={base / 'run'} input=in.txt sampling.temperature=2", tmp_path).out != first.out


def test_only_the_likeliest_pieces_are_drawn() -> None:
    log_p = torch.randn(11, dtype=torch.double, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    generators = [np.random.default_rng(i) for i in range(307)]
    _, pieces = draw(Sampling(temperature=9.0, top_k=3), log_p.expand(307, -1), generators)
    assert {*pieces.flatten().tolist()} == {*log_p.topk(3).indices.tolist()}
    _, pieces = draw(Sampling(top_k=1), torch.zeros(307, 11), generators)
    assert len(pieces.unique()) == 1, "one of eleven equal pieces"
