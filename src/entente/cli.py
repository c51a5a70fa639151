"""How the scripts begin: Hydra composes the configuration, and what the user got wrong becomes one line and exit code 2."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from entente.errors import InputError

Command = Callable[[dict[str, Any]], None]


def run(command: Command, configs: Path, name: str) -> None:
    """Calls `command` with the plain dict composed from `configs/name.yaml` and the command line's overrides."""

    def main(config: DictConfig) -> None:
        try:
            command(plain(config))
        except InputError as error:  # here, before Hydra adds lines of its own
            _refuse(str(error))
        except BrokenPipeError:  # whoever read our output (head, less) has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    sys.argv[1:] = [quoted(argument) for argument in sys.argv[1:]]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach us as they are; what is printed of them is decided here
    try:
        hydra.main(version_base="1.3", config_path=str(configs), config_name=name)(main)()
    except (HydraException, OmegaConfBaseException) as error:
        _refuse(explain(error, configs, name, sys.argv[1:]))


def quoted(argument: str) -> str:
    """A `key=value` whose value Hydra's grammar cannot read as it stands (an apostrophe, say), as a quoted string; a sentence
    always, since a comma in it is no sweep."""
    key, equals, value = argument.partition("=")
    by_hand = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if not equals or key.startswith("-") or by_hand or (value[:1] in ("[", "{") and key != "sentence"):
        return argument
    try:
        OverridesParser.create().parse_override(argument)
        if key != "sentence":
            return argument
    except HydraException:
        pass
    escaped = value.replace('"', r"\"")
    return f'{key}="{escaped}"'


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as dicts, lists and values; one that is missing is an InputError that names it."""
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise InputError(f"{missing[0]} is not set: give it as {missing[0]}=VALUE")
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _refuse(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def explain(error: Exception, configs: Path, name: str, overrides: list[str]) -> str:
    """Hydra's or OmegaConf's error in one line, with the nearest right name where a key or a choice is unknown."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.removesuffix(".yaml").rpartition("/")
        choices = list(error.options or []) or sorted(path.stem for path in (configs / group).glob("*.yaml"))
        return f"{group}={choice}: no such choice{_nearest(choice, choices)} (there are {', '.join(choices)})"
    text = str(error)
    if key := re.search(r"Could not override '([^']+)'", text):
        known = sorted(set(_keys(configs, name, overrides)))
        return f"{key[1]}: no such setting{_nearest(key[1], known)}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: this is no override; write KEY=VALUE, with quotes around special characters"
    first = text.strip().splitlines()[0]
    where = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) and error.full_key else ""
    return where + first


def _nearest(name: str, known: list[str]) -> str:
    """A guess at what was meant; the last part of a dotted name counts when the whole is like nothing."""
    near = get_close_matches(name, known, 1)
    near = near or [key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]]
    near = near or get_close_matches(name, [key for key in known if key.count(".") == name.count(".")], 1, cutoff=0.3)
    return f"; did you mean {near[0]}?" if near else ""


def _keys(configs: Path, name: str, overrides: list[str]) -> Iterator[str]:
    """Every setting of the configuration that the overrides' choices of groups compose, and the groups themselves."""
    groups = {path.name for path in configs.iterdir() if path.is_dir()}
    yield from groups
    chosen = [
        o for o in overrides if o.partition("=")[0] in groups and (configs / (o.replace("=", "/", 1) + ".yaml")).is_file()
    ]
    with hydra.initialize_config_dir(str(configs), version_base="1.3"):
        yield from _flat(OmegaConf.to_container(hydra.compose(name, chosen)), "")


def _flat(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _flat(value, f"{prefix}{key}.")
