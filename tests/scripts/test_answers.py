"""The measurements of scripts/answers.py on a model that was trained for a few steps, where laws say what they must be."""

from pathlib import Path

import pytest
import torch

import answers
import entente
from entente.models.attention import MultiHeadAttention

PAIRS = [("Le chat dort.", "The cat sleeps."), ("Le chien rouge mange.", "The red dog eats."), ("Il dort.", "He sleeps.")]


@torch.inference_mode()
def test_each_study_measures_what_it_says(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    answers.main(str(file), "all", str(base / "run"))
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line[:1] == "|"]
    values = {(study, what): float(value.replace(",", "")) for study, what, value in rows}
    assert {study for study, _ in values} == {*answers.STUDIES}
    assert values["steps", "largest difference of a log-probability"] < 1e-4
    assert values["linear", "relative error as a function of the values"] < 1e-4
    assert values["linear", "relative error as a function of the whole input"] > 1e-3
    assert 0 < values["positions", "share of positions in the sum of squared norms"] < 1
    assert values["beams", "beam 1, length penalty 1, length ratio"] > 0
    lifted = [value for (study, _), value in values.items() if study == "mask"]
    assert lifted[0] == 0 and lifted[1:] and all(value > 1e-6 for value in lifted[1:])
    assert all(value > 0 for (study, _), value in values.items() if study == "speed")

    answers.main(str(file), "positions", str(base / "run"), str(base / "run"))
    assert f"{values['positions', 'share of positions in the sum of squared norms']:.4g} ± 0 |" in capsys.readouterr().out

    model = entente.load(base / "run", device="cpu")
    distances = [value for (study, _), value in values.items() if study == "heads"]
    assert max(distances) > 1e-3
    for module in model.model.modules():
        if isinstance(module, MultiHeadAttention):
            module.copy_first_head()
            for layer in (module.query, module.key):
                layer.bias.zero_()
    assert max(value for _, value in answers.heads(model, PAIRS)) < 1e-6, "heads with equal weights have equal maps"


def test_a_repeated_word_counts_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = entente.load(base / "run", device="cpu")
    monkeypatch.setattr(type(model), "translate", lambda model, sources, beam, **_: ["a a b a", "c", ""])
    assert dict(answers.repeats(model, PAIRS)) == {"repeated words": 1 / 5}
