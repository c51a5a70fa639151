"""The page's JavaScript computes what Python computes: activations, log-probabilities, interventions, translations, pieces."""

import random
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor

from broken_laws import BROKEN, model_settings
from browser import new_page
from conftest import FRENCH, LENGTHS, small, small_settings
from entente.attention.alignment import words_of
from entente.attention.hook_points import Hook, hooked, points
from entente.attention.interventions import (
    Intervention,
    cell,
    intervene,
    mute,
    mute_part,
    no_residual,
    scale,
    skip,
    unmask,
    weights,
)
from entente.data.text import clean, distinct_words
from entente.data.tokenizer import BOS, EOS, Tokenizer, Vocabulary
from entente.decoding.search import search
from entente.models.seq2seq import Seq2Seq
from entente.models.transformer import Transformer
from entente.page import FOLDER, PATTERNS, tokenizer_data
from entente.page import weights as page_weights
from entente.settings import ModelSettings, SearchSettings
from numerics import model_of

VARIANTS = sorted(pair for pair in BROKEN if not pair[1].startswith("softmax"))
INTERVENTIONS: list[tuple[str, list[Intervention]]] = [
    ("transformer", [mute("cross", layer=2, head=1)]),
    ("transformer", [mute("decoder", layer=1, head=3, to=[0.5, -1.0, 2.0, 0.0, 1.0, -0.25, 3.0]), scale("cross", 0.5)]),
    ("transformer", [mute("decoder", layer=2, head=2, to="uniform"), mute("encoder", to="uniform")]),
    ("transformer", [no_residual("decoder", "cross"), skip("encoder", "ff", layer=1)]),
    ("transformer", [no_residual()]),
    ("transformer", [skip("decoder", "self", layer=2), scale("encoder", 3.0, layer=1)]),
    ("transformer", [weights("cross", row=2, values=[0.25, 0.75], layer=1, head=2)]),
    ("transformer", [weights("decoder", row=1, values=[0.9, 0.1]), cell("cross", row=3, column=1, value=0.875)]),
    ("transformer", [weights("cross", row=0, values=[0.0] * 20 + [1.0]), cell("decoder", row=0, column=0, value=0.5)]),
    ("birnn", [scale("alignment", 3.0), mute_part("state")]),
    ("birnn", [mute("alignment", to="uniform"), mute_part("word")]),
    ("birnn", [weights("alignment", row=2, values=[0.25, 0.75]), mute_part("context")]),
    ("birnn", [cell("alignment", row=3, column=1, value=0.875)]),
]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Returns an empty page with the scripts that compute, none of which fails."""
    with new_page() as (empty, problems):
        for name in ("forward.js", "tokenizer.js", "search.js", "interventions.js"):
            empty.add_script_tag(content=(FOLDER / name).read_text(encoding="utf-8"))
        yield empty
        assert problems == []


def close(actual: Any, expected: Tensor) -> None:
    """Asserts equality up to the rounding of float64, also for the large numbers of models without norms."""
    values = torch.tensor(actual, dtype=torch.float64).reshape(expected.shape)
    torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-10)


def rounded(model: Seq2Seq) -> Seq2Seq:
    """Rounds a model's weights as a page does, and returns it in float64."""
    return model.half().double()


def on_page(page: Page, model: Seq2Seq, settings: ModelSettings, body: str, **values: Any) -> Any:
    """Returns what the JavaScript `body` returns for this `model`."""
    kind, (shapes, text) = "Transformer" if isinstance(model, Transformer) else "BiRNN", page_weights(model)
    script = f"([shapes, text, settings]) => {{ window.model = new {kind}(readParameters(shapes, text), settings); }}"
    page.evaluate(script, [shapes, text, settings.model_dump(mode="json")])
    return page.evaluate(f"(values) => {{ {body} }}", values)


READ = """
  intervene(model, values.interventions);
  const { logProbabilities, cache } = model.read(values.src, values.tgt);
  const plain = (rows) => rows.map((row) => (Array.isArray(row) ? row.map((x) => [...x]) : [...row]));
  return [plain(logProbabilities), Object.fromEntries(Object.entries(cache).map(([name, rows]) => [name, plain(rows)]))];
"""


def read_in_python(model: Seq2Seq, src: list[int], tgt: list[int], names: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    activations: dict[str, list[Tensor]] = {}

    def keep(value: Tensor, hook: Hook) -> None:
        activations.setdefault(hook.name, []).append(value.detach().clone())

    with hooked(model, [(name, keep) for name in names]):
        hidden = model(torch.tensor([src]), torch.tensor([tgt]))[0]
    join = {name: torch.stack if values[0].dim() == 2 else torch.cat for name, values in activations.items()}
    return model.output(hidden).log_softmax(-1), {name: join[name](values, dim=1)[0] for name, values in activations.items()}


def assert_equal(
    page: Page, model: Seq2Seq, settings: ModelSettings, src: list[int], tgt: list[int], *interventions: Intervention
) -> None:
    rows, cache = on_page(page, model, settings, READ, src=src, tgt=tgt, interventions=interventions)
    with intervene(model, interventions):
        expected, activations = read_in_python(model, src, tgt, [*cache])
    close(rows, expected)
    assert cache.keys() == activations.keys() == points(model).keys()
    for name, value in activations.items():
        close(cache[name], value)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_every_activation_of_every_variant_equals_torch(name: str, variant: str, page: Page, src: Tensor, tgt: Tensor) -> None:
    changes = model_settings(variant)
    model, settings = rounded(small(name, spread=0.3, **changes)), small_settings(name, **changes)
    for i in (0, 2):  # 11 pieces and 1
        assert_equal(page, model, settings, src[i, : LENGTHS[i]].tolist(), tgt[i, :7].tolist())


@pytest.mark.parametrize(("name", "interventions"), INTERVENTIONS)
def test_interventions_change_what_they_change_in_python(
    name: str, interventions: list[Intervention], page: Page, src: Tensor, tgt: Tensor
) -> None:
    model = rounded(small(name, spread=0.3))
    assert_equal(page, model, small_settings(name), src[0].tolist(), tgt[0].tolist(), *interventions)


def test_the_mask_of_the_future_can_be_lifted(page: Page, src: Tensor, tgt: Tensor) -> None:
    for changes in ({}, {"mask_value": -2.0}):
        model = rounded(small("transformer", spread=0.3, **changes))
        settings = small_settings("transformer", **changes)
        uniform = mute("decoder", to="uniform")
        assert_equal(page, model, settings, src[0].tolist(), tgt[0].tolist(), unmask("future"), uniform)
        assert_equal(page, model, settings, src[0].tolist(), tgt[0].tolist(), uniform)


SEARCH = """
  intervene(model, values.interventions);
  return values.sources.map((src, i) => search(model, src, values.limits, values.forced[i]));
"""


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_search_finds_the_same_hypotheses(name: str, beam: int, penalty: float, page: Page, vocabulary: Vocabulary) -> None:
    model = rounded(model_of(name, vocabulary))
    settings = SearchSettings(beam=beam, n_best=max(1, beam - 1), length_penalty=penalty, length_factor=1, length_offset=3)
    sources, forced = vocabulary.encode_src(FRENCH), [[], vocabulary.tgt.encode("The cat"), []]
    interventions = [scale("cross" if name == "transformer" else "alignment", 0.5)]
    values = {"sources": sources, "limits": settings.model_dump(), "forced": forced, "interventions": interventions}
    found = on_page(page, model, small_settings(name), SEARCH, **values)
    with intervene(model, interventions):
        for src, beginning, n_best in zip(sources, forced, found, strict=True):
            expected = search(model, torch.tensor([src]), settings, BOS, EOS, torch.tensor([beginning], dtype=torch.long))[0]
            assert [(h["tokens"], h["ended"]) for h in n_best] == [(h.tokens, h.ended) for h in expected]
            assert [h["score"] for h in n_best] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.mark.parametrize("type", ["bpe", "unigram"])
@pytest.mark.parametrize(("plain", "tags"), [(False, ()), (True, ("<bt>", "<web>"))])
def test_the_tokenizer_gives_the_same_pieces_text_and_words(type: str, plain: bool, tags: tuple[str, ...], page: Page) -> None:
    trained = Tokenizer.train([*FRENCH, "Où est l’œuvre ? Là-bas, à côté…", "日本語 😀 a b  c"] * 5, 420, type, tags)
    tokenizer, generator = Tokenizer(trained.model, plain=plain), random.Random(1)
    alphabet = [*" \t\n\r\0▁▅.,'’ʼ?!-aàeéœßİςև日本語😀한\u0301\u00ad\u200d\u00a0\u2028\u0085abcLlJjt"]
    lines = [*FRENCH, "l’été ? Qu'est-ce que c’est ;", "", " ", "▁▁ <s> <0x41> </s>", "aujourd'hui, jusqu'à l'aube"]
    lines += ["<bt> Le chat dort.", "Le <bt><web> chat<bt>", "<bt", "<BT> <web>"]
    lines += ["".join(generator.choices(alphabet, k=generator.randrange(30))) for _ in range(300)]
    # Without surrogates, and without characters that Python does not know, as a browser may
    known = [character for character in map(chr, range(0x110000)) if unicodedata.category(character) not in ("Cs", "Cn")]
    lines += ["".join(generator.choices(known, k=9)) for _ in range(100)]
    ids = [[generator.randrange(len(tokenizer)) for _ in range(generator.randrange(12))] for _ in range(300)]
    ids += [[generator.randrange(4, 260) for _ in range(7)] for _ in range(200)]  # bytes, mostly not UTF-8
    script = """({ data, patterns, lines, ids }) => {
      const made = compile(patterns), tokenizer = new Tokenizer(data, made), cleaned = lines.map((line) => clean(line, made));
      return {
        cleaned, ids: cleaned.map((line) => tokenizer.encode(line)), raw: lines.map((line) => tokenizer.encode(line)),
        spans: ids.map((row) => tokenizer.spans(row)), text: ids.map((row) => tokenizer.decode(row)),
        words: cleaned.map((line) => wordsOf(tokenizer, tokenizer.encode(line), undefined, made)),
        distinct: cleaned.map((line) => distinctWords(line, made)),
      };
    }"""
    data = tokenizer_data(tokenizer, type)
    result = page.evaluate(script, {"data": data, "patterns": PATTERNS, "lines": lines, "ids": ids})
    cleaned = [clean(line) for line in lines]
    assert result["cleaned"] == cleaned
    assert result["raw"] == tokenizer.encode_all(lines)
    assert result["ids"] == tokenizer.encode_all(cleaned)
    vocabulary = Vocabulary(tokenizer, tokenizer, joint=True)
    assert result["text"] == [vocabulary.text(row) for row in ids]
    for row, (text, spans) in zip(ids, result["spans"], strict=True):
        assert (text, [tuple(span) for span in spans]) == tokenizer.spans(row)
    for line, words in zip(cleaned, result["words"], strict=True):
        expected = words_of(tokenizer, tokenizer.encode(line))
        assert words["labels"] == expected.labels
        shares = torch.tensor(words["shares"], dtype=torch.float32).reshape(expected.shares.shape)
        assert torch.equal(shares, expected.shares)
    for line, words in zip(cleaned, result["distinct"], strict=True):
        assert {*words} == {*distinct_words(line)}, line
