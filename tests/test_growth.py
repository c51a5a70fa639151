"""How cost grows: a small sweep measured whole, and what is said of it."""

import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from entente.benchmark import growth
from entente.benchmark.growth import Bursts, Growth, bare_memory, check, draw, peak_memory, shares, slope, write_corpus

from entente.config.schema import settings_of
from entente.data.tokenizer import BOS, EOS, PAD, SPECIAL

ROOT = Path(__file__).parents[1]


def config(**changes: Any) -> dict[str, Any]:
    written = yaml.safe_load((ROOT / "configs" / "growth.yaml").read_text(encoding="utf-8"))
    del written["defaults"]
    return {**written, "output": "outputs/growth", **changes}


def test_a_small_sweep_is_measured_whole(tmp_path: Path) -> None:
    points = ["models=[birnn]", "lengths=[3,7]", "vocabularies=[]", "widths=[8]", "pairs=[211,211]"]
    usual = ["length=7", "vocabulary=400", "width=8", "tokens=31", "repeats=1", "burst=0.01", "threads=1"]
    command = [sys.executable, str(ROOT / "scripts" / "growth.py"), *points, *usual, f"output={tmp_path}/made/here"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    folder = tmp_path / "made" / "here"
    assert sorted(path.name for path in folder.iterdir()) == ["growth.json", "growth.md", "growth.png", "growth.svg"]

    report = json.loads((folder / "growth.json").read_text(encoding="utf-8"))
    assert [(p["model"], p["length"], p["width"]) for p in report["models"]] == [("birnn", 3, 8), ("birnn", 7, 8)]
    for point in report["models"]:
        assert 0 < point["decode"] and 0 < point["train"] < point["first_step"]
        assert report["bare"] < point["idle"] < point["memory"] and point["threads"] == 1
    [corpus] = report["corpora"]
    for once in (corpus["first"], corpus["again"]):
        assert 0 < once["prepared"] < once["first_step"] and report["bare"] < once["memory_prepared"] <= once["memory"]
    assert "pairs=[211,211]" in report["versions"]["command"] and report["settings"]["lengths"] == [3, 7]

    text = (folder / "growth.md").read_text(encoding="utf-8")
    assert text in ended.stdout and "## Sentence length" in text and "## Corpus" in text and "## Vocabulary" not in text
    assert "birnn, length 7" in ended.stderr and "211 pairs: first time prepared in" in ended.stderr
    assert (folder / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert "BiRNN: slope" in (folder / "growth.svg").read_text(encoding="utf-8")


def test_the_configuration_is_that_of_the_dataclass() -> None:
    assert config().keys() == settings_of(Growth).keys()
    assert check(config()) == check(config(models=["birnn"], width=127)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": ["birn"]}, "models=[birn]: give a list of transformer, birnn; did you mean birnn?"),
        ({"models": []}, "models=[]: give one at least"),
        ({"lengths": [10, 0]}, "lengths=[10, 0]: give a list, each a whole number from 2 to 1024"),
        ({"pairs": 1000}, "pairs=1000: give a list"),
        ({"vocabulary": 100}, "vocabulary=100: "),
        ({"repeats": 0}, "repeats=0: "),
        ({"burst": float("nan")}, "burst=nan: "),
        ({"lengths": [1000], "tokens": 500}, "tokens=500: a batch holds one sentence at least; give 1000 or more"),
        ({"widths": [64, 66]}, "widths=66: the Transformer's 4 heads share the width; give multiples of 4"),
        ({"width": 127}, "width=127: the Transformer's 4 heads share the width; give multiples of 4"),
        ({"output": __file__}, f"output={__file__}: {__file__} is a file; give a folder"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(changes: dict[str, Any], words: str) -> None:
    [line] = check(config(**changes))
    assert line.startswith(words)


def test_a_disk_too_small_is_said_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "A_PAIR", 10**12)
    with pytest.raises(growth.InputError, match=r"^pairs=30000: text and caches take .* GB for a while in .*; give fewer"):
        growth.measure(config(output=str(tmp_path), pairs=[100, 30_000]))
    assert list(tmp_path.iterdir()) == []


def test_a_point_that_fails_says_why() -> None:
    [(key, reason)] = growth.in_a_process("model", model="rnn").items()
    assert key == "failed" and reason.startswith("TypeError: model_point() missing 7 required")


def test_a_process_that_cannot_start_is_no_file_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "no/python")
    assert growth.in_a_process("model") == {"failed": "not started: No such file or directory"}


def test_memory_is_the_process_s_own() -> None:
    before = peak_memory()
    held = np.ones(before // 8)
    assert peak_memory() > max(before, held.nbytes)
    assert bare_memory() < peak_memory() / 1.5  # although a large process has started it


def test_the_median_burst_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    bursts = Bursts(repeats=3, seconds=1.0)
    for seconds in [9.0] + [0.5] * 2 + [4.0] + [0.25] * 4:  # a warm-up, then 0.5, 4 and 0.25 a call
        assert not bursts.done
        now += seconds
        bursts.tick()
    assert bursts.done and bursts.median == 0.5


def test_a_batch_of_random_ids() -> None:
    src, tgt, index, _ = growth.random_batch(length=7, vocabulary=409, tokens=50)
    assert src.shape == (7, 7) and tgt.shape == (7, 8) and index.tolist() == list(range(7))
    assert (src[:, -1] == EOS).all() and (tgt[:, -1] == EOS).all() and (tgt[:, 0] == BOS).all()
    inner = torch.cat([src[:, :-1], tgt[:, 1:-1]], dim=1)
    assert inner.min() >= len(SPECIAL) > PAD and 390 < inner.max() < 409


def test_a_corpus_is_the_same_each_time_and_like_language(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        size = write_corpus(tmp_path / name, 20_011)
        texts.append([(tmp_path / name / file).read_bytes() for file in ("src.txt", "tgt.txt")])
        assert size == sum(map(len, texts[-1]))
    assert texts[0] == texts[1]
    src, tgt = ([line.rstrip(".").split() for line in text.decode().splitlines()] for text in texts[0])
    assert len(src) == len(tgt) == 20_011 and list(map(len, src)) == list(map(len, tgt))
    lengths = sorted(map(len, src))
    assert lengths[0] >= 1 and 11 <= lengths[10_005] <= 13 and 13 < np.mean(lengths) < 15
    _, counts = np.unique(list(itertools.chain(*src)), return_counts=True)
    counts = np.sort(counts)[::-1]
    assert 0.02 < counts[0] / counts.sum() < 0.05 and 3 < counts[0] / counts[10] < 5  # (10 + 2.7) / 2.7 = 4.7 by the law
    assert all(len(set(words)) == len(words) for words in map(list, [growth._words(np.random.default_rng(3))]))


def test_a_slope_is_that_on_logarithmic_axes() -> None:
    x = [10.0, 20.0, 50.0, 400.0]
    assert slope((x, [3 * v**1.5 for v in x])) == "straight, slope 1.50"
    assert slope((x, [3 * v**1.5 * noise for v, noise in zip(x, (1, 1.06, 0.96, 1), strict=True)])).startswith("straight")
    assert slope((x, [100 + v**2 for v in x])) == "slope 1.32, at the end 1.98"
    assert slope(([10.0, 20.0], [8.0, 4.0])) == "slope −1.00"
    assert slope(([10.0, 20.0], [1.0, 0.9999])) == "slope 0.00"
    assert slope(([10.0], [8.0])) == slope(([], [])) == "–"


def test_shares_of_multiplications() -> None:
    usual = shares(length=20, vocabulary=4000, width=128)
    assert math.isclose(sum(usual.values()), 1)
    for part, grown in {"attention": (400, 4000, 128), "layers": (20, 4000, 512), "projection": (20, 64_000, 128)}.items():
        assert shares(*grown)[part] > 1.2 * usual[part]


def made_up(failed: bool) -> dict[str, Any]:
    """A report as `measure` writes it, with a cost of 1 + L / 100, V / 1000 and (D / 100)²."""
    settings = config()
    points = growth.model_points(Growth(**settings))
    for p in points:
        cost = 1e-5 * (1 + p["length"] / 100) * p["vocabulary"] / 1000 * (p["width"] / 100) ** 2
        p |= {"train": cost, "decode": 2 * cost, "memory": 2**30, "idle": 2**29, "first_step": 7.5, "parameters": 1009}
        if failed and p["length"] == 400:
            p |= {"failed": "killed by signal 9"}
    once = {"prepared": 20.0, "first_step": 22.0, "memory_prepared": 2**30, "memory": 2**30}
    corpora = [{"pairs": n, "text": 150 * n, "first": {**once, "prepared": n / 1000}, "again": once} for n in settings["pairs"]]
    machine = {"cores": 2, "processor": "a processor", "system": "a system"}
    versions = {"torch": "2", "commit": "abc", "command": "growth.py"}
    return {"settings": settings, "versions": versions, "machine": machine, "bare": 2**28, "models": points, "corpora": corpora}


def rows(text: str, begin: str) -> Iterator[list[str]]:
    return ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith(f"| {begin}"))


def test_the_table_gives_each_point_and_each_slope() -> None:
    text = growth.table(made_up(failed=False))
    slopes = list(rows(text, "*Transformer*"))
    assert [row[2] for row in slopes] == ["*slope 0.13, at the end 0.74*", "*straight, slope 1.00*", "*straight, slope 2.00*"]
    [first, other] = rows(text, "64,000 |")
    assert first[:6] == ["64,000", "Transformer", "1,258.3", "2,516.6", "768", "7.5"] and other[1] == "BiRNN"
    assert len(list(rows(text, "3,000,000 |"))) == 2
    [made, again] = rows(text, " |")
    assert made[3] == "*straight, slope 1.00*" and again[3] == "*straight, slope 0.00*"
    assert text.count("Why: ") == 4


@pytest.mark.parametrize("failed", [False, True])
def test_the_picture_has_a_panel_for_each_measure_of_each_sweep(failed: bool, tmp_path: Path) -> None:
    report = made_up(failed)
    figure = draw(report)
    panels = np.array(figure.axes).reshape(3, 4)
    assert [axes.get_xlabel() for axes in panels[2]] == [*(sweep.words for sweep in growth.SWEEPS), "corpus, pairs"]
    assert all(len(axes.get_lines()) == 2 for axes in panels.flat)
    lines = [line.get_label() for line in panels[0, 1].get_lines()]
    assert lines == ["Transformer: straight, slope 1.00", "BiRNN: straight, slope 1.00"]
    assert len(panels[0, 0].get_lines()[0].get_xdata()) == 6 - failed
    growth.save(figure, tmp_path)
    once = (tmp_path / "growth.svg").read_bytes()
    growth.save(draw(report), tmp_path)
    assert (tmp_path / "growth.svg").read_bytes() == once
    if failed:
        assert [row[2] for row in rows(growth.table(report), "400 |")] == ["killed by signal 9"] * 2
