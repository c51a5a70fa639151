"""Tests the lists of runs and of ablations, which are printed quickly, since they need no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from entente.commands import ablations
from entente.commands.settings import AblationsSettings
from entente.settings import RunSettings

CONFIG = yaml.safe_dump(RunSettings(name="NAME").stored(), sort_keys=False)
ABLATIONS = Path(__file__).parents[2] / "configs" / "ablation"


def lines_of(folder: Path, *arguments: str) -> list[str]:
    """Runs a command in a process of its own, which must not import torch, and returns its lines and then its CPU time."""
    program = "import sys, time\nfrom entente.__main__ import main\nmain()\nassert 'torch' not in sys.modules\n"
    command = [sys.executable, "-c", f"{program}print(time.process_time())", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()


def write_run(folder: Path, config: str = CONFIG, **scores: float) -> Path:
    """Writes the files of a run, which is finished if it has scores."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config.replace("NAME", folder.name))
    if scores:
        metrics = {split: {"bleu": bleu, "sentences": 1000} for split, bleu in scores.items()}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "training.json").write_text('{"steps": 850}')
    return folder


def test_a_thousand_runs_are_listed_within_two_seconds_of_cpu_time(tmp_path: Path) -> None:
    for i in range(1000):
        write_run(tmp_path / f"outputs/suite{i % 7}/run{i}", CONFIG.replace("seed: 1", f"seed: {i}", 1), valid=1, test=i / 10)
    *lines, _, seconds = lines_of(tmp_path, "runs")
    assert len(lines) == 1002 and float(seconds) < 2, seconds
    assert lines[2].split() == ["outputs/suite5/run999", "baseline", "transformer", "850/1600", "finished", "1.00", "99.90"]


def test_runs_are_grouped_by_data_and_test_set_and_the_best_is_first(tmp_path: Path) -> None:
    english = CONFIG.replace("src: fr\n  tgt: en", "src: en\n  tgt: fr")
    for name, config, scores in [
        ("low", CONFIG, {"valid": 99.0, "test": 50.0}),
        ("high", CONFIG.replace("variant: baseline", "variant: no_residual"), {"valid": 1.0, "test": 60.0}),
        ("english", english, {"valid": 1.0, "test": 99.0}),
        ("other", CONFIG.replace("vocab_size: 8000", "vocab_size: 400"), {"valid": 1.0, "test_b": 70.0}),
        ("begun", english, {}),
        ("failed", english, {}),
    ]:
        write_run(tmp_path / "mine" / name, config, **scores)
    (tmp_path / "mine/begun/train.log").write_text("2026-01-01 step 400/1600  loss 2.00  BLEU 31.2 (best 40.0)  0:12\n")
    (tmp_path / "mine/failed.log").write_text("step 3/1600\ndiverged: the loss is inf\n")
    damages = {"config": "a: [", "other_config": "data: 3\n", "metrics": CONFIG, "scores": CONFIG}
    for name, config in damages.items():
        write_run(tmp_path / "mine" / name, config)
    (tmp_path / "mine/metrics/metrics.json").write_text('{"valid": ')
    (tmp_path / "mine/scores/metrics.json").write_text('{"valid": []}')
    *lines, _ = lines_of(tmp_path, "runs", "output_dir=mine")
    rows = [line.removeprefix("  mine/").split()[0] if line.startswith("  mine/") else line for line in lines]
    heading, tail = lines[1], rows[-len(damages) :]
    assert "valid BLEU  test BLEU" in heading
    assert [row for row in rows[: -len(damages)] if row and not row.startswith("  run")] == [
        *("data=grammar data.src=en data.tgt=fr, test of 1,000 sentences", "english", "begun", "failed"),
        *("data=grammar, test of 1,000 sentences", "high", "low"),
        *("data=grammar, test_b of 1,000 sentences", "other"),
    ]
    cells = {cells[0]: cells[1:] for line in lines if (cells := line.split())}
    assert cells["mine/begun"] == ["baseline", "transformer", "400/1600", "unfinished", "31.20"]
    assert cells["mine/failed"] == ["baseline", "transformer", "0/1600", "diverged"]
    assert all(row.startswith(f"mine/{name}: damaged (") for row, name in zip(tail, sorted(damages), strict=True))


def test_each_ablation_is_listed_with_its_models_and_its_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *lines, _ = lines_of(tmp_path, "ablations")
    names = [line.split()[0] for line in lines]
    assert names == sorted(path.stem for path in ABLATIONS.glob("*.yaml"))
    texts = dict(zip(names, (" ".join(line.split()[1:]) for line in lines), strict=True))
    assert texts["no_attention"] == (
        "birnn one vector cannot hold a whole sentence, least of all a long one (Bahdanau et al. 2015, figure 2)."
    )
    assert texts["baseline"] == "transformer, birnn The complete model. All variants are compared with it."
    ablations.main(AblationsSettings(model="birnn"))
    of_birnn = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert of_birnn == {name for name, text in texts.items() if "birnn" in text.split()[:2]} < {*names}
