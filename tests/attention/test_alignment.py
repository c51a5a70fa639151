"""Compares word-level attention, word alignments and measurements of attention with independent implementations."""

import itertools
import math
import random
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from conftest import ENGLISH, FRENCH
from entente.attention.alignment import (
    STEPS,
    Alignments,
    Head,
    Pair,
    Words,
    links_agreement,
    merge_pieces,
    oracle_links,
    predicted_links,
    with_mean,
    word_spans,
    words_of,
)
from entente.attention.diagnose import diagnose
from entente.attention.numbers import CORRELATIONS, by_head, correlations, measure, measure_split, occlusion, pairs_of
from entente.attention.record import ALIGNMENT, CROSS, DECODER, ENCODER, AttentionMap, record, record_batch
from entente.data.alignments import Gold, pharaoh, read_pharaoh
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.models.seq2seq import Seq2Seq
from entente.settings import BatchSettings, SearchSettings
from numerics import model_of


def pairs(vocabulary: Vocabulary, gold: bool = False) -> list[Pair]:
    result = []
    for fr, en in zip(FRENCH, ENGLISH, strict=True):
        links = Gold(word_spans(fr), word_spans(en), frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})) if gold else None
        result.append(Pair(vocabulary.encode_src([fr])[0], vocabulary.tgt.encode(en), links))
    return result


# Words


def test_a_text_is_split_into_words_and_punctuation() -> None:
    text = "L'été, qu'il n'a pas vu aujourd'hui : « don't » est-ce 3,5 ?"
    assert [text[a:b] for a, b in word_spans(text)] == [
        *("L'", "été", ",", "qu'", "il", "n'", "a", "pas", "vu", "aujourd'hui", ":", "«", "don't", "»", "est-ce"),
        *("3", ",", "5", "?"),
    ]


@pytest.mark.parametrize("text", [*FRENCH, "l'Étranger 😀 où ?", "   ", "", "\u0301x", "a\u00a0b", "中文 a"])
def test_pieces_cover_the_text_in_order(text: str, vocabulary: Vocabulary) -> None:
    ids = vocabulary.src.encode(text)
    decoded, places = vocabulary.src.spans(ids)
    assert decoded == text == vocabulary.src.decode(ids) and len(places) == len(ids)
    assert [0, *(end for _, end in places)] == [*(begin for begin, _ in places), len(text)]
    words = words_of(vocabulary.src, ids)
    assert torch.allclose(words.shares.sum(1), torch.ones(len(ids)))
    assert (words.shares.sum(0) > 0).all(), "a word without a piece"
    assert "".join(words.labels) == "".join(text.split()) or not text.strip()


def test_a_piece_over_two_words_is_shared_by_its_letters_and_a_special_piece_has_none(vocabulary: Vocabulary) -> None:
    ids = vocabulary.tgt.encode("He is hungry.")
    text, places = vocabulary.tgt.spans(ids)
    begin, end = max(places, key=lambda place: place[1] - place[0])
    assert end - begin >= 2
    words = words_of(vocabulary.tgt, ids, [(0, begin + 1), (begin + 1, 13)])
    row = words.shares[places.index((begin, end))]
    assert row.tolist() == pytest.approx([1 / (end - begin), (end - begin - 1) / (end - begin)])
    special = vocabulary.tgt.spans([ids[0], BOS, *ids[1:], EOS])
    assert special[0] == text and special[1][1] == (places[0][1],) * 2 and special[1][-1] == (len(text), len(text))


def test_a_piece_between_two_words_belongs_to_the_later_one(vocabulary: Vocabulary) -> None:
    sign = vocabulary.src.encode("\u00a7")[1:]  # two bytes, of which the last has the character, without the space before them
    assert vocabulary.src.spans(sign * 3) == ("\u00a7" * 3, [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)])
    assert words_of(vocabulary.src, sign * 3, [(0, 1), (2, 3)]).shares[1::2].tolist() == [[1, 0], [0, 1], [0, 1]]


def test_merged_maps_sum_over_source_pieces_and_average_over_rows(name: str, vocabulary: Vocabulary) -> None:
    pair = pairs(vocabulary)[0]
    source, target = words_of(vocabulary.src, pair.src[:-1]), words_of(vocabulary.tgt, pair.tgt)
    assert len(source.labels) < len(pair.src) - 1 and len(target.labels) < len(pair.tgt), "some words must have several pieces"
    for map in record(model_of(name, vocabulary), vocabulary, pair.src, pair.tgt):
        words = merge_pieces(map, source, target)
        assert words.weights.shape[-2:] == (len(words.rows), len(words.columns))
        assert torch.allclose(words.weights.sum(-1), torch.ones(()), atol=1e-6)
        assert words.rows == [*(source if map.kind == ENCODER else target).labels, "</s>"]
        assert words.columns == (["<s>", *target.labels] if map.kind == DECODER else [*source.labels, "</s>"])
        if map.kind == DECODER:  # a word's row has weight on the word's own first pieces, but none on later words
            assert (words.weights.triu(2) == 0).all() and (words.weights.triu(1) > 0).any()
        row = [i for i, share in enumerate((source if map.kind == ENCODER else target).shares[:, 1]) if share]
        first = 1 if map.kind == DECODER else 0
        columns = [i + first for i, share in enumerate((target if map.kind == DECODER else source).shares[:, 0]) if share]
        expected = map.weights[:, :, row][..., columns].sum(-1).mean(-1)
        assert torch.allclose(words.weights[:, :, 1, first], expected, atol=1e-6)


# Alignment error


def test_the_error_rate_follows_och_and_ney() -> None:
    gold = Gold([(0, 1)] * 4, [(0, 1)] * 4, frozenset({(0, 0), (1, 1), (2, 2)}), frozenset({(0, 0), (1, 1), (2, 2), (3, 2)}))
    agreement = links_agreement([([(0, 0), (1, 1), (3, 2), (0, 3), (0, 3)], gold)])
    assert agreement == pytest.approx((3 / 4, 2 / 3, 1 - (2 + 3) / (4 + 3)))
    assert links_agreement([(gold.sure, gold)]).aer == 0
    assert links_agreement([([(0, 1)], gold)]) == (0, 0, 1)
    assert links_agreement([]) == (1, 1, 0)


def test_no_choice_of_one_link_per_word_beats_the_oracle() -> None:
    """For small random gold alignments, no choice of at most one link per target word has a lower error than the oracle."""
    generator = random.Random(5)
    below_one = 0
    for _ in range(30):
        everything = list(itertools.product(range(3), range(4)))
        possible = frozenset(generator.sample(everything, generator.randint(0, 7)))
        sure = frozenset(link for link in possible if generator.random() < 0.5)
        gold = Gold([(0, 1)] * 3, [(0, 1)] * 4, sure, possible)
        rates = []
        for choice in itertools.product([None, 0, 1, 2], repeat=4):
            rates.append(links_agreement([([(i, j) for j, i in enumerate(choice) if i is not None], gold)]).aer)
        oracle = links_agreement([(oracle_links(gold), gold)]).aer
        assert oracle == pytest.approx(min(rates))
        below_one += 0 < oracle < 1
    assert below_one > 3, "the oracle is almost always 0 or 1, which tests nothing"


def test_each_word_is_linked_to_the_word_with_most_attention_at_either_step() -> None:
    """The links between two source words and two target words equal those found by hand. Each side has three pieces."""
    first = torch.tensor(
        [  # source pieces a, b1, b2, </s>
            [0.7, 0.1, 0.1, 0.1],  # reads <s>, produces x
            [0.4, 0.3, 0.3, 0.0],  # reads x, produces y1: word b (b1 and b2) has 0.6, more than a
            [0.2, 0.0, 0.2, 0.6],  # reads y1, produces y2: the mean over y1 and y2 is 0.3 for a and 0.4 for b
            [0.0, 0.2, 0.0, 0.8],  # reads y2, produces </s>
        ]
    )
    second = torch.eye(4)
    second[2] = torch.tensor([0.0, 0.0, 0.4, 0.6])
    source, target = (Words([*letters], torch.tensor([[1.0, 0], [0, 1], [0, 1]])) for letters in ("ab", "xy"))
    map = AttentionMap(CROSS, torch.stack([first, second])[None], ["x", "y1", "y2", "</s>"], ["a", "b1", "b2", "</s>"])
    links = predicted_links(map, source, target)
    assert links.shape == (2, 1, 3, 2), "two steps, one layer, two heads and their mean, two target words"
    assert links[:, 0, :2].tolist() == [[[0, 1], [0, 1]], [[1, -1], [1, -1]]]
    gold = Gold([(0, 1), (1, 2)], [(0, 1), (1, 2)], frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    turned = predicted_links(map._replace(weights=map.weights.flip(-1)), source, target)
    alignments = Alignments([turned, links], [gold, gold])
    assert alignments.links(Head(0, 1, "read")) == [[(1, 0), (0, 1)], [(1, 0)]]
    assert alignments.agreement(Head(0, 0, "produced")).recall == 0.5
    assert {head.head for head in alignments.heads()} == {0, 1, None} and len(alignments.heads()) == 6
    rates = [[alignments.agreement(Head(0, head, step)).aer for head in (0, 1)] for step in STEPS]
    assert alignments.error_rates().tolist() == rates[:1] and rates[0] != rates[1]
    assert alignments.error_rates(STEPS).tolist() == [[min(both) for both in zip(*rates, strict=True)]]
    assert Alignments([turned, links], []).best() == Head(0, None, "produced")
    empty = Alignments([], [])
    assert empty.best() == Head(0, 0, "produced") and empty.links(Head(0, 0, "produced")) == []


def test_the_links_of_a_mean_of_heads_are_those_of_the_mean_weights() -> None:
    weights = (2 * torch.randn(2, 5, 8, 7, generator=torch.Generator().manual_seed(3))).softmax(-1)
    source, target = (Words([*"abcdefg"[:n]], torch.eye(n)) for n in (6, 7))
    maps = [
        AttentionMap(CROSS, heads, [*target.labels, "</s>"], [*source.labels, "</s>"])
        for heads in (weights, weights.mean(1, keepdim=True))
    ]
    several, single = (Alignments([predicted_links(map, source, target)], []) for map in maps)
    for head in single.heads():
        assert several.links(head._replace(head=None)) == single.links(head)
    assert len({str(several.links(head)) for head in several.heads()}) == 4 * 6  # all heads have different links


def test_pharaoh_links_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-1 0?1 1?0 2p2\n\n1-0\n")
    src, tgt = ["a b c", "x", "l' un"], ["d e f", "y", "z"]
    gold = read_pharaoh(path, src, tgt)
    assert [g.sure for g in gold] == [{(0, 1)}, set(), {(1, 0)}]
    assert gold[0].possible == {(0, 1), (1, 0), (2, 2)} and gold[2].src == [(0, 2), (3, 5)]
    assert pharaoh([[(1, 0), (0, 2), (0, 1)], []]) == "0-1 0-2 1-0\n\n"
    for text, line in (
        ("0-3\n\n\n", "line 1: '?0-3"),
        ("\n0-1-2\n\n", "line 2: '0-1-2' is not a link"),
        ("0-0\n", "1 lines for 3 pairs"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=line):
            read_pharaoh(path, src, tgt)


# Numbers


def scale_scores(model: Seq2Seq, factor: float) -> Seq2Seq:
    """Multiplies all attention scores of a model by a factor, by scaling weights in place, and returns the model."""
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "_attention.query." in path or path == "attention.score.weight":
                parameter *= factor
    return model


@pytest.mark.parametrize("sharpness", [1, 500], ids=["soft", "saturated"])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("birnn", {}),
        ("transformer", {}),
        ("transformer", {"mask_value": -1e9}),  # hides everything masked
        ("transformer", {"mask_value": -1e-9}),  # hides nothing
        ("transformer", {"mask_future": False}),
        ("transformer", {"mask_padding": False}),
        ("transformer", {"softmax": "queries"}),
    ],
    ids=str,
)
def test_numbers_are_means_over_rows(name: str, changes: dict[str, Any], sharpness: float, vocabulary: Vocabulary) -> None:
    model = scale_scores(model_of(name, vocabulary, **changes), sharpness)
    of = pairs(vocabulary)
    numbers, alignments = measure(model, vocabulary, of)
    assert set(numbers) == ({ENCODER, DECODER, CROSS} if name == "transformer" else {ALIGNMENT})
    layer, head = (1, 2) if name == "transformer" else (0, 0)
    causal = changes.get("mask_future", True) and changes.get("mask_value") != -1e-9
    rows: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in numbers}
    underflowed = 0
    for map in chain(*record_batch(model, vocabulary, [pair.src for pair in of], [pair.tgt for pair in of])):
        for t, weights in enumerate(map.weights[layer, head].double().tolist()):
            keys = t + 1 if map.kind == DECODER and causal else len(weights)
            if keys == 1:
                continue
            underflowed += 0.0 in weights[:keys]
            row = [p / max(sum(weights), 1e-12) for p in weights]
            entropy = -sum(p * math.log(p) for p in row[:keys] if p) / math.log(keys)
            end = sum(p for p, label in zip(row, map.columns, strict=True) if label in ("<s>", "</s>"))
            signs = sum(p for p, label in zip(row, map.columns, strict=True) if label in (".", ",", "'", "▁"))
            far = sum(p * abs(c / (len(row) - 1) - t / (len(map.rows) - 1)) for c, p in enumerate(row))
            rows[map.kind].append((entropy, end, signs, far))
    for kind, of_kind in numbers.items():
        expected = [sum(column) / len(rows[kind]) for column in zip(*rows[kind], strict=True)]
        assert [float(values[layer, head]) for values in of_kind] == pytest.approx(expected, abs=1e-5)
    assert (underflowed > 10) == (sharpness != 1)
    assert len(alignments.links(Head(layer, head, "read"))) == len(of)


@pytest.mark.parametrize(
    ("name", "changes"), [("birnn", {}), ("transformer", {}), ("transformer", {"softmax": "queries"})], ids=str
)
def test_the_diagnosis_has_the_entropy_of_the_numbers(name: str, changes: dict[str, Any], vocabulary: Vocabulary) -> None:
    model = scale_scores(model_of(name, vocabulary, **changes), 5)
    places = {ENCODER: "encoder {} self", DECODER: "decoder {} self", CROSS: "decoder {} cross", ALIGNMENT: "attention"}
    for pair in pairs(vocabulary):
        numbers, _ = measure(model, vocabulary, [pair])
        diagnosis = diagnose(model, torch.tensor([pair.src]), torch.tensor([[BOS, *pair.tgt]]))
        for kind, of_kind in numbers.items():
            for layer, heads in enumerate(of_kind.entropy):
                entropy = diagnosis[f"attention_entropy/{places[kind].format(layer + 1)}"]
                assert entropy == pytest.approx(float(heads.mean()), abs=1e-5) and entropy < 1 + 1e-6


def test_the_best_head_is_chosen_on_this_split_or_given_from_another(vocabulary: Vocabulary) -> None:
    model, of_gold = model_of("transformer", vocabulary), pairs(vocabulary, gold=True)
    split = measure_split(model, vocabulary, of_gold, 0, None)
    alignments = measure(model, vocabulary, of_gold)[1]
    rates = {head: alignments.agreement(head).aer for head in alignments.heads()}
    assert split.links == alignments.links(split.best)
    assert rates[split.best] == min(rates.values()) < max(rates.values())
    head = Head(0, 1, "read")
    other = measure_split(model, vocabulary, of_gold, 0, split._replace(best=head))
    best = other.report["word_alignment"]["best"]
    assert other.best == head and (best["chosen_on"], best["aer"]) == ("valid", rates[head])
    blind = measure_split(model, vocabulary, pairs(vocabulary), 0, None)
    assert "word_alignment" not in blind.report and blind.best == Head(0, None, "produced")
    assert len(blind.links) == len(FRENCH)


def test_links_are_in_the_order_of_the_pairs(vocabulary: Vocabulary) -> None:
    model, of = model_of("transformer", vocabulary), pairs(vocabulary)
    together, alone = measure(model, vocabulary, of)[1], [measure(model, vocabulary, [pair])[1] for pair in of]
    for head in together.heads():
        assert together.links(head) == [alignments.links(head)[0] for alignments in alone]
    assert any(len(set(map(str, together.links(head)))) == len(of) for head in together.heads())


def test_measured_pairs_are_the_first_of_the_split_with_an_end_and_no_start_symbol(vocabulary: Vocabulary) -> None:
    sentences = Dataset.from_dict({"src": FRENCH, "tgt": ENGLISH})
    gold = [Gold([(0, 1)], [(0, 1)], frozenset({(i, i)}), frozenset({(i, i)})) for i in range(3)]
    data = TranslationData(Corpus(sentences, sentences, {"test": sentences}, gold={"test": gold}), vocabulary, BatchSettings())
    assert pairs_of(data, "valid") == pairs(vocabulary)
    assert pairs_of(data, "test@alone", 2) == [p._replace(gold=g) for p, g in zip(pairs(vocabulary)[:2], gold, strict=False)]


# Occlusion: leaving words out


def test_occlusion_is_the_change_of_a_words_probability(name: str, vocabulary: Vocabulary) -> None:
    """Occlusion equals the change in probability computed piece by piece, with each prefix decoded from the start."""
    model, pair = model_of(name, vocabulary), pairs(vocabulary)[1]
    settings = SearchSettings(length_factor=0, length_offset=6)
    pair = pair._replace(tgt=translate(model, vocabulary, [FRENCH[1]], settings)[0][0].tokens)  # a probable translation
    source = words_of(vocabulary.src, pair.src[:-1])
    target = words_of(vocabulary.tgt, pair.tgt, [(i, i + 1) for i in range(len(vocabulary.tgt.decode(pair.tgt)))])

    def probability(src: list[int], word: int) -> float:
        product = 1.0
        for t, piece in enumerate(pair.tgt):
            if target.shares[t, word]:
                hidden, _ = model.decode(torch.tensor([[BOS, *pair.tgt[:t]]]), model.encode(torch.tensor([src])))
                product *= float(model.output(hidden[0, -1]).softmax(-1)[piece])
        return product

    with torch.no_grad():
        change = occlusion(model, pair.src, pair.tgt, source, target)
        assert change.shape == (len(target.labels), len(source.labels))
        for w in range(len(source.labels)):
            rest = [piece for i, piece in enumerate(pair.src[:-1]) if not source.shares[i, w]]
            for e in range(len(target.labels)):
                expected = abs(probability(pair.src, e) - probability([*rest, pair.src[-1]], e))
                assert float(change[e, w]) == pytest.approx(expected, abs=1e-5)
    assert change.max() > 0.003, "the model ignores the source, so this tests nothing"


def test_correlations_of_rows() -> None:
    a = torch.tensor([[0.1, 0.2, 0.7], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2], [0.1, 0.1, 0.1]])
    c = torch.tensor([[0.0, 0.3, 0.4], [0.0, 0.1, 0.9], [0.1, 0.2, 0.3], [0.1, 0.5, 0.2]])
    values = dict(zip(CORRELATIONS, correlations(a, c).nanmean(-2).tolist(), strict=True))
    assert values["same_first"] == pytest.approx(2 / 3), "a row of equal values has no maximum and is left out"
    expected = [float(torch.corrcoef(torch.stack([x, y]))[0, 1]) for x, y in zip(a[:3], c[:3], strict=True)]
    assert values["pearson"] == pytest.approx(sum(expected) / 3, abs=1e-5)
    assert values["spearman"] == pytest.approx((1 + math.sqrt(3) / 2 - 1) / 3)
    assert correlations(a[3:], c[3:]).isnan().all() and correlations(c[3:], a[3:]).isnan().all()


def test_correlations_of_a_layer_are_those_of_its_heads_and_of_their_mean() -> None:
    generator = torch.Generator().manual_seed(3)
    weights, change = torch.rand(2, 2, 5, 4, generator=generator), torch.rand(5, 4, generator=generator)
    reports = by_head(correlations(with_mean(weights), change))
    heads = [Head(layer, head, "produced") for layer in range(2) for head in (0, 1, None)]
    for head, row in zip(heads, reports, strict=True):
        rows = weights[head.layer].mean(0) if head.head is None else weights[head.layer, head.head]
        means = correlations(rows, change).mean(-2).tolist()
        assert row == pytest.approx(head.report() | dict(zip(CORRELATIONS, means, strict=True)))
    single = by_head(correlations(with_mean(weights[:, :1]), change))
    assert [(row["layer"], row["head"]) for row in single] == [(1, 1), (2, 1)]


def test_occlusion_of_a_split_is_the_mean_over_its_words(vocabulary: Vocabulary) -> None:
    model, of = model_of("birnn", vocabulary), pairs(vocabulary)
    [report] = measure_split(model, vocabulary, of, 2, None).report["occlusion"]
    assert report["layer"] == report["head"] == 1
    total, words = 0.0, 0
    for pair in of[:2]:
        source, target = words_of(vocabulary.src, pair.src[:-1]), words_of(vocabulary.tgt, pair.tgt)
        [map] = record(model, vocabulary, pair.src, pair.tgt)
        weights = merge_pieces(map, source, target).weights[0, 0, :-1, :-1]
        change = occlusion(model, pair.src, pair.tgt, source, target)
        values = correlations(weights, change)[:, 1]
        total += float(values.nansum())
        words += int(values.isfinite().sum())
    assert report["spearman"] == pytest.approx(total / words, abs=1e-5)
