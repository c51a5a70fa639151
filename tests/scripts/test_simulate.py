"""The script that simulates suites, run small."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import simulate
from entente.ablation.significance import DUNNETT
from entente.errors import InputError


def write_suite(root: Path, sizes: dict[str, int], sigma: float) -> Path:
    generator = np.random.default_rng(1)
    for variant, size in sizes.items():
        for seed in range(1, size + 1):
            folder = root / f"{variant}-seed{seed}"
            folder.mkdir(parents=True)
            (folder / "config.yaml").write_text(yaml.safe_dump({"variant": variant, "seed": seed}))
            scores = {"bleu": generator.normal(96, sigma), "nll": 0.2}
            (folder / "metrics.json").write_text(json.dumps({"valid": scores, "test": scores}))
    return root


def shares(text: str) -> list[float]:
    return [float(share) for share in re.findall(r"([\d.]+)%", text)]


def test_equal_variants_get_a_verdict_at_the_error_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"baseline": 7, "a": 3, "b": 3, "c": 2, "d": 3}
    write_suite(tmp_path / "suite", sizes, 0.4)
    printed = []
    for suites in (400, 50, 50):
        simulate.main(tmp_path / "suite", suites)
        printed.append(capsys.readouterr().out)
    assert printed[1] == printed[2], "the numbers are the same each time"
    assert "7 of the baseline, 3 of most of the 4 variants" in printed[0] and "(13 degrees of freedom)" in printed[0]
    wrong, right = shares(printed[0])
    assert 1 < wrong < 9  # 5 % of 400 suites, with a standard error of 1.1 %
    simulate.main(write_suite(tmp_path / "calm", sizes, 0.1), 50)
    assert shares(capsys.readouterr().out)[1] == 100 > right > wrong  # 1 BLEU is many standard deviations of these runs


def test_simulated_variants_are_pooled_with_the_baseline() -> None:
    """As those near it are, so that the same test judges them."""
    [differences] = simulate.simulate([7, 3, 3], 96.0, 0.4, [0.0, 0.0, 1.0], 1)
    assert {difference.method for difference in differences.values()} == {DUNNETT}


def test_a_variant_of_one_seed_that_is_far_away_has_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate.main(write_suite(tmp_path / "suite", {"baseline": 2, "a": 1}, 12.0), 50)
    assert shares(capsys.readouterr().out)[1] < 100


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="their deviation is unknown"):
        simulate.main(write_suite(tmp_path / "suite", {"baseline": 1, "a": 1}, 0.3), 10)
