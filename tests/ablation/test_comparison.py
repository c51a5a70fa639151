"""Tests the comparison of a suite: every variant has a row with its scores and its verdict."""

import base64
import csv
import dataclasses
import gzip
import json
import lzma
import math
import random
import re
import runpy
import statistics
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from torch.utils.tensorboard import SummaryWriter

from bad_inputs import run
from browser import new_page
from entente.ablation.charts import draw
from entente.ablation.comparison import Comparison, Row, compare
from entente.ablation.report import chance, interval, markdown, notes, page, show
from entente.ablation.runs import Suite, read_suite
from entente.ablation.significance import judge, randomisation
from entente.errors import InputError
from entente.evaluation import Evaluation, write_translations
from entente.files import csv_text, write_json
from publish import publish

ROOT = Path(__file__).parents[2]
SAMPLES = 200
UNIGRAM = 5.6
WORDS = "the a dog cat bird horse sees hears follows likes not old red small big house garden today never with of".split()
SIZES = {"valid": 31, "test": 41, "test_long": 37}
STEPS = range(100, 1100, 100)
PLACES = ("encoder 1 self", "encoder 2 self", "decoder 1 self", "decoder 1 cross")
ASPECTS = ("gradient_norm", "update_ratio", "update_cosine", "position_cosine", "attention_entropy", "score_variance")


@cache
def evaluation(split: str, seed: int, damage: float, nll: float) -> Evaluation:
    """Returns the evaluation of translations in which each word is replaced by a random word with probability `damage`. If
    `damage` is at least 1, the translations are empty. All runs have the same references."""
    corpus, noise = random.Random(split), random.Random(f"{split} {seed} {damage}")
    references = [" ".join(corpus.choices(WORDS, k=corpus.randrange(3, 28))) for _ in range(SIZES[split])]
    damaged = [[noise.choice(WORDS) if noise.random() < damage else word for word in line.split()] for line in references]
    return Evaluation(references, references, ["" if damage >= 1 else " ".join(line) for line in damaged], nll, cut=0)


@cache
def metrics_of(split: str, seed: int, damage: float, nll: float) -> dict[str, Any]:
    return evaluation(split, seed, damage, nll).metrics(["chrf"])  # TER of many errors is slow


def write_run(
    folder: Path,
    seed: int,
    damage: float = 0.1,
    nll: float = 0.5,
    unigram: float = UNIGRAM,
    variant: str = "baseline",
    commit: str | None = None,
) -> None:
    """Writes the files of a finished run, as training does. See `evaluation` for `damage`."""
    write_translations(folder, {split: evaluation(split, seed, damage, nll) for split in SIZES})
    metrics = {split: metrics_of(split, seed, damage, nll) for split in SIZES}
    write_json(folder / "metrics.json", {**metrics, "test@alone": metrics["test"]})
    about = {"steps": 1000, "seconds": 9.5, "parameters": 1000 + seed, "tokens_per_second": 100.0 * seed, "commit": commit}
    write_json(folder / "training.json", {**about, "unigram_nll": unigram})
    write_config(folder, seed, variant)
    write_events(folder, damage)


def write_config(folder: Path, seed: int, variant: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = {"name": "grammar", "tokenizer": {"vocab_size": 4000}}
    config = {"data": data, "variant": variant, "seed": seed, "model": {"setting_of": variant}, "output_dir": "/somewhere"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def write_events(folder: Path, damage: float) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step in STEPS:
            learnt = 1 - math.exp(-step / (150 + 400 * damage))
            writer.add_scalar("valid/bleu", 100 * max(0.0, 1 - damage) * learnt, step)
            writer.add_scalar("train/tokens_per_second", 3.0 if step == 400 else 140.0, step)  # one slow step
            writer.add_scalar("train/loss", math.nan if damage > 2 else 6 - 5 * learnt, step)
            for aspect in ASPECTS:
                for i, place in enumerate(PLACES):
                    value = (0.2 + 0.1 * i) * math.exp(-damage * step / 300)
                    writer.add_tensor(f"why/{aspect}/{place}", torch.tensor(value), step)


def write_suite(root: Path, runs: Mapping[str, dict[str, Any] | None]) -> Suite:
    """Writes a suite and reads it. `runs` maps each run's directory name to the arguments of `write_run`, or to None if the run
    has not finished. The variants stay in this order."""
    root.mkdir()
    for name, arguments in runs.items():
        variant, _, seed = name.rpartition("-seed")
        if arguments is None:
            write_config(root / name, int(seed), variant)
        else:
            write_run(root / name, int(seed), **arguments, variant=variant)
    variants = list(dict.fromkeys(name.rpartition("-seed")[0] for name in runs))
    suite = read_suite(root)
    return dataclasses.replace(suite, variants=variants, runs=[run for variant in variants for run in suite.of(variant)])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Returns a suite with a baseline and five variants. One shows no difference, one is worse, one translates
    nothing, one diverged before it wrote any files, and one has a run (seed 2) that has not finished."""
    damage = {"baseline": (0.1, 0.12), "twin": (0.11, 0.115), "damaged": (0.5, 0.6), "empty": (1, 1), "gone": None}
    runs: dict[str, dict[str, Any] | None] = {}
    for variant, shares in damage.items():
        for seed in (1, 2):
            stuck = {"nll": 5.5} if variant == "empty" else {}
            runs[f"{variant}-seed{seed}"] = {"damage": shares[seed - 1], **stuck} if shares else None
    suite = write_suite(tmp_path_factory.mktemp("suites") / "small", runs | {"half-seed1": {"damage": 0.4}, "half-seed2": None})
    for seed in (1, 2):
        (suite.directory / f"gone-seed{seed}.log").write_text("step 1/9\ndiverged: the loss is nan\n")
    return suite


@pytest.fixture(scope="module")
def comparison(suite: Suite) -> Comparison:
    return compare(suite, SAMPLES)


def row(comparison: Comparison, variant: str) -> Row:
    return next(row for row in comparison.rows if row["variant"] == variant)


def test_seeds_decide_and_the_bootstrap_stands_beside(suite: Suite, comparison: Comparison) -> None:
    """Differences are those of `judge`; "half", whose only run is far from the baseline's, is compared by its sentences."""
    bleu = {name: [run.metrics["test"]["bleu"] for run in suite.of(name) if run.metrics] for name in suite.variants}
    judgement = judge(bleu)
    assert comparison.judgements["test"].sigma == judgement.sigma and set(judgement.differences) == {"twin", "damaged", "empty"}
    methods = {"twin": "Dunnett", "damaged": "Welch", "empty": "Welch", "half": "randomisation"}
    for variant, method in methods.items():
        numbers = {name: row(comparison, variant)[f"test {name}"] for name in ("difference", "low", "high", "p", "method")}
        assert numbers["method"] == method
        if method != "randomisation":
            assert tuple(numbers.values()) == judgement.differences[variant]
        spread = [row(comparison, variant)[f"test {name}"] for name in ("bootstrap_low", "bootstrap_high", "sentence_sd")]
        assert spread[0] < numbers["difference"] < spread[1] and spread[2] > 0
        assert (row(comparison, variant)["test seed_sd"] is None) == (variant == "half")
    assert row(comparison, "twin")["test nll_p"] == 1 and row(comparison, "empty")["test nll_p"] < 0.05
    for metric in ("bleu", "chrf"):
        values = [run.metrics["test"][metric] for run in suite.of("twin")]
        expected = statistics.mean(values), statistics.stdev(values)
        assert [row(comparison, "twin")[f"test {metric}{end}"] for end in ("", "_sd")] == pytest.approx(expected)
    text = " ".join(notes(comparison))
    assert f"a standard deviation of {judgement.sigma:.2f} BLEU (2 degrees of freedom" in text
    assert f"a difference of at least {judgement.smallest:.2f} BLEU is significant" in text


@pytest.mark.parametrize(
    ("p", "low", "high", "expected"),
    [(0.3, 0.1, 0.9, True), (0.01, -0.9, 0.1, True), (0.3, -1, 1, False), (0.01, -2, -1, False)],
)
def test_a_disagreement_of_bootstrap_and_verdict_is_said(p: float, low: float, high: float, expected: bool) -> None:
    text = chance({"test p": p, "test sentence_sd": 0.25, "test bootstrap_low": low, "test bootstrap_high": high}, "test")
    assert text.startswith("sentences ± 0.25") and ("disagrees" in text) == expected


def test_an_interval_is_cut_where_no_difference_of_bleu_can_lie() -> None:
    assert interval(-844.5, 3.0) == " [−100.00, +3.00]"


@pytest.mark.usefixtures("without_charts")
def test_bars_of_a_split_whose_name_has_a_dot(suite: Suite, comparison: Comparison) -> None:
    rows = [{key.replace("test ", "test.fr "): value for key, value in row.items()} for row in comparison.rows]
    dotted = dataclasses.replace(comparison, splits=["test.fr"], first="test.fr", rows=rows)
    widths, expected = (re.findall(r"width:([\d.]+)%", page(each, suite)) for each in (dotted, comparison))
    assert widths == expected and widths


def test_stored_counts_give_the_p_of_the_translations(suite: Suite) -> None:
    """Counts that went through JSON give the p that sacreBLEU computes by approximate randomisation of the translations."""
    runs = [suite.of(variant)[0] for variant in ("baseline", "twin", "half")]
    texts = [run.translations("test") for run in runs]
    systems: Any = [(run.variant, text["translation"]) for run, text in zip(runs, texts, strict=True)]
    _, results = PairedTest(systems, {"BLEU": BLEU()}, [texts[0]["reference"]], test_type="ar", n_samples=SAMPLES)()
    base, *counts = (np.array(json.loads(json.dumps(run.counts("test")[0]))) for run in runs)
    for number, (result, array) in enumerate(zip(results["BLEU"][1:], counts, strict=True)):  # type: ignore[arg-type]
        difference = randomisation(base, {"other": array}, SAMPLES)["other"]
        assert difference.p == result.p_value and (number == 1 or difference.p > 0.05)
        assert difference.difference == pytest.approx(result.score - results["BLEU"][0].score)  # type: ignore[union-attr]
    assert randomisation(base, {"equal": base})["equal"].p == 1  # sacreBLEU's would be 1 / (samples + 1)


@pytest.mark.parametrize("variants", [1, 5, 6])
def test_a_chart_has_a_panel_for_each_variant(variants: int) -> None:
    panels = {f"variant{i}": [([(1, 20.0), (2, 30.0)], {"color": "red"})] for i in range(variants)}
    [chart] = charts(draw(panels, "step", "BLEU"))
    assert all(f">{name}</text>" in chart for name in panels)


def charts(html: str) -> list[str]:
    return [gzip.decompress(base64.b64decode(image)).decode() for image in re.findall(r"data-svg=\"([^\"]+)", html)]


def test_every_variant_is_a_row_with_its_verdict(comparison: Comparison) -> None:
    assert {row["variant"]: (row["verdict"], row["finished"], row["runs"]) for row in comparison.rows} == {
        "baseline": ("baseline", 2, 2),
        "twin": ("no difference found", 2, 2),
        "damaged": ("worse", 2, 2),
        "empty": ("failed", 2, 2),
        "gone": ("diverged", 0, 2),
        "half": ("not finished", 1, 2),
    }
    assert row(comparison, "half")["test bleu_sd"] is None  # seed 2 has not finished
    baseline = row(comparison, "baseline")
    assert [baseline[name] for name in ("test nll", "parameters", "tokens_per_second")] == [0.5, 1001, 150.0]
    assert baseline["test@alone bleu"] == baseline["test bleu"]
    assert comparison.splits == ["test", "test_long", "test@alone"]
    assert "version:" in comparison.signature


VERDICTS: list[tuple[str, dict[str, Any] | None, str]] = [
    ("better", {"damage": 0.0}, "better (1 seed)"),
    ("worse", {"damage": 0.7}, "worse (1 seed)"),
    ("nearly equal", {"damage": 0.31}, "no difference found"),
    ("identical", {"damage": 0.3}, "no difference found"),
    ("NaN", {"nll": math.nan}, "diverged"),
    ("worse than guessing", {"nll": math.log(4000) + 1.01}, "diverged"),
    ("not so bad", {"nll": math.log(4000) + 0.99, "unigram": 99.0}, "better (1 seed)"),
    ("empty, with a low NLL", {"damage": 1}, "failed"),
    ("empty, on the plateau", {"damage": 1, "nll": UNIGRAM}, "failed"),
    ("on the plateau", {"nll": UNIGRAM, "damage": 0.7}, "worse (1 seed)"),
    ("unfinished", None, "not finished"),
]


def test_verdicts(tmp_path: Path) -> None:
    runs = {"baseline-seed1": {"damage": 0.3}, **{f"{name}-seed1": arguments for name, arguments, _ in VERDICTS}}
    rows = compare(write_suite(tmp_path / "suite", runs), 1000).rows[1:]
    assert [(row["variant"], row["verdict"]) for row in rows] == [(name, verdict) for name, _, verdict in VERDICTS]
    assert all((row.get("test p") == 1) == (row.get("test difference") == 0) for row in rows)  # equal translations


def test_a_difference_counts_if_seeds_agree_and_none_failed(tmp_path: Path) -> None:
    damage = {"baseline": (0.3, 0.31), "torn": (0.9, 0.0), "worse": (0.9, 0.91), "empty": (0.31, 1)}
    runs = {f"{name}-seed{seed}": {"damage": shares[seed - 1]} for name, shares in damage.items() for seed in (1, 2)}
    compared = compare(write_suite(tmp_path / "suite", runs), SAMPLES)
    assert [row["verdict"] for row in compared.rows] == ["baseline", "no difference found", "worse", "failed"]


def test_without_a_finished_baseline_nothing_is_compared_and_there_is_a_page(tmp_path: Path) -> None:
    for runs, expected in (
        ({"baseline-seed1": None, "other-seed1": {}}, "not compared"),
        ({"baseline-seed1": None, "other-seed1": None}, "not finished"),
    ):
        suite = write_suite(tmp_path / expected, runs)
        compared = compare(suite, SAMPLES)
        assert [row["verdict"] for row in compared.rows] == ["not finished", expected]
        assert all("other" in text for text in (page(compared, suite), csv_text(compared.rows)))


@pytest.mark.usefixtures("without_charts")
def test_a_commit_that_two_clones_abbreviate_differently_is_no_difference(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", {"baseline-seed1": {"commit": "4a41b76"}, "other-seed1": {"commit": "4a41b7663"}})
    assert suite.differences() == {}


def test_other_commits_and_a_missing_test_set_are_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {"baseline-seed1": {"commit": "a" * 9}, "other-seed1": {"damage": 0.7, "commit": "b" * 9}}
    suite = write_suite(tmp_path / "suite", runs)
    for path in suite.directory.glob("*/metrics.json"):
        write_json(path, {"valid": json.loads(path.read_text())["valid"]})
    suite = read_suite(suite.directory)
    compared = compare(suite, SAMPLES)
    assert compared.rows[1]["verdict"] == "worse (1 seed)" and compared.rows[1]["valid difference"] < -20
    show(compared, suite)
    for form in (page(compared, suite), capsys.readouterr().out):
        assert "BLEU valid" in form
        assert all(text in form for text in ("commit", "a" * 7, "b" * 7))


def test_rows_stand_for_the_runs_that_were_published(suite: Suite, comparison: Comparison, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):  # the second call overwrites the files of the first
        publish(suite, tmp_path)
        contents.append({str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == ["runs.jsonl.xz", "translations.tsv.xz"]
    heading, *lines = [line.split("\t") for line in lzma.decompress(contents[0]["translations.tsv.xz"]).decode().splitlines()]
    assert heading == ["split", "source", "reference", "baseline", "twin", "damaged", "empty", "half"]
    assert {line[0] for line in lines} == {"test", "test_long"}
    rows = read_suite(tmp_path)  # runs that may still finish are not published
    assert rows.variants == suite.variants and all(run.row for run in rows.runs)
    assert [run.seed for run in rows.of("half")] == [1] and [run.diverged for run in rows.of("gone")] == [True, True]
    compared = compare(rows, SAMPLES)
    curves = [[value for _, value in each.runs[0].history["valid/bleu"]] for each in (suite, rows)]
    assert compared.rows[:5] == comparison.rows[:5] and curves[1] == pytest.approx(curves[0], rel=1e-5)


def test_what_was_published_stays_when_its_suite_goes_on_from_rows(tmp_path: Path) -> None:
    """The translations of variants that only have rows; variants that have the same name; and a suite without a test set."""
    folder = write_suite(tmp_path / "first", {"baseline-seed1": {}, "cut-seed1": {"damage": 0.3}}).directory
    write_run(folder / "cut-seed1-2", 1, damage=0.6, variant="cut")
    with (folder / "cut-seed1-2" / "config.yaml").open("a") as config:
        config.write("optim: {lr: 0.5}\n")
    first = read_suite(folder)
    publish(first, tmp_path / "rows")
    rows = read_suite(tmp_path / "rows")
    assert first.variants == rows.variants == ["baseline", "cut", "cut-seed1-2"]
    bleu = [[row["test bleu"] for row in compare(each, SAMPLES).rows] for each in (first, rows)]
    assert bleu[0] == bleu[1] and len({*bleu[0]}) == 3
    write_run(tmp_path / "rows" / "new-seed1", 1, damage=0.2, variant="new")
    kept = (tmp_path / "rows" / "translations.tsv.xz").read_bytes()
    publish(read_suite(tmp_path / "rows"), tmp_path / "rows")
    before, after = (
        [line.split("\t") for line in lzma.decompress(content).decode().splitlines()]
        for content in (kept, (tmp_path / "rows" / "translations.tsv.xz").read_bytes())
    )
    assert after[0] == [*before[0], "new"] and [line[:-1] for line in after] == before

    for path in first.directory.glob("*/metrics.json"):
        write_json(path, {"valid": json.loads(path.read_text())["valid"]})
    publish(read_suite(first.directory), tmp_path / "valid")
    assert compare(read_suite(tmp_path / "valid"), SAMPLES).rows[1]["verdict"] == "worse (1 seed)"


def test_sentences_are_compared_even_if_the_baseline_has_not_finished(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", {"baseline-seed1": None, "a-seed1": {}, "b-seed1": {"damage": 0.3}})
    path = suite.directory / "b-seed1" / "translations" / "test.tsv"
    path.write_text(path.read_text().rpartition("\n")[0].rpartition("\n")[0] + "\n")
    with pytest.raises(InputError, match="b-seed1: its test sentences are not those of .*a-seed1"):
        compare(read_suite(suite.directory), SAMPLES)


def test_a_difference_is_that_of_the_means_whatever_the_test(tmp_path: Path) -> None:
    runs = {f"baseline-seed{seed}": {"damage": 0.1 + 0.01 * seed} for seed in (1, 2, 3)}
    compared = compare(write_suite(tmp_path / "suite", {**runs, "far-seed2": {"damage": 0.9}}), SAMPLES)
    base, far = compared.rows
    assert far["test method"] == "randomisation" and far["test difference"] == pytest.approx(
        far["test bleu"] - base["test bleu"]
    )
    shares = {"baseline-seed1": 0.3, "torn-seed1": 0.1, "torn-seed2": 0.8, "torn-seed3": 0.9}
    runs = {name: {"damage": share} for name, share in shares.items()}
    torn = compare(write_suite(tmp_path / "torn", runs), SAMPLES).rows[1]
    assert torn["test difference"] < 0 and torn["verdict"] == "no difference found"  # its first run is better


def test_the_split_that_decides_is_one_that_all_runs_have(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", {"baseline-seed1": {}, "other-seed1": {"damage": 0.7}})
    path = suite.directory / "baseline-seed1" / "metrics.json"
    metrics = json.loads(path.read_text())
    for kept, expected in ((["valid", "test_long"], ["test_long", "test", "test@alone"]), (["valid"], ["valid"])):
        write_json(path, {split: metrics[split] for split in kept})
        compared = compare(read_suite(suite.directory), SAMPLES)
        assert compared.splits[: len(expected)] == expected and compared.rows[1]["verdict"] == "worse (1 seed)"


def test_settings_are_listed_if_variants_of_a_suite_share_an_ablation(suite: Suite, tmp_path: Path) -> None:
    mixed = write_suite(tmp_path / "suite", {"baseline-seed1": {}, "other-seed1": {}})
    assert not mixed.differences() and not suite.differences().get("model.setting_of")
    config = mixed.directory / "other-seed1" / "config.yaml"
    config.write_text(config.read_text().replace("variant: other", "variant: baseline"))
    assert read_suite(mixed.directory).differences()["model.setting_of"] == ["baseline", "other"]


def test_the_csv_has_all_numbers_and_no_name_is_a_command_to_the_terminal(
    comparison: Comparison, suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = comparison.rows
    judgements = {"\x1b[2J": comparison.judgements["test"]}
    hostile = dataclasses.replace(comparison, rows=[{**first, "variant": "\x1b[2J"}, *rest], judgements=judgements)
    lines = list(csv.reader(csv_text(comparison.rows).splitlines()))
    values = {key: "" if value is None else str(value) for key, value in row(comparison, "damaged").items()}
    cells = dict(zip(lines[0], lines[3], strict=True))
    assert cells == values | dict.fromkeys(cells.keys() - values, "")
    show(hostile, suite)
    assert "\x1b[2J" not in capsys.readouterr().out


def test_the_markdown_has_a_line_per_variant(comparison: Comparison) -> None:
    hostile = dataclasses.replace(comparison, rows=[{**comparison.rows[0], "variant": "a|b\n"}, *comparison.rows[1:]])
    lines = [line for line in markdown(hostile).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(comparison.rows) and len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert all(f"| {row['variant']} | {row['verdict']} |" in "".join(lines) for row in comparison.rows[1:])


def test_the_page_in_a_browser(suite: Suite, comparison: Comparison, tmp_path: Path) -> None:
    """The page loads nothing else, has the verdicts and bars to scale, sorts its table, and fits a phone and paper."""
    html = page(comparison, suite)
    assert not re.search(r"url\(|@import|<link|<iframe|src=\"(?!data:)|fetch\(|XMLHttp", html)
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with new_page() as (browser, problems):
        browser.goto((tmp_path / "page.html").as_uri())
        browser.wait_for_function("[...document.images].every(image => image.src)")
        text = " ".join(browser.locator("body").inner_text().split())
        assert all(row["variant"] in text and row["verdict"] in text for row in comparison.rows)
        assert comparison.signature in text and text.count("reference:") == 5 == text.count("empty: (empty)")
        assert browser.locator("h1").inner_text() == "small"
        names = browser.locator(".sort tbody td:first-child")
        for click, variant in enumerate(("baseline", "empty", "baseline")):  # by BLEU: the lowest, then the highest first
            if click:
                browser.locator("th", has_text="BLEU test").click()
            assert names.first.inner_text() == variant
        assert names.all_inner_texts()[-1] == "gone"  # without a score, last in either order
        images = browser.locator("img").all()
        assert images and all(image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0 for image in images)
        cells = "[...document.querySelectorAll('.bars > :nth-child(4n + 2)')]"
        bars = f"{cells}.map(cell => [cell, cell.querySelector('i:not(.range)')])"
        shares = browser.evaluate(f"{bars}.map(([cell, bar]) => bar.className ? 0 : bar.offsetWidth / cell.offsetWidth)")
        values = [row.get("test difference") or 0.0 for row in comparison.rows]
        expected = [abs(value) / (max(values) - min(values)) for value in values[1:]]
        assert sorted(shares) == pytest.approx(sorted(expected), abs=0.01)
        browser.get_by_text("damaged: worse").click()
        assert browser.locator("details[open] img").is_visible()
        browser.set_viewport_size({"width": 390, "height": 844})
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
        browser.set_viewport_size({"width": 1047, "height": 700})  # A4 landscape without its margins
        browser.emulate_media(media="print")
        assert browser.evaluate("Math.max(...[...document.querySelectorAll('table')].map(t => t.offsetWidth))") < 1047
        browser.pdf(path=tmp_path / "page.pdf")
        assert browser.locator("details:not([open])").count() == 0 < browser.locator("details").count()
        assert problems == []
    learning, *_, diagnosis = charts(html)
    assert all(f">{name}</text>" in learning for name in ("twin", "damaged", "empty", "half"))
    assert all(f">{text}</text>" in diagnosis for text in ("gradient norm", "self-attention", "layer 2", "decoder", "baseline"))


@pytest.mark.usefixtures("without_charts")
def test_the_command_takes_a_directory_and_so_does_the_script_that_publishes(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(f"compare {suite.directory} output={tmp_path / 'out'} samples={SAMPLES}", tmp_path)
    assert (done.code, done.err) == (0, "") and done.out.splitlines()[-1] == str(tmp_path / "out" / "comparison.html")
    assert all(variant in done.out for variant in suite.variants)
    assert (tmp_path / "out" / "comparison.csv").read_text() == csv_text(compare(read_suite(suite.directory), SAMPLES).rows)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    small = write_suite(tmp_path / "small", {"baseline-seed1": {}, "twin-seed1": {"damage": 0.2}})
    monkeypatch.setattr(sys, "argv", ["publish.py", str(small.directory), str(tmp_path / "published")])
    runpy.run_path(str(ROOT / "scripts" / "publish.py"), run_name="__main__")
    assert "twin" in (tmp_path / "published" / "comparison.csv").read_text()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("baseline-seed1/metrics.json", "{"),
        ("baseline-seed1/config.yaml", "a: ["),
        ("baseline-seed1/translations/test.tsv", "a\tb\tc\nlost\n"),
        ("runs.jsonl.xz", "\0"),
        ("runs.jsonl.xz", lzma.compress(b"{")),
        ("runs.jsonl.xz", lzma.compress(b'{"repair": "none"}')),  # not a suite's rows
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, file: str, content: str | bytes) -> None:
    root = write_suite(tmp_path / "suite", {"baseline-seed1": {}, "other-seed1": {}}).directory
    (root / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as raised:
        compare(read_suite(root), SAMPLES)
    assert len(raised.value.problems) == 1 and "\n" not in str(raised.value) and str(root / file) in str(raised.value)


@pytest.mark.usefixtures("without_charts")
def test_a_run_without_chrf_is_judged_by_bleu(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", {"baseline-seed1": {}, "empty-seed1": {"damage": 1}})
    for scores in (scores for trained in suite.runs for scores in trained.metrics.values()):
        del scores["chrf"]
    comparison = compare(suite, SAMPLES)
    assert [row["verdict"] for row in comparison.rows] == ["baseline", "failed"] and "failed" in page(comparison, suite)
