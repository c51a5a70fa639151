"""The page in a browser: its numbers, each action, the address, and that it needs no network. The models are untrained."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

from bad_inputs import run
from browser import new_page
from conftest import ENGLISH, FRENCH, small_settings
from entente.attention import interventions as functions
from entente.attention.interventions import parse
from entente.attention.record import target_log_probabilities
from entente.checkpoint import TrainedRun
from entente.data.alignments import Gold
from entente.data.tokenizer import EOS, Vocabulary
from entente.page import Sentence, Shown, html
from entente.settings import RunSettings
from numerics import model_of
from redraw import redraw

PARTS = [
    {"interventions": [{"mute": "cross", "layer": 2, "head": 3, "to": "zero"}], "bleu": 48.7, "nll": 1.0, "changed": 0.1},
    {"interventions": [{"skip": "decoder", "sublayer": "cross", "layer": 1}], "bleu": 3.2, "nll": 2.0, "changed": 0.9},
]
IMPORTANCE = {"split": "test", "plain": {"bleu": 50.0}, "parts": PARTS}
ERRORS = [[0.5, 0.4, 0.3], [0.25, 0.125, 0.75]]  # the best head is the second of layer 2


def shown(name: str, vocabulary: Vocabulary, kind: str = "transformer", **changes: Any) -> Shown:
    settings = RunSettings(name=name, model=small_settings(kind, **changes).model_dump())
    model, words = model_of(kind, vocabulary, **changes).half().float(), frozenset({"le", "chat", "dort"})
    trained = TrainedRun(model, vocabulary, settings, {}, 7, words)
    return Shown(
        name, f"outputs/{name}", trained, {"test": {"bleu": 51.5}}, IMPORTANCE, ERRORS if kind == "transformer" else [[0.5]]
    )


def models_of(vocabulary: Vocabulary) -> dict[str, list[Shown]]:
    return {
        "transformer": [shown("base", vocabulary)],
        "birnn": [shown("recurrent", vocabulary, "birnn")],
        "both": [shown("base", vocabulary), shown("without", vocabulary, residual=[])],
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> dict[str, Path]:
    """Returns the files of three pages: of a Transformer, of a BiRNN, and of a Transformer with and without residuals."""
    folder, links = tmp_path_factory.mktemp("pages"), frozenset({(0, 0), (1, 1)})
    gold = Gold([(0, 2), (3, 7)], [(0, 3), (4, 9)], frozenset({(0, 0)}), links)
    sentences = [Sentence(FRENCH[1], ENGLISH[1], gold), *map(Sentence, FRENCH, ENGLISH)]
    for name, models in models_of(vocabulary).items():
        (folder / f"{name}.html").write_text(html(models, sentences), encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with new_page() as (page, problems):
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        yield page
        assert problems == []
        assert [url for url in requests if not url.startswith("file:") or not url.partition("#")[0].endswith(".html")] == []


@pytest.mark.parametrize("name", ["grammar", "tatoeba"])
def test_published_pages_are_of_todays_code(name: str) -> None:
    text = (Path(__file__).parents[2] / "outputs" / "published" / name / "page.html").read_text(encoding="utf-8")
    is_current = redraw(text) == text  # pytest would take minutes to explain how the two texts differ
    assert is_current, "python scripts/redraw.py outputs/published/*/page.html"


def opened(browser: Page, path: Path, address: str = "") -> Page:
    browser.goto("about:blank")
    browser.goto(f"{path.as_uri()}{address}")
    browser.wait_for_function("models.every((each) => each.isReady && each.results)")
    return browser


@pytest.fixture
def page(pages: dict[str, Path], browser: Page) -> Page:
    """Returns the page of the Transformer, just opened."""
    return opened(browser, pages["transformer"])


def translation(page: Page, card: int = 0, row: int = 0) -> list[str]:
    pieces = page.locator(".card").nth(card).locator(".row").nth(row).locator(".piece")
    return pieces.evaluate_all("(nodes) => nodes.map((node) => node.firstChild.textContent)")


def changes(page: Page) -> list[dict[str, Any]]:
    return page.evaluate("state.changes[state.open]")


@pytest.mark.parametrize("kind", ["birnn", "both"])
def test_the_numbers_of_each_model_are_torchs(kind: str, pages: dict[str, Path], browser: Page, vocabulary: Vocabulary) -> None:
    page = opened(browser, pages[kind])
    for i, of_page in enumerate(models_of(vocabulary)[kind]):
        src, tgt, chosen = page.evaluate(f"(({{ src, tgt, chosen }}) => [src, tgt, chosen])(models[{i}].results.plain)")
        log_p = target_log_probabilities(of_page.run.model.double(), src, tgt)
        assert chosen == pytest.approx(log_p[range(len(tgt) + 1), [*tgt, EOS]].tolist(), abs=1e-4)


def test_a_sentence_is_typed_and_chosen(page: Page) -> None:
    first = translation(page)
    page.locator("#source").fill("Le chat rouge dort.")
    page.wait_for_function("models[0].results.plain.src.length !== 0 && state.source === 'Le chat rouge dort.'")
    assert translation(page) != first
    expect(page.locator("#unseen")).to_have_text("Not seen in training: rouge")
    page.locator("#source").fill("")
    expect(page.locator("#unseen")).to_have_text("Type a sentence to translate.")
    page.locator("#stored").select_option("0")
    assert translation(page) == first
    page.locator("#source").fill("chat " * 300)
    expect(page.locator(".problem")).to_contain_text("pieces; the page reads at most 128")
    assert page.locator(".card .row").count() == 0, "the translation of another sentence"
    page.locator("#stored").select_option("0")
    expect(page.locator("#source")).to_have_value(FRENCH[1])
    assert translation(page) == first


def test_heads_are_opened_and_muted_and_have_their_numbers(page: Page, vocabulary: Vocabulary) -> None:
    expect(page.locator("#map-title")).to_have_text("cross-attention, layer 2, head 2")
    head = page.locator(".head").nth(5)
    expect(head).to_contain_text("−1.30 BLEU")
    expect(head).to_contain_text("AER 0.750")
    head.locator(".open").click()
    expect(page.locator("#map-title")).to_have_text("cross-attention, layer 2, head 3")
    plain = translation(page)
    head.locator(".mute").click()
    assert changes(page) == [{"mute": "cross", "layer": 2, "head": 3}]
    assert translation(page, row=1) == plain
    assert all(note[0] in "+−0" for note in page.locator(".old small").all_inner_texts())
    expect(page.locator("#python")).to_contain_text('with model.intervene(mute("cross", layer=2, head=3)):')
    page.locator("#reset").click()
    assert changes(page) == [] and translation(page) == plain and page.locator(".old").count() == 0
    similarity = page.evaluate("meanSimilarity(models[0])")
    expect(page.locator(".card")).to_contain_text(f"cosine similarity {similarity:.2f} on average".replace("-", "−"))
    rows = torch.tensor(page.evaluate("models[0].result.cache['encoder.1.hook_resid_post'].map((row) => [...row])"))
    model: Any = shown("base", vocabulary).run.model
    rows = model.encoder_norm(rows).detach()
    cosines = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    assert similarity == pytest.approx(float(cosines[~torch.eye(len(rows), dtype=torch.bool)].mean()), abs=1e-5)
    for kind, count in (("encoder", 6), ("decoder", 6), ("cross", 6)):
        page.locator("#kinds button").nth(["encoder", "decoder", "cross"].index(kind)).click()
        assert page.locator(".head canvas").count() == count
        sums = page.evaluate("headView(models[0]).weights.map((row) => row.reduce((a, b) => a + b))")
        assert sums == pytest.approx([1.0] * len(sums))


def test_switches_sliders_and_the_future(page: Page) -> None:
    page.get_by_label("decoder 1, cross-attention, residual").uncheck()
    page.get_by_label("encoder 2, feed-forward, sublayer").uncheck()
    expected = [{"no_residual": "decoder", "sublayer": "cross", "layer": 1}, {"skip": "encoder", "sublayer": "ff", "layer": 2}]
    assert changes(page) == expected
    expect(page.locator("#switches")).to_contain_text("−46.8 BLEU")
    page.get_by_label("Scores of cross-attention").fill("2")
    assert changes(page) == [*expected, {"scale": "cross", "factor": 4}]
    page.get_by_label("Scores of cross-attention").fill("0")
    page.locator(".chip button").first.click()
    assert changes(page) == expected[1:]
    page.get_by_label("all residual connections").uncheck()
    expect(page.get_by_label("decoder 1, cross-attention, residual")).to_be_disabled()
    page.locator("#reset").click()
    page.locator("#kinds button").nth(1).click()
    assert page.evaluate("models[0].result.weights.decoder[0][0][0].slice(1).every((weight) => weight === 0)")
    expect(page.get_by_label("let the decoder see the future")).to_be_disabled()
    page.locator("#use-reference").click()
    page.get_by_label("let the decoder see the future").check()
    assert page.evaluate("models[0].result.weights.decoder[0][0][0].slice(1).some((weight) => weight > 0)")
    page.evaluate("update({ mode: 'free' })")  # a step of the search has no future to see
    assert changes(page) == []
    page.locator("#reset").click()


@pytest.mark.parametrize("kind", ["transformer", "birnn"])
def test_a_cell_shows_its_numbers_and_its_weight_can_be_set(kind: str, pages: dict[str, Path], browser: Page) -> None:
    page = opened(browser, pages[kind])
    expect(page.locator("#numbers")).to_contain_text("Click a cell of the map")
    page.locator('#map td[data-row="1"][data-column="2"]').click()
    [share] = [step for step in page.locator("#numbers li").all_inner_texts() if "the weight:" in step]
    weight = page.evaluate("headView(models[0]).pieces[1][2]")
    assert float(share.rpartition(": ")[2].replace("−", "-")) == pytest.approx(weight, rel=0.05)
    page.locator("#weight input").fill("0.8")
    expect(page.locator("#numbers")).to_contain_text("a change makes the weight 0.8")
    assert page.evaluate("headView(models[0]).pieces[1][2]") == pytest.approx(0.8)
    place = {"weights": "cross", "layer": 2, "head": 2} if kind == "transformer" else {"weights": "alignment"}
    assert changes(page) == [{**place, "row": 1, "column": 2, "value": 0.8}]
    page.evaluate("update({ source: 'Il a faim.' })")
    assert changes(page) == []
    page.evaluate(f"update({{ source: '{FRENCH[1]}' }})")
    page.locator('#map td[data-row="1"][data-column="2"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("[state.row, state.column]") == [2, 3]
    page.keyboard.press("Escape")
    assert page.evaluate("[state.row, state.column]") == [None, None]


def test_the_target_is_forced_edited_and_searched(page: Page) -> None:
    page.locator(".piece").nth(1).click()
    alternatives = page.locator(".alternatives button")
    assert alternatives.count() == 5
    alternatives.nth(1).click()
    assert page.evaluate("state.mode") == "begins" and len(page.input_value("#target")) > 1
    assert page.evaluate("models[0].tgt.decode(models[0].plain.tgt)").startswith(page.input_value("#target"))
    page.locator("#use-reference").click()
    assert "".join(translation(page)).replace("</s>", "").replace("\u2581", "") == ENGLISH[1].replace(" ", "")
    assert page.evaluate("Boolean(headView(models[0]).links)") and page.locator("#map td.sure").count() > 0
    page.locator("#unit-words").check()
    assert page.locator("#map tbody th").all_inner_texts() == ["The", "black", "</s>"]  # as the gold links split it
    page.locator("#unit-pieces").check()
    page.locator("#mode").select_option("free")
    page.get_by_text("Five best").click()
    scores = page.evaluate("models[0].results.nBest.map(({ score }) => score)")
    assert len(scores) == page.locator("#details li").count() > 1
    best = page.locator("#details li button").all_inner_texts()
    page.locator("#details li button").nth(1).click()
    assert page.evaluate("state.mode") == "is" and page.locator("#details li button").all_inner_texts() == best


AT_FIRST = ["language=de", "open=-1", "row=99", "changes=[[null],[]]", 'changes=[[{"no_residual":"foo"}],[]]']
HOSTILE = [*AT_FIRST, 'open="x"', "kind=cross&layer=0", "kind=x", "kind=cross&head=0", "head=1.5", 'mass="x"', "mode=no"]
HOSTILE += ["place=-1", 'changes=[["x"],[]]', "changes=[[5],[]]"]
HOSTILE += [f"changes=[[{change}],[]]" for change in ('{"scale":"cross"}', '{"mute":"cross","head":99}')]
HOSTILE += [f"changes=[[{change}],[]]" for change in ('{"mute":"cross","to":[1,2]}', '{"mute":"readout","part":"state"}')]
REFUSED_BY_BIRNN = {
    '{"mute":"alignment"}': "no separate heads",
    '{"mute":"readout"}': "or there is one too many",
    '{"mute":"alignment","part":"state"}': "or there is one too many",
    '{"no_residual":"both","layer":1}': "no such sublayer",
}


CHANGE_ADDRESS = """(hash) => new Promise((done) => {
    for (const id of ["cards", "map", "python"]) document.getElementById(id).replaceChildren();  // to be drawn again
    for (const each of models) each.results = null;
    addEventListener("hashchange", () => done(), { once: true });
    location.hash = hash;
})"""


def at_addresses(browser: Page, path: Path, addresses: list[str]) -> Iterator[tuple[str, Page]]:
    """Opens a page at the first address, and then changes its address to each of the others."""
    for address in addresses:
        if address == addresses[0]:
            opened(browser, path, f"#{address}")
        else:
            browser.evaluate(CHANGE_ADDRESS, address)
        yield address, browser


@pytest.mark.parametrize("addresses", [HOSTILE, *([address] for address in AT_FIRST[1:])])
def test_any_address_gives_a_whole_page(addresses: list[str], pages: dict[str, Path], browser: Page) -> None:
    """A change that the model cannot have is refused in a line; anything else that makes no sense is left at its default."""
    for address, page in at_addresses(browser, pages["transformer"], addresses):
        assert len(translation(page)) > 1 and page.locator("#map td").count() > 4 and page.locator("#python").text_content()
        text = page.locator("body").inner_text()
        assert "NaN" not in text and "undefined" not in text, address
        assert page.locator('#map td[tabindex="0"]').count() == 1, address
        if "changes=[[{" in address:
            problem = "a value is missing" if "scale" in address else "this model has no such thing"
            expect(page.locator(".problem"), address).to_contain_text(problem)


def test_a_page_refuses_changes_that_a_birnn_cannot_have(pages: dict[str, Path], browser: Page) -> None:
    problems = {f"changes=[[{change}],[]]": problem for change, problem in REFUSED_BY_BIRNN.items()}
    for address, page in at_addresses(browser, pages["birnn"], [*problems]):
        expect(page.locator(".problem"), address).to_contain_text(problems[address])
        assert page.evaluate("models[0].results.now") is None, address


def test_a_model_without_a_causal_mask_says_that_its_numbers_are_not_those_of_the_search(
    vocabulary: Vocabulary, browser: Page, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(
        html([shown("seer", vocabulary, mask_future=False)], [Sentence(FRENCH[1], ENGLISH[1])]), encoding="utf-8"
    )
    page = opened(browser, tmp_path / "page.html")
    expect(page.locator(".problem")).to_contain_text("no causal mask")
    page.locator("#use-reference").click()
    assert page.locator(".problem").count() == 0


def test_a_slider_goes_on_under_a_finger(page: Page) -> None:
    """A touch does not give a slider the focus."""
    page.evaluate("""() => {
        const [slider] = document.querySelectorAll("#switches input[type=range]");
        for (const value of [1, 2]) {
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }
        window.same = slider.isConnected;
        slider.dispatchEvent(new Event("change", { bubbles: true }));
    }""")
    assert page.evaluate("same") and changes(page) == [{"scale": "encoder", "factor": 4}]
    page.locator("#reset").click()
    assert page.locator("#switches input[type=range]").first.input_value() == "0"


def test_what_was_typed_and_what_was_chosen_last_counts(page: Page) -> None:
    page.evaluate(
        """(other) => {
        const source = byId("source");
        source.value = "Le chat rouge";
        source.dispatchEvent(new Event("input"));
        byId("stored").value = other;
        byId("stored").dispatchEvent(new Event("change"));
    }""",
        "1",
    )
    page.wait_for_timeout(400)
    assert page.evaluate("state.source") == FRENCH[0]
    page.locator("#source").fill("Le chat rouge dort")
    page.locator(".mute").first.click()
    assert page.evaluate("state.source") == "Le chat rouge dort" and len(changes(page)) == 1
    page.locator("#reset").click()


def test_python_prints_what_the_page_shows(page: Page) -> None:
    for source, call in (
        ("Le chat dort.", "beam=1)"),
        ("LE CHAT DORT.", 'beam=1, prefix="")'),
        ("chat " * 61, 'beam=1, prefix="")'),
        ("Il dort. Il mange. Oui.", 'beam=1, prefix="")'),
        ("Il dort. Il mange.", "beam=1)"),
        ("Он спит. Она ест. Они идут.", 'beam=1, prefix="")'),
    ):
        page.evaluate(f"update({{ source: {source!r} }})")
        expect(page.locator("#python")).to_contain_text(call)


def test_a_masked_weight_cannot_be_set(pages: dict[str, Path], browser: Page) -> None:
    page = opened(browser, pages["transformer"], "#kind=decoder&layer=1&head=1&row=1&column=1")
    expect(page.locator("#weight input")).to_be_enabled()
    page.locator('#map td[data-row="1"][data-column="3"]').click()
    expect(page.locator("#weight input")).to_be_disabled()
    page.locator('#map td[data-row="0"][data-column="0"]').click()
    expect(page.locator("#weight input")).to_be_disabled()
    page.evaluate("update({ words: true, row: null, column: null })")
    page.locator(".piece").nth(2).click()
    assert page.evaluate("state.row") is None, "a piece is no row of a map of words"
    page.evaluate("update({ words: false, source: '' })")
    expect(page.locator("#weight")).to_be_hidden()


def test_the_total_is_the_sum_of_the_numbers_shown(page: Page) -> None:
    page.locator(".mute").first.click()
    for ended in (True, False):
        page.evaluate(f"models[0].plain.ended = {str(ended).lower()}; draw()")
        notes = [float(note.replace("−", "-")) for note in page.locator(".old .piece small").all_inner_texts()]
        total = re.search(r"ln p; ([+−]?[\d.]+) in total", page.locator(".card").inner_text())
        assert total and float(total[1].replace("−", "-")) == pytest.approx(sum(notes), abs=0.006 * len(notes))


def test_the_address_restores_everything_and_python_reads_it(pages: dict[str, Path], browser: Page) -> None:
    page = opened(browser, pages["both"])
    expect(page.locator(".card h3").first).to_contain_text("base 51.5 BLEU on test")
    expect(page.locator(".card h3").nth(1)).to_contain_text("trained with model.residual=[]")
    page.evaluate("update({ open: 1 })")
    page.locator(".mute").first.click()
    page.evaluate("update({ source: 'Le chat & le chien ont #1 faim.', row: 2, mass: 50, language: 'fr', words: true })")
    page.evaluate("toggle({ scale: 'encoder', factor: 0.5 })")
    state, shown_translation = page.evaluate("state"), translation(page, 1)
    page = opened(browser, pages["both"], page.evaluate("location.hash"))
    assert page.evaluate("state") == state and translation(page, 1) == shown_translation
    expect(page.locator("h2").first).to_have_text("Traduction")
    assert [page.locator(".card").nth(i).locator(".old").count() for i in (0, 1)] == [0, 1]
    page = opened(browser, pages["both"], "#open=9&changes=[[{&source=Le%20chat&nothing=1")
    assert page.evaluate("[state.open, state.source, state.changes]") == [0, "Le chat", [[], []]]
    page = opened(browser, pages["both"], "#changes=7")
    assert page.evaluate("state.changes") == [[], []]


def test_interventions_are_written_as_python_writes_them(page: Page) -> None:
    made = [
        functions.mute("cross", layer=2, head=1),
        {"mute": "cross", "layer": None, "head": 1},
        functions.mute("decoder", to="uniform"),
        functions.mute("encoder", layer=1, head=2, to=[0.5, -1.0]),
        functions.mute_part("word"),
        functions.scale("cross", 0.5, layer=1),
        functions.no_residual(),
        functions.no_residual("decoder", "cross", layer=2),
        functions.no_residual(sublayer="ff"),
        functions.skip("encoder", "self"),
        functions.weights("cross", 2, [0.25, 0.75], layer=1, head=2),
        functions.cell("alignment", 1, 2, 0.8),
        functions.unmask("future"),
    ]
    for intervention, text in zip(made, page.evaluate("(all) => all.map(asPython)", made), strict=True):
        assert parse(eval(text, vars(functions))) == parse(intervention)


def test_it_fits_a_phone_and_has_labels(pages: dict[str, Path], browser: Page) -> None:
    browser.set_viewport_size({"width": 360, "height": 844})
    browser.emulate_media(color_scheme="dark")
    for path in pages.values():
        for language in ("en", "fr"):
            page = opened(browser, path, f"#language={language}&row=1&column=1")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert page.evaluate("document.documentElement.lang") == language
            nameless = "(nodes) => nodes.filter((node) => !node.labels?.length && !node.ariaLabel && !node.textContent).length"
            assert page.locator("button, input, select").evaluate_all(nameless) == 0
    browser.set_viewport_size({"width": 1600, "height": 1000})
    browser.emulate_media(color_scheme="light")


def test_every_text_exists_in_both_languages(page: Page) -> None:
    english, french = page.evaluate("[TEXTS.en, TEXTS.fr]")
    places = [{key: {*re.findall(r"{\w+}", text)} for key, text in texts.items()} for texts in (english, french)]
    assert places[0] == places[1]


def test_the_command_writes_a_page_of_a_run(base: Path, tmp_path: Path, browser: Page) -> None:
    ended = run(f"page run output={tmp_path / 'page.html'} threads=1", base)
    assert ended.code == 0, ended.err
    page = opened(browser, tmp_path / "page.html")
    assert page.locator("#stored option").count() == 20
    lines = (base / "run/translations/valid.tsv").read_text(encoding="utf-8").splitlines()
    assert page.evaluate("Object.values(CONTENT.sentences[0])") == [*lines[1].split("\t")[:2], None]
    assert page.evaluate("CONTENT.models[0].path") == "run" and page.locator(".card h3").inner_text().startswith("run ")
    for file in ("checkpoints/best.ckpt", "metrics.json"):  # a model that is kept on its own, with its scores next to it
        shutil.copy(base / "run" / file, tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    (tmp_path / "metrics.json").write_text(json.dumps(metrics | {"news": metrics["valid"]}))  # a test set by name
    (tmp_path / "in.txt").write_text("chat " * 200 + "\n" + (base / "in.txt").read_text(encoding="utf-8"), encoding="utf-8")
    ended = run(f"page {tmp_path / 'best.ckpt'} input={tmp_path / 'in.txt'} output={tmp_path / 'lines.html'}", base)
    assert ended.code == 0, ended.err
    page = opened(browser, tmp_path / "lines.html")
    assert page.evaluate("CONTENT.sentences[1]") == {"source": "Le chien suit le garçon.", "reference": "", "gold": None}
    assert page.locator(".card h3").inner_text().startswith(f"{tmp_path.name}/best.ckpt ")
    assert page.evaluate("CONTENT.models[0].score.split") == "news"
