"""Reads ablation files, and composes the baseline of a variant: the configuration of the same run without its ablation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from entente.config.command_line import key_of, plain
from entente.config.schema import flat, suggestion
from entente.errors import InputError
from entente.files import read_yaml

BASELINE = "baseline"
FIRST_LINE = "# @package _global_"


def compose_run(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the configuration of a training run. Hydra must be initialised, as it is within our commands."""
    return plain(hydra.compose("train", list(overrides)))[0]


def baseline_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of the current run without its ablation. Raises InputError if `config`, the run's own
    configuration, contradicts the ablation, since the run would not match its name."""
    has, ablation = dict(flat(config)), chosen_ablation()
    wrong = [(key, value) for key, value in changes(ablation).items() if has.get(key) != value and "${" not in str(value)]
    if wrong:
        raise InputError(*(f"{k}={has.get(k)}: ablation={ablation} sets it to {v}; leave out one of the two" for k, v in wrong))
    overrides = [one for one in HydraConfig.get().overrides.task if not one.startswith("ablation=")]
    return compose_run([*overrides, f"ablation={BASELINE}"])


def chosen_ablation() -> str:
    """Returns the name of the current run's ablation."""
    return str(HydraConfig.get().runtime.choices.get("ablation", BASELINE))


def option_file(name: str, group: str = "ablation") -> Path:
    folders = [Path(source.path) for source in HydraConfig.get().runtime.config_sources if source.schema == "file"]
    return next(path for folder in folders if (path := folder / group / f"{name}.yaml").exists())


def changes(name: str, group: str = "ablation") -> dict[str, object]:
    """Returns the settings that an option's file changes, by dotted key. name, group: the option and its config group."""
    content = flat(read_yaml(option_file(name, group)))
    return {key: value for key, value in content if not isinstance(value, Mapping) and key not in ("variant", "defaults")}


def without_debug_settings(overrides: Sequence[str]) -> list[str]:
    """Returns a suite's overrides. If the user has chosen trainer=debug, leaves out those that would undo it."""
    if HydraConfig.get().runtime.choices.get("trainer") != "debug":
        return list(overrides)
    return [one for one in overrides if key_of(one) not in changes("debug", "trainer/last")]


def header(ablation: str) -> str:
    """Returns the comments in an ablation's file: its claim, definition and outcome."""
    lines = option_file(ablation).read_text(encoding="utf-8").splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#") and line != FIRST_LINE)


def unusable(ablations: Sequence[str]) -> list[str]:
    """Returns a line for each name that has no valid file in configs/ablation."""
    known = GlobalHydra.instance().config_loader().get_group_options("ablation")
    return [problem for ablation in ablations if (problem := _problem_of(ablation, known))]


def _problem_of(ablation: str, known: Sequence[str]) -> str:
    if ablation not in known:
        return f"{ablation}: no such ablation in configs/ablation{suggestion(ablation, known)}"
    file = option_file(ablation)
    try:
        content, text = read_yaml(file), file.read_text(encoding="utf-8")
    except ValueError as error:
        return f"{file}: cannot be read ({error})"
    if not text.startswith(FIRST_LINE):
        return f"{file}: its first line must be {FIRST_LINE}, or its settings land under `ablation`"
    if not isinstance(content, dict) or content.get("variant") != ablation:
        return f"{file}: must set `variant: {ablation}`, its own name, which identifies its runs"
    return ""
