"""Tests what settings accept, and that the line for a value that is not accepted says which values are."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entente.cli import VERBS, compose, defaults
from entente.errors import InputError
from entente.files import read_yaml
from entente.settings import BiRNNSettings, RunSettings, Section, TransformerSettings
from entente.validation import flat, settings_of, to_text, validate

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = {"name": "files", "train": "x.tsv"}


def run_with(key: str, value: object) -> dict[str, Any]:
    """Returns the configuration of a run in which one setting, given by its dotted key, has a value."""
    part, _, name = key.rpartition(".")
    section = {"name": "transformer"} if part == "model" else {}
    return {"name": "r", **({part: section | {name: value}} if part else {name: value})}


def problems(values: dict[str, Any], kind: type[Section] = RunSettings) -> list[str]:
    try:
        validate(kind, values)
    except InputError as error:
        return list(error.problems)
    return []


ACCEPTED = [
    *(("seed", value) for value in (0, 2**32 - 1)),
    *(("overfit", value) for value in (True, False)),
    *(("resume", value) for value in ("3", None)),
    *(("optim.lr", value) for value in (1, 3e-4)),
    *(("optim.beta1", value) for value in (0, 0.5)),
    *(("model.residual", value) for value in (["ff", "self"], ("ff",), [])),
    *(("model.d_k", value) for value in (None, 7)),
    *(("model.mask_value", value) for value in (None, -3, 0.0)),
    *(("trainer.limit_batches", value) for value in (1, 7, 1.0, 0.5)),
    *(("trainer.devices", value) for value in (3, "auto")),
    *(("data", {**FILES, "test": value}) for value in (None, "x", {"src": "a", "tgt": "b"}, {"news": "n.tsv", "talks": None})),
    *(("data", {**FILES, "columns": value}) for value in ({}, {"src": 2}, {"src": "French", "tgt": None})),
]
SEED = "a whole number of at least 0 and less than 4294967296"
LIMIT = "a whole number of at least 1 or a number greater than 0 and of at most 1"
REFUSED = [
    *((("seed", value), f"seed={to_text(value)}: give {SEED}") for value in (1.0, True, -1, "3", None, 2**32, [1])),
    (("overfit", 1), "overfit=1: give true or false"),
    (("variant", 3), "variant=3: give text"),
    (("optim.lr", math.inf), "optim.lr=inf: give a number greater than 0"),
    (("optim.beta1", 1), "optim.beta1=1: give a number of at least 0 and less than 1"),
    (("model.norm", "pots"), "model.norm=pots: choose one of pre, post, rms, none; did you mean post?"),
    (("search.beam", {"a": 1}), "search.beam={a: 1}: give a whole number from 1 to 1000"),
    (("model.residual", ["ff", "corss"]), "model.residual=[ff, corss]: give a list of self, cross, ff; did you mean cross?"),
    (("model.mask_value", 1), "model.mask_value=1: give a number of at most 0 or null"),
    (("trainer.limit_batches", 0), f"trainer.limit_batches=0: give {LIMIT}"),
    (("data", {**FILES, "test": {"a": {"src": 1, "tgt": "b"}}}), "data.test.a.src=1: give text"),
    (("data", {**FILES, "test": {"a": {"src": "a"}}}), "data.test.a.tgt is not set: give it as data.test.a.tgt=VALUE"),
    (("data", {"name": "grammar", "max_words": 3}), "data.max_words=3: only data=files,multi30k,opus_books has this setting"),
    (
        ("data", {"name": "grammar", "batch": {"foo": 3}}),
        "data.batch.foo=3: no such setting; did you mean data.batch.max_tokens?",
    ),
    (("data", {**FILES, "columns": {"foo": 3}}), "data.columns.foo=3: no such setting; did you mean data.columns.tgt?"),
]


@pytest.mark.parametrize(("key", "value"), ACCEPTED, ids=str)
def test_what_a_setting_accepts(key: str, value: object) -> None:
    assert problems(run_with(key, value)) == []


@pytest.mark.parametrize(("setting", "line"), REFUSED, ids=str)
def test_what_it_does_not_accept_is_refused_in_one_line(setting: tuple[str, Any], line: str) -> None:
    key, value = setting
    assert problems(run_with(key, value)) == [line]


def test_a_whole_number_becomes_a_float_and_a_list_a_tuple() -> None:
    values = {"name": "r", "optim": {"lr": 1}, "model": {"name": "transformer", "residual": ["ff"]}}
    made = validate(RunSettings, values)
    assert isinstance(made.optim.lr, float) and made.model.residual == ("ff",)  # type: ignore[union-attr]


def test_a_relation_is_checked_once_the_values_of_its_section_are_valid() -> None:
    assert problems({"name": "r", "search": {"beam": 0, "n_best": 3}}) == ["search.beam=0: give a whole number from 1 to 1000"]
    data = {"name": "grammar", "src": "en", "batch": {"both_directions": 1}, "tokenizer": {"joint": False}}
    assert problems({"name": "r", "data": data}) == [
        "data.src=en data.tgt=en: source and target are the same language",
        "data.batch.both_directions=1 needs data.tokenizer.joint=true",
        "data.src=en data.tgt=en: the grammar is for fr and en; use one as source, one as target",
    ]


@settings(max_examples=41, deadline=None)  # no time limit for an example, since the machine may be busy
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=9))
def test_any_value_is_shown_in_one_short_piece(value: object) -> None:
    assert len(to_text(value)) <= 80
    lines = problems(run_with("optim.schedule", value))
    assert lines == [] if value in ("cosine", "linear") else len(lines) == 1 and lines[0].startswith("optim.schedule=")


@pytest.mark.parametrize("verb", VERBS)
def test_every_setting_is_explained_and_every_default_is_accepted(verb: str) -> None:
    needed = {"ablate": {"suite": ["a", "b"]}, "train": {"name": "r"}, "compare": {"runs": "r"}, "trace": {"example": True}}
    needed["page"] = {"runs": ["r"]}
    needed["export"] = {"checkpoint": "c", "format": "huggingface", "output": "o"}
    needed |= dict.fromkeys(("evaluate", "translate", "attention", "importance"), {"checkpoint": "c"})
    assert problems(defaults(VERBS[verb]) | needed.get(verb, {}), VERBS[verb]) == []
    unexplained = {key for key, schema in settings_of(VERBS[verb], {}).items() if "description" not in schema}
    assert unexplained <= {"model.name", "data.name"}


@pytest.mark.parametrize("kind", [TransformerSettings, BiRNNSettings])
def test_every_size_of_a_model_has_an_end(kind: type[Section]) -> None:
    """Each size has a maximum, so that the configuration in an untrusted checkpoint cannot make the program use all memory."""
    for key in kind.model_fields:
        for value in (10**12, -1):
            assert key in ("mask_value", "forget_bias") or problems({key: value}, kind), key  # these two are no sizes


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("model/*.yaml")))
def test_a_model_has_its_defaults_and_what_its_file_changes(name: str) -> None:
    model = validate(RunSettings, compose("train", [f"model={name}", "recipe=none"]).values).model
    changes = {key: value for key, value in read_yaml(CONFIGS / "model" / f"{name}.yaml").items() if key != "defaults"}
    assert model.model_dump(mode="json") == defaults(type(model)) | changes


@pytest.mark.parametrize("experiment", sorted(path.stem for path in CONFIGS.glob("experiment/*.yaml")))
def test_every_experiment_has_valid_settings(experiment: str) -> None:
    overrides = ["++data.root=x"] if "multi30k" in experiment else ["++data.train=x"] if experiment == "tatoeba" else []
    values = compose("train", [f"experiment={experiment}", *overrides]).values
    assert problems(values) == [] and dict(flat(values))["name"]
