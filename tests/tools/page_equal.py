"""Compares the JavaScript of `entente page` with torch in float64, for a trained model with the page's rounded weights.

    python tests/tools/page_equal.py outputs/RUN              # pairs from the run's translations
    python tests/tools/page_equal.py outputs/RUN 100 FILE ...    # 100 sentences, and the pieces of the lines of these files

It prints the largest difference of a log-probability, and how many sentences have the same pieces, and the same greedy
translation: without interventions, and with three of them. Ties, where the two likeliest pieces are equally likely, may differ.
"""

import csv
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from playwright.sync_api import Page

from browser import new_page
from entente import checkpoint
from entente.attention.interventions import Intervention, intervene, mute, mute_part, no_residual, scale
from entente.data.files import read_lines
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import search
from entente.models.seq2seq import Seq2Seq, pad
from entente.models.transformer import Transformer
from entente.page import FOLDER, PATTERNS, tokenizer_data, weights
from entente.settings import ModelSettings

SCRIPTS = ("forward.js", "tokenizer.js", "search.js", "interventions.js")
SCALARS = (0, 0xD800), (0xE000, 0x110000)  # code points without surrogates
PAIRS = 200  # whose log-probabilities are compared
BLOCK = 50  # sentences translated in one call


class Counts(NamedTuple):
    difference: float  # the largest of a log-probability
    pieces: list[int]  # lines with other pieces, for each text
    translations: list[int]  # sentences with another translation, for each list of interventions
    sentences: int


@contextmanager
def scripts() -> Iterator[Page]:
    """Yields an empty page with the scripts that compute, and fails if one of them fails."""
    with new_page() as (page, problems):
        for name in SCRIPTS:
            page.add_script_tag(content=(FOLDER / name).read_text(encoding="utf-8"))
        yield page
        assert problems == []


def put(page: Page, model: Seq2Seq, settings: ModelSettings) -> None:
    """Gives the page a model, which its scripts call `model`."""
    shapes, text = weights(model)
    kind = "Transformer" if isinstance(model, Transformer) else "BiRNN"
    script = f"([shapes, text, settings]) => {{ window.model = new {kind}(readParameters(shapes, text), settings); }}"
    page.evaluate(script, [shapes, text, settings.model_dump(mode="json")])


def random_text(generator: random.Random, length: int) -> str:
    return "".join(chr(generator.randrange(*generator.choice(SCALARS))) for _ in range(length))


def three_lists(model: Seq2Seq) -> list[list[Intervention]]:
    if isinstance(model, Transformer):
        return [[mute("cross", layer=1, head=1)], [scale("cross", 0.5)], [no_residual("decoder", "cross", layer=1)]]
    return [[mute("alignment", to="uniform")], [scale("alignment", 0.5)], [mute_part("word")]]


def compare(page: Page, run: checkpoint.TrainedRun, pairs: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> Counts:
    model, vocabulary = run.model.half().double(), run.vocabulary
    limits = run.settings.search.model_copy(update={"beam": 1, "n_best": 1})
    src, tgt = vocabulary.encode_src([pair[0] for pair in pairs]), [vocabulary.tgt.encode(pair[1]) for pair in pairs]
    put(page, model, run.settings.model)
    difference, other_pieces, other_translations = 0.0, [], []
    for ids, target in list(zip(src, tgt, strict=True))[:PAIRS]:
        script = "([src, tgt]) => model.read(src, tgt).logProbabilities.map((row) => [...row])"
        rows = torch.tensor(page.evaluate(script, [ids, [BOS, *target]]), dtype=torch.float64)
        with torch.no_grad():
            expected = model.output(model(torch.tensor([ids]), torch.tensor([[BOS, *target]]))[0]).log_softmax(-1)
        difference = max(difference, float((rows - expected).abs().max()))
    for lines in texts:
        for side in {id(vocabulary.src): vocabulary.src, id(vocabulary.tgt): vocabulary.tgt}.values():
            data = tokenizer_data(side, run.settings.data.tokenizer.type)
            script = "([data, patterns, lines]) => { const side = new Tokenizer(data, compile(patterns));"
            ours = page.evaluate(script + " return lines.map((line) => side.encode(line)); }", [data, PATTERNS, [*lines]])
            other_pieces.append(sum(a != b for a, b in zip(ours, side.encode_all(lines), strict=True)))
    for interventions in ([], *three_lists(model)):
        count = 0
        with intervene(model, interventions):
            for start in range(0, len(src), BLOCK):
                block = src[start : start + BLOCK]
                script = "([all, block, limits]) => { intervene(model, all);"
                script += " return block.map((src) => search(model, src, limits)[0].tokens); }"
                ours = page.evaluate(script, [interventions, block, limits.model_dump()])
                theirs = [n_best[0].tokens for n_best in search(model, pad(block, model.pad_id), limits, BOS, EOS)]
                count += sum(a != b for a, b in zip(ours, theirs, strict=True))
                print(".", end="", flush=True, file=sys.stderr)
        other_translations.append(count)
    return Counts(difference, other_pieces, other_translations, len(src))


def check(page: Page, path: str, count: str = "1000", *files: str) -> Counts:
    """Compares the model of a run, and prints the counts."""
    [path_of_pairs, *_] = sorted(Path(path).glob("translations/*.tsv"))  # test.tsv, unless the run has no test split
    with path_of_pairs.open(encoding="utf-8", newline="") as file:
        pairs = [row[:2] for row in islice(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 1, 1 + int(count))]
    generator = random.Random(1)
    texts = [[source for source, _ in pairs], [random_text(generator, generator.randrange(1, 30)) for _ in range(1000)]]
    texts += [[*islice(read_lines(Path(name)), 1000)] for name in files]
    counts = compare(page, checkpoint.load(path), pairs, texts)
    print(f"\nlargest difference of a log-probability, {min(PAIRS, len(pairs))} pairs: {counts.difference:.1e}")
    print(f"lines with other pieces (test, random Unicode{''.join(f', {name}' for name in files)}): {counts.pieces}")
    print(f"other translations of {counts.sentences}, plain and with three interventions: {counts.translations}")
    return counts


if __name__ == "__main__":
    with scripts() as empty:
        check(empty, *sys.argv[1:])
