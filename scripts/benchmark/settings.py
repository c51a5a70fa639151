"""Reads the settings of the benchmark and of the runs that it measures. No other module composes the configuration of a run."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from entente import cli
from entente.errors import InputError
from entente.settings import RunSettings
from entente.validation import validate

FILE = Path(__file__).with_name("benchmark.yaml")
PREFIX = "benchmark."


def read(arguments: Sequence[str]) -> tuple[SimpleNamespace, dict[str, Any]]:
    """Returns the settings in benchmark.yaml, with the values of arguments benchmark.KEY=VALUE and, as `birnn`, the
    model of the case birnn; and the configuration of a run, composed with the other arguments."""
    settings: Any = OmegaConf.load(FILE)
    cases = [*settings.cases]
    OmegaConf.set_struct(settings, True)  # refuses unknown settings
    try:
        settings.merge_with_dotlist([word.removeprefix(PREFIX) for word in arguments if word.startswith(PREFIX)])
    except OmegaConfBaseException as error:
        raise InputError(f"{PREFIX}{str(error).splitlines()[0]}") from None
    if unknown := [case for case in settings.cases if case not in cases]:
        raise InputError(f"{PREFIX}cases={unknown}: choose from {', '.join(cases)}")
    config = compose(["experiment=transformer_small", *(word for word in arguments if not word.startswith(PREFIX))])
    birnn = compose(["experiment=ablation_baseline", "model=birnn"])["model"]
    values: Any = OmegaConf.to_container(settings)
    return SimpleNamespace(**values, birnn=birnn), config


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the checked configuration of a training run."""
    return validate(RunSettings, cli.compose("train", overrides).values).stored()
