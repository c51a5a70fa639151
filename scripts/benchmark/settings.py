"""Checks the settings of configs/benchmark.yaml: the configuration of a run, and the section `benchmark`."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval

from entente import checkpoint
from entente.config.schema import defaults, problems
from entente.data.corpora import AtLeastOne
from entente.errors import InputError
from entente.files import path_of
from entente.models import MODELS
from entente.training.run_directory import output_dir_problems
from entente.training.train import check_run

Case = Literal[
    "transformer", "ceiling", "profile", "birnn", "greedy", "beam", "greedy_trained", "beam_trained", "startup", "data"
]
SHARED_SETTINGS = {  # settings that may differ from their defaults, because the other programs have them too
    "transformer": {"name", "d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout"},
    "birnn": {"name", "d_embedding", "d_hidden", "d_attention", "dropout"},
}


@dataclass(frozen=True)
class Peers:
    """The Python interpreters that run JoeyNMT and EOLE, whose dependencies conflict with ours. transformers and ctranslate2
    need no other environment: they are used if they can be imported."""

    joeynmt: str | None = None
    eole: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """The settings under `benchmark`. `pairs` is the number of rounds after the warm-up. A training burst has `steps` steps; a
    decoding burst has `sentences` sentences of `length` target tokens. The cases *_trained need a checkpoint."""

    cases: Sequence[Case]
    birnn: Mapping[str, Any]
    peers: Peers = field(default_factory=Peers)
    pairs: AtLeastOne = 5
    steps: AtLeastOne = 10
    sentences: AtLeastOne = 1000
    length: Annotated[int, Interval(ge=1, le=1000)] = 20
    checkpoint: str | None = None
    trust_data: bool = False
    output: str | None = None
    largest: Annotated[int, Interval(ge=1, le=65536)] = 4096


def check(config: Mapping[str, Any]) -> list[str]:
    """Returns all problems of the configuration, one line each."""
    if not isinstance(own := config.get("benchmark"), Mapping):
        return ["benchmark: required, but missing from the configuration"]
    run = {key: value for key, value in config.items() if key != "benchmark"}
    if isinstance(run.get("model"), Mapping) and run["model"].get("name") == "birnn":
        return ["model=birnn: give a transformer; the BiRNN is set under benchmark.birnn"]
    if found := [*check_run(run), *problems(Benchmark, "benchmark", own)]:
        return found
    if other := [line for line in check_run({**run, "model": own["birnn"]}) if line.startswith("model.")]:
        return [f"benchmark.birnn.{line.removeprefix('model.')}" for line in other]
    return _not_comparable(run, own) + _not_found(own)


def _not_comparable(run: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Returns a line for each setting that the other programs do not support."""
    found = []
    for part, name, model in (("model", "transformer", run["model"]), ("benchmark.birnn", "birnn", own["birnn"])):
        usual = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults(MODELS[name]).items()}
        unlike = [
            f"{part}.{key}={value}" for key, value in model.items() if key not in SHARED_SETTINGS[name] and value != usual[key]
        ]
        found += [f"{setting}: the other programs have no such option; leave it out" for setting in unlike]
    if run["trainer"]["accumulate"] != 1:
        found.append(f"trainer.accumulate={run['trainer']['accumulate']}: other programs step after each batch; leave it out")
    if not run["data"]["tokenizer"].get("joint", True):
        found.append("data.tokenizer.joint=false: other programs have one vocabulary for source and target; leave this out")
    return found


def _not_found(own: Mapping[str, Any]) -> list[str]:
    """Returns a line if there are no cases, and one for each interpreter, checkpoint or output folder that cannot be used."""
    found = [] if own["cases"] else ["benchmark.cases=[]: give at least one case"]
    for name, path in own["peers"].items():
        try:
            if path is not None and not shutil.which(path_of(path)):
                found.append(f"benchmark.peers.{name}={path}: no such program; give the path of that environment's Python")
        except InputError as error:
            found += [f"benchmark.peers.{name}={problem}" for problem in error.problems]
    if own["checkpoint"]:
        try:
            checkpoint.find(own["checkpoint"])
        except InputError as error:
            found += [f"benchmark.{problem}" for problem in error.problems]
    if own["output"]:
        found += [line.replace("output_dir=", "benchmark.output=", 1) for line in output_dir_problems(own["output"])]
    return found
