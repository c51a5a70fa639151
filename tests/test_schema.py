"""Allowed values are read from signatures, and the error message for an invalid value says which values are allowed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from pydantic import AllowInfNan
from typing_extensions import TypedDict

from entente.checkpoint import RUNTIME
from entente.config.schema import defaults, fill, nearest, problems, settings_of, to_text
from entente.config.tables import FILE
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import read_yaml
from entente.models import MODELS
from entente.training.optimiser import Optim
from entente.training.settings import add_defaults
from schema import schema

CONFIGS = Path(__file__).parents[1] / "configs"

Sublayer = Literal["self", "cross", "ff"]


def refusal(annotation: Any, value: object) -> str:
    """Returns the error message for a setting with this annotation and value, or an empty string if the value is allowed."""

    def target(key: Any) -> None: ...

    target.__annotations__["key"] = annotation
    return "\n".join(problems(target, "part", {"key": value}))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 3),
        (float, 3),
        (float, 0.5),
        (str, "3"),
        (bool, False),
        (int | None, None),
        (Annotated[int, Interval(ge=1, le=64)], 64),
        (Annotated[float, Interval(ge=0, lt=1)], 0),
        (Annotated[int, Ge(0)] | Annotated[float, Interval(ge=0, le=1)], 7),
        (Annotated[float, AllowInfNan(True)], math.inf),
        (Literal["pre", "post"], "post"),
        (Sequence[Sublayer], []),
        (Sequence[Sublayer], ["ff", "self"]),
        (list[int], [1, 2]),
        (str | Sequence[str], ["valid", "test"]),
        (Mapping[str, int], {"a": 1}),
        (Any, {"a"}),
    ],
    ids=str,
)
def test_what_an_annotation_allows_is_accepted(annotation: Any, value: object) -> None:
    assert refusal(annotation, value) == ""


@pytest.mark.parametrize(
    ("annotation", "value", "line"),
    [
        (int, "3", "part.key='3': give a whole number"),
        (int, 3.0, "part.key=3.0: give a whole number"),
        (int, True, "part.key=true: give a whole number"),
        (int, None, "part.key=null: give a whole number"),
        (float, "abc", "part.key=abc: give a number"),
        (float, math.nan, "part.key=nan: give a number"),
        (float, -math.inf, "part.key=-inf: give a number"),
        (float, 10**400, "part.key=(a number of more than 80 digits): give a number"),
        (str, 3, "part.key=3: give text"),
        (str, ["a"], "part.key=[a]: give text"),
        (
            Annotated[list[int], MinLen(1)],
            [],
            "part.key=[]: give a list of length 1 or more in which each item is a whole number",
        ),
        (bool, 1, "part.key=1: give true or false"),
        (bool, "yes", "part.key=yes: give true or false"),
        (int | None, "x", "part.key=x: give a whole number or null"),
        (int, {"a": 1}, "part.key={a: 1}: give a whole number"),
        (Annotated[int, Interval(ge=1, le=64)], 0, "part.key=0: give a whole number from 1 to 64"),
        (Annotated[int, Ge(1)] | None, 0, "part.key=0: give a whole number of at least 1 or null"),
        (Annotated[float, Gt(0)], 0, "part.key=0: give a number greater than 0"),
        (Annotated[float, Le(2)], 3, "part.key=3: give a number of at most 2"),
        (Annotated[float, Lt(2)], 2, "part.key=2: give a number less than 2"),
        (Annotated[float, Interval(ge=0, lt=1)], 1, "part.key=1: give a number of at least 0 and less than 1"),
        (Literal["pre", "post"], "behind", "part.key=behind: choose one of pre, post"),
        (Literal["pre", "post"], "pots", "part.key=pots: choose one of pre, post; did you mean post?"),
        (Literal["pre", "post"] | None, 3, "part.key=3: choose one of pre, post or null"),
        (Sequence[Sublayer], "selff", "part.key=selff: give a list of self, cross, ff; did you mean self?"),
        (Sequence[Sublayer], "ff", "part.key=ff: give a list of self, cross, ff"),
        (Sequence[Sublayer], ["ff", "corss"], "part.key=[ff, corss]: give a list of self, cross, ff; did you mean cross?"),
        (Sequence[int], [1, "a"], "part.key=[1, a]: give a list in which each item is a whole number"),
        (str | Sequence[str], 3, "part.key=3: give text or a list in which each item is text"),
        (Mapping[str, int], 3, "part.key=3: give settings by name, where each value is a whole number"),
    ],
    ids=str,
)
def test_what_it_does_not_allow_is_refused_in_one_line(annotation: Any, value: object, line: str) -> None:
    assert refusal(annotation, value) == line


@settings(deadline=None)  # no time limit for an example, since the machine may be busy
@given(st.integers())
def test_a_range_includes_its_ends_and_nothing_beyond(value: int) -> None:
    closed, open = Annotated[int, Interval(ge=-2, le=5)], Annotated[int, Interval(gt=-2, lt=5)]
    assert (refusal(closed, value) == "") == (-2 <= value <= 5)
    assert (refusal(open, value) == "") == (-2 < value < 5)


@settings(deadline=None)  # no time limit for an example, since the machine may be busy
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=9))
def test_any_value_is_shown_in_one_short_piece(value: object) -> None:
    assert len(to_text(value)) <= 80
    assert refusal(Literal["a"], value) == "" if value == "a" else refusal(Literal["a"], value).startswith("part.key=")


class Side(TypedDict):
    src: str
    tgt: str


@dataclass(frozen=True)
class Outer:
    """A part of the configuration that contains other parts."""

    side: Side
    how: Search
    tests: Mapping[str, Side] | None = None
    sizes: Mapping[str, Annotated[int, Ge(1)]] = field(default_factory=dict)


GOOD = {"side": {"src": "a", "tgt": "b"}, "how": {"beam": 5}}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({}, []),
        ({"tests": None}, []),
        ({"tests": {"news": {"src": "a", "tgt": "b"}, "talks": {"src": "c", "tgt": "d"}}}, []),
        ({"tests": {"news": {"src": "a"}}}, ["top.tests.news.tgt is not set: give it as top.tests.news.tgt=VALUE"]),
        ({"tests": {"news": {"src": 1, "tgt": "b"}}}, ["top.tests.news.src=1: give text"]),
        ({"tests": 3}, ["top.tests=3: give settings by name, where each value is the settings src, tgt or null"]),
        ({"side": "x"}, ["top.side=x: give the settings src, tgt"]),
        (
            {"side": {"src": "a", "tgt": None, "tg": "c"}},
            ["top.side.tg=c: no such setting; did you mean top.side.tgt?", "top.side.tgt=null: give text"],
        ),
        ({"how": {"beam": 0, "n_best": 2}}, ["top.how.beam=0: give a whole number from 1 to 1000"]),
        ({"how": {"n_best": 2}}, ["top.how.n_best=2 and top.how.beam=1: n_best must be between 1 and beam"]),
        ({"sizes": {"a": 1, "b": 0}}, ["top.sizes.b=0: give a whole number of at least 1"]),
    ],
    ids=str,
)
def test_what_is_wrong_in_a_nested_part_has_its_full_key(change: dict[str, Any], lines: list[str]) -> None:
    assert problems(Outer, "top", {**GOOD, **change}) == lines


def test_a_nested_dataclass_is_filled_too() -> None:
    assert fill(Outer, "top", GOOD) == Outer({"src": "a", "tgt": "b"}, Search(beam=5))


def even(a: int, b: int) -> None:
    if (a + b) % 2:
        raise ValueError(f"a={a} and b={b}: their sum is odd")


class Pair:
    """A target with two related settings, `a` and `b`. The program, not the user, passes its argument `seed`."""

    relations = (even,)

    def __init__(self, seed: int, a: Annotated[int, Ge(0)], b: int = 2, *, name: str = "") -> None:
        even(a, b)
        if name == "late":
            raise ValueError("name=late: found by the constructor")
        self.all = (seed, a, b, name)


def test_all_mistakes_are_reported_together() -> None:
    wrong = {"nmae": "x", "seed": 3, "b": "2", "name": None}
    assert problems(Pair, "pair", wrong, given=("seed",)) == [
        "pair.nmae=x: no such setting; did you mean pair.name?",
        "pair.seed=3: no such setting; the settings here are a, b, name",
        "pair.a is not set: give it as pair.a=VALUE",
        "pair.b='2': give a whole number",
        "pair.name=null: give text",
    ]
    with pytest.raises(InputError) as refused:
        fill(Pair, "pair", wrong, seed=1)
    assert list(refused.value.problems) == str(refused.value).split("\n") == problems(Pair, "pair", wrong, ("seed",))


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"a": 4}, []),
        ({"a": 3}, ["pair.a=3 and pair.b=2: their sum is odd"]),
        (
            {"a": 4, "b": 3, "c": 1},
            ["pair.c=1: no such setting; the settings here are a, b, name", "pair.a=4 and pair.b=3: their sum is odd"],
        ),
        ({"a": -1}, ["pair.a=-1: give a whole number of at least 0"]),
        ({"a": "???"}, ["pair.a is not set: give it as pair.a=VALUE"]),
    ],
    ids=str,
)
def test_a_relation_is_checked_if_each_of_its_values_is_valid(values: dict[str, Any], lines: list[str]) -> None:
    assert problems(Pair, "pair", values, given=("seed",)) == lines


def test_fill_passes_the_arguments_of_the_program() -> None:
    assert fill(Pair, "pair", {"a": 4, "name": "x"}, seed=7).all == (7, 4, 2, "x")
    with pytest.raises(InputError, match="^pair: name=late: found"):
        fill(Pair, "pair", {"a": 4, "name": "late"}, seed=7)


@pytest.mark.parametrize("values", [None, 3, [1]])
def test_a_part_that_is_no_mapping_is_refused(values: object) -> None:
    assert problems(Pair, "pair", values) == [f"pair={to_text(values)}: give settings, each as pair.KEY=VALUE"]


def test_at_the_top_keys_have_no_dot() -> None:
    assert problems(Pair, "", {"a": 1, "seed": "x"}) == ["seed=x: give a whole number", "a=1 and b=2: their sum is odd"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("model.d_modle", "model.d_model"),
        ("lr", "optim.lr"),
        ("modle.d_model", "model.d_model"),
        ("seeed", "seed"),
        ("modle", "model"),
        ("model.foo", ""),
        ("optim.d_model", "model.d_model"),
    ],
)
def test_the_nearest_name(name: str, meant: str) -> None:
    assert nearest(name, ["model", "model.d_model", "model.norm", "optim", "optim.lr", "seed"]) == meant


TARGETS: dict[str, Any] = {**MODELS, "optim": Optim, "search": Search}


@pytest.mark.parametrize("name", TARGETS)
def test_every_default_is_allowed(name: str) -> None:
    assert defaults(TARGETS[name])
    assert problems(TARGETS[name], name, defaults(TARGETS[name]), given=RUNTIME) == []


@pytest.mark.parametrize("name", MODELS)
def test_every_size_of_a_model_has_an_end(name: str) -> None:
    """Each size has a maximum, so that the configuration in an untrusted checkpoint cannot make the program use all memory."""
    for key, setting in settings_of(MODELS[name]).items():
        for value in (10**12, -1):
            assert key == "mask_value" or refusal(setting.annotation, value), key  # mask_value is not a size


def test_the_table_of_settings_matches_the_signatures() -> None:
    assert FILE.read_text(encoding="utf-8") == schema(), "run python scripts/schema.py"


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("model/*.yaml")))
def test_a_model_is_configured_by_its_signature(name: str) -> None:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = OmegaConf.to_container(compose("train", [f"model={name}", "experiment=ablation_baseline"]))
    assert isinstance(composed, dict)
    model = {key: value for key, value in read_yaml(CONFIGS / "model" / f"{name}.yaml").items() if key != "defaults"}
    kind = "transformer" if name == "modern" else name
    usual = {key: list(v) if isinstance(v, tuple) else v for key, v in defaults(MODELS[kind]).items()}
    assert composed["model"] == {"name": kind, **usual, **model}


def test_a_missing_setting_of_a_corpus_has_its_default() -> None:
    data = add_defaults({"data": {"name": "grammar", "src": "en"}})["data"]
    assert (data["src"], data["tgt"], data["seed"], data["tokenizer"], data["batch"]) == ("en", "en", 1, {}, {})


@pytest.mark.parametrize(
    ("target", "values", "line"),
    [
        ("transformer", {"d_model": 21}, "part.d_model=21 is not divisible by part.n_heads=4"),
        ("transformer", {"n_heads": 0}, "part.n_heads=0: give a whole number from 1 to 128"),
        ("transformer", {"residual": ["slef"]}, "part.residual=[slef]: give a list of self, cross, ff; did you mean self?"),
        ("transformer", {"dropout": 1.0}, "part.dropout=1.0: give a number of at least 0 and less than 1"),
        (
            "birnn",
            {"d_model": 21},
            "part.d_model=21: no such setting; the settings here are d_embedding, d_hidden, d_attention, dropout, tied, score, "
            "cell, "
            "bidirectional, readout, mask_padding, softmax",
        ),
        ("optim", {"lr": 0.0}, "part.lr=0.0: give a number greater than 0"),
        (
            "optim",
            {"schedule": "cosin"},
            "part.schedule=cosin: choose one of inverse_sqrt, cosine, linear, constant; did you mean cosine?",
        ),
        ("search", {"beam": 2, "n_best": 3}, "part.n_best=3 and part.beam=2: n_best must be between 1 and beam"),
    ],
    ids=str,
)
def test_a_mistake_is_reported(target: str, values: dict[str, Any], line: str) -> None:
    assert problems(TARGETS[target], "part", values, given=RUNTIME) == [line]
