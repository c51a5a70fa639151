"""Tests scripts/growth.py: a small sweep from end to end, and the tables and plots of invented results."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from benchmark.contestants.one_model import random_batch, seconds_per_call
from benchmark.turns import Contestant, Measured
from entente.config import command_line
from entente.config.schema import settings_of
from entente.data.tokenizer import BOS, EOS, PAD, SPECIAL
from entente.training.train import check_run
from growth import sweeps
from growth.sweeps import SWEEPS, Growth, check, draw, model_config, model_point, shares, slope, table, write_corpus

ROOT = Path(__file__).parents[2]


def config(**changes: Any) -> dict[str, Any]:
    written = yaml.safe_load((ROOT / "configs" / "growth.yaml").read_text(encoding="utf-8"))
    del written["defaults"]
    return {**written, "output": "outputs/growth", **changes}


Sweep = Callable[[], tuple[dict[str, Any], list[dict[str, Any]]]]


@pytest.fixture
def small_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Returns a function that runs a sweep of one model and one corpus, checks its files, and returns the measured points."""

    def run() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        points = ["models=[birnn]", "lengths=[7]", "vocabularies=[]", "widths=[]", "pairs=[211]", "output=new/folder"]
        usual = ["length=7", "vocabulary=400", "width=8", "tokens=31", "repeats=1", "burst=0.01", "threads=1"]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["growth.py", *points, *usual])
        command_line.run(sweeps.measure, ROOT / "configs", "growth", check)
        folder, printed = tmp_path / "new" / "folder", capsys.readouterr()
        assert sorted(path.name for path in folder.iterdir()) == ["growth.json", "growth.md", "growth.png", "growth.svg"]
        assert (folder / "growth.png").read_bytes().startswith(b"\x89PNG")
        text = (folder / "growth.md").read_text(encoding="utf-8")
        assert text in printed.out and "## Sentence length" in text and "## Corpus" in text and "## Vocabulary" not in text
        assert "length 7, birnn: measured" in printed.err
        report = json.loads((folder / "growth.json").read_text(encoding="utf-8"))
        assert "pairs=[211]" in report["command"] and report["settings"]["lengths"] == [7]
        model, *corpus = report["points"]
        assert (model["sweep"], model["x"], model["line"]) == ("length", 7, "birnn")
        assert [(p["sweep"], p["x"], p["line"]) for p in corpus] == [
            ("corpus", 211, name) for name in ("first time", "with caches")
        ]
        return model, corpus

    return run


@pytest.mark.slow
def test_a_small_sweep_is_measured_from_end_to_end(small_sweep: Sweep) -> None:
    model, corpus = small_sweep()
    assert all(model[name] > 0 for name in ("training", "decoding", "memory", "parameters"))
    assert all(0 < point["ready"] < point["seconds"] and point["peak_mb"] > model["memory"] for point in corpus)


def test_a_sweep_measures_valid_runs_and_reports_their_figures(small_sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(contestants: list[Contestant], pairs: int, *_: Any, fresh: bool = False, **how: Any) -> dict[str, Measured]:
        [point] = contestants
        assert point.settings["threads"] == 1 and Path(point.command[1]).is_file()
        if not fresh:
            burst = {"training": 3.0, "decoding": 2.0, "memory": 5.0}
            return {"point": Measured({"parameters": 31}, burst, [burst] * pairs)}
        run = point.settings["config"]
        assert check_run(run) == []
        for file in ("src.txt", "tgt.txt"):
            assert len((Path(run["data"]["root"]) / file).read_text(encoding="utf-8").splitlines()) == 211
        burst = {"ready": 1.0, "seconds": 2.0, "peak_mb": 7.0}
        return {"point": Measured({}, burst, [{**burst, "ready": 0.5}])}

    monkeypatch.setattr(sweeps, "in_turn", in_turn)
    model, corpus = small_sweep()
    assert (model["training"], model["memory"], model["parameters"]) == (3, 5, 31)
    assert [point["ready"] for point in corpus] == [1, 0.5]


def test_the_configuration_file_has_the_fields_of_the_dataclass() -> None:
    assert config().keys() == settings_of(Growth).keys()
    assert check(config()) == check(config(models=["birnn"])) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": ["birn"]}, "models=[birn]: give a list of transformer, birnn; did you mean birnn?"),
        ({"lengths": [10, 0]}, "lengths=[10, 0]: give a list in which each item is a whole number from 2 to 1024"),
        ({"pairs": 1000}, "pairs=1000: give a list"),
        ({"vocabulary": 100}, "vocabulary=100: "),
        ({"repeats": 0}, "repeats=0: "),
        ({"burst": float("nan")}, "burst=nan: "),
        ({"widths": [64, 66]}, "widths=[64, 66]: give a list in which each item is a multiple of 4 up to 8192"),
        ({"width": 127}, "width=127: give a multiple of 4 up to 8192"),
        ({"output": __file__}, f"output={__file__}: {__file__} is a file; give a folder"),
    ],
)
def test_each_problem_is_reported_in_one_line(changes: dict[str, Any], words: str) -> None:
    [line] = check(config(**changes))
    assert line.startswith(words)


def test_a_failed_point_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "script", lambda file: ["no/python"])
    point = model_point(Growth(**config()), "birnn", 7, 400, 8)
    assert point == {"failed": "not started: No such file or directory"}


def test_peak_memory_includes_freed_memory_but_not_that_of_the_parent_process() -> None:
    code = f"""if True:
        import subprocess, sys
        sys.path.append({str(ROOT / "scripts")!r})
        from benchmark.wire import peak_kb
        print(peak_kb(), flush=True)
        if len(sys.argv) == 1:
            len(b"x" * 2**27)
            print(peak_kb(), flush=True)
            subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"], check=True)
    """
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, after, child = map(float, printed.split())
    assert after > before + 2**16 > child  # all these values are in KiB


def test_a_call_is_timed_by_the_mean_of_a_burst() -> None:
    calls: list[None] = []
    seconds = seconds_per_call(lambda: calls.append(None), 0.01)
    assert len(calls) > 1 and seconds * len(calls) >= 0.01
    calls.clear()
    assert seconds_per_call(lambda: calls.append(None), 0.0) > 0 and len(calls) == 1


def test_a_batch_of_random_ids() -> None:
    src, tgt = random_batch(length=7, vocabulary=409, tokens=50)
    assert src.shape == (7, 7) and tgt.shape == (7, 8)
    assert (src[:, -1] == EOS).all() and (tgt[:, -1] == EOS).all() and (tgt[:, 0] == BOS).all()
    inner = torch.cat([src[:, :-1], tgt[:, 1:-1]], dim=1)
    assert inner.min() >= len(SPECIAL) > PAD and 390 < inner.max() < 409
    assert random_batch(length=7, vocabulary=409, tokens=5)[0].shape == (1, 7)


def test_a_generated_corpus_is_reproducible_and_resembles_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "PAIRS_PER_BLOCK", 2000)
    texts = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_corpus(tmp_path / name, 5003)
        texts.append([(tmp_path / name / file).read_text(encoding="utf-8") for file in ("src.txt", "tgt.txt")])
    assert texts[0] == texts[1]
    src, tgt = ([line.rstrip(".").split() for line in text.splitlines()] for text in texts[0])
    assert len(src) == len(tgt) == 5003 and list(map(len, src)) == list(map(len, tgt)) and src != tgt
    lengths = sorted(map(len, src))
    assert lengths[0] >= 1 and 11 <= lengths[2501] <= 13 and 13 < np.mean(lengths) < 15
    _, counts = np.unique(list(itertools.chain(*src)), return_counts=True)
    counts = np.sort(counts)[::-1]
    assert 0.02 < counts[0] / counts.sum() < 0.05 and 3 < counts[0] / counts[10] < 5  # Zipf-Mandelbrot: (10 + 2.7) / 2.7 = 4.7
    pairs = set(zip(itertools.chain(*src), itertools.chain(*tgt), strict=True))
    assert len(pairs) == len({word for word, _ in pairs}) == len({word for _, word in pairs})  # each word has one translation


def test_slopes_are_measured_on_logarithmic_axes() -> None:
    def line(*points: tuple[float, float]) -> list[dict[str, Any]]:
        return [{"x": x, "cost": cost} for x, cost in points]

    assert slope(line((10, 30), (20, 60), (400, 1200)), "cost") == "slope 1.00 to 1.00"
    assert slope(line((10, 8), (20, 4)), "cost") == "slope -1.00"
    assert slope([*line((10, 8), (20, 32)), {"x": 40, "failed": "killed"}], "cost") == "slope 2.00"
    assert slope(line((10, 8)), "cost") == slope([], "cost") == "–"


def test_shares_of_multiplications() -> None:
    def shares_of(length: int, vocabulary: int, width: int) -> dict[str, float]:
        return shares(model_config("transformer", width), length, vocabulary)

    usual = shares_of(20, 4000, 128)
    assert usual == {"attention": 2, "layers": 71, "projection": 26}
    for part, grown in {"attention": (400, 4000, 128), "layers": (20, 4000, 512), "projection": (20, 64_000, 128)}.items():
        assert shares_of(*grown)[part] > 1.2 * usual[part]


def invented_report(failed: bool) -> dict[str, Any]:
    """Returns an invented growth.json with costs proportional to x (to x² for widths). If `failed`, points at x = 400 fail."""
    settings, points = config(), []
    costs = {"length": lambda x: 2 * x, "vocabulary": lambda x: x / 1000, "width": lambda x: (x / 100) ** 2}
    for (sweep, cost), line in itertools.product(costs.items(), settings["models"]):
        for x in settings[SWEEPS[sweep][0]]:
            figures = {"training": cost(x), "decoding": 2 * cost(x), "memory": 100.0, "parameters": 1009}
            points.append({"sweep": sweep, "x": x, "line": line, **figures})
            if failed and x == 400:
                points[-1] = {"sweep": sweep, "x": x, "line": line, "failed": "ended with code -9"}
    for x, line in itertools.product(settings["pairs"], ("first time", "with caches")):
        points.append({"sweep": "corpus", "x": x, "line": line, "ready": x / 1000, "seconds": x / 500, "peak_mb": 1000.0})
    about = {"torch": "2", "commit": "abc", "command": "growth.py", "cores": 2, "cpu": "a processor"}
    return {"settings": settings, **about, "points": points}


def rows(text: str, begin: str) -> Iterator[list[str]]:
    """Yields the cells of each table row in `text` that begins with `begin`."""
    return ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith(f"| {begin}"))


def test_the_table_has_each_point_and_each_slope() -> None:
    text = table(invented_report(failed=False))
    slopes = list(rows(text, " | *transformer*"))
    assert [row[2] for row in slopes] == ["slope 1.00 to 1.00", "slope 1.00 to 1.00", "slope 2.00 to 2.00"]
    [first, other] = rows(text, "64,000 |")
    assert first[:6] == ["64,000", "transformer", "64", "128", "100", "1,009"] and other[1] == "birnn"
    assert len(list(rows(text, "3,000,000 |"))) == 2
    [made] = rows(text, " | *first time*")
    assert made[2:] == ["slope 1.00 to 1.00", "slope 1.00 to 1.00", "slope 0.00 to 0.00"]
    failed = list(rows(table(invented_report(failed=True)), "400 |"))
    assert [row[2] for row in failed] == ["ended with code -9"] * 2 and len({*map(len, failed)}) == 1


@pytest.mark.parametrize("failed", [False, True])
def test_the_plot_has_a_panel_for_each_measure_of_each_sweep(failed: bool) -> None:
    figure = draw(invented_report(failed)["points"])
    panels = np.array(figure.axes).reshape(3, 4)
    assert [axes.get_xlabel() for axes in panels[2]] == [words for _, words, _ in SWEEPS.values()]
    assert all(len(axes.get_lines()) == 2 for axes in panels.flat)
    lines = [line.get_label() for line in panels[0, 1].get_lines()]
    assert lines == ["transformer: slope 1.00 to 1.00", "birnn: slope 1.00 to 1.00"]
    assert len(panels[0, 0].get_lines()[0].get_xdata()) == 6 - failed
