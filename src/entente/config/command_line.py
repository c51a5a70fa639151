"""How commands begin: Hydra composes the configuration, and everything the user got wrong is reported at once."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from entente.config.defaults import commented
from entente.config.schema import MISSING, flat, nearest, unknown, unset
from entente.console.endings import endings, occupy_standard_streams
from entente.console.signals import StopSignals
from entente.errors import InputError
from entente.files.reading import path_of, read_yaml

Command = Callable[[dict[str, Any]], None]
Check = Callable[[dict[str, Any]], Sequence[str]]

COMPOSING = (HydraException, OmegaConfBaseException, yaml.YAMLError)  # what a command that composes more raises
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")  # what Hydra tells of itself
MOST_VALUES = 10_000  # of a sweep; Hydra lists them all
UNUSABLE = Exception  # what Hydra makes of a command line that it cannot use: a KeyError, an OSError, ... have no one root


def run(command: Command, configs: Path, name: str, check: Check | None = None) -> None:
    """Calls `command` with the plain dict composed from `configs/name.yaml` and the command line's overrides. `check` says what
    is wrong with such a dict, a line for each problem; the command runs when there is none."""
    ours = False  # whether what runs is not Hydra

    def main(config: DictConfig) -> None:
        nonlocal ours
        ours = True
        with endings():  # here, before Hydra adds lines of its own
            command(resolve_config(config, HydraConfig.get().overrides.task, check))
        ours = False

    occupy_standard_streams()
    with endings():
        if not _working_directory_exists():
            raise InputError("the working directory has been deleted; change to another one")
        # Python keeps bytes that are not UTF-8 as lone surrogates.
        if strange := [ascii(argument) for argument in sys.argv[1:] if re.search("[\ud800-\udfff]", argument)]:
            raise InputError(*(f"{argument}: not UTF-8 text; convert it, or rename the file" for argument in strange))
    sys.argv[1:] = [quoted(argument) for argument in sys.argv[1:]]
    with endings():
        arguments = parse_flags()
        if arguments.help:
            print(help_text(configs, name, check, arguments))
            return
        if arguments.multirun and list_sweeps(arguments, configs, name)[1]:  # here, before Hydra makes a directory
            raise InputError(*misfits(configs, name, check, arguments))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach us as they are; what is printed of them is decided here
    with endings(), StopSignals():
        try:
            hydra.main(version_base="1.3", config_path=str(configs), config_name=name)(main)()
        except SystemExit as ended:
            sys.exit(2 if ended.code == 1 and not ours else ended.code)  # Hydra has told of a flag it cannot follow
        except UNUSABLE as error:
            denied = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
            if not isinstance(error, COMPOSING) and (ours or denied):
                raise  # what the machine denies, or a fault of the command's own
            raise InputError(*(misfits(configs, name, check, arguments) or [_first_line(error)])) from error


def _working_directory_exists() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def quoted(argument: str) -> str:
    """A `key=value` whose value Hydra's grammar cannot read as it stands (an apostrophe, say), as a quoted string; a sentence
    or its translation always, since a comma in it is no sweep."""
    key, equals, value = argument.partition("=")
    is_text = key == "sentence" or (key == "target" and value != "null")  # null: the model's own translation
    by_hand = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if not equals or key.startswith("-") or by_hand or (value[:1] in ("[", "{") and not is_text):
        return argument
    try:
        OverridesParser.create().parse_override(argument)
        if not is_text:
            return argument
    except HydraException:
        pass
    escaped = value.replace('"', r"\"")
    return f'{key}="{escaped}"'


def resolve_config(config: DictConfig, overrides: Sequence[str], check: Check | None) -> dict[str, Any]:
    """The configuration that the command is to have, with nothing wrong in it; else an InputError with all that is."""
    values, found = plain(config)
    directory = values.get("resume")
    if isinstance(directory, str) and directory != "auto":
        values = resumed_config(values, overrides)
        found = [f"{stored_in(directory)}: {problem}" for problem in (check(values) if check else ())]
    elif check and (values or not found):
        found += check(values)
    if found:
        raise InputError(*dict.fromkeys(found))
    return values


def plain(config: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """The configuration as dicts, lists and values (none where it cannot be resolved), and a line for each value that is
    missing or refers to nothing."""
    found = [unset(key) for key, value in flat(OmegaConf.to_container(config)) if value == MISSING]
    try:
        container = OmegaConf.to_container(config, resolve=True)
    except InterpolationToMissingValueError:
        return {}, found
    except OmegaConfBaseException as error:
        return {}, [*found, f"{_first_line(error)}; correct the reference, or leave in what it refers to"]
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}, found


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of the run in the directory `resume`, which goes on as it began: an override that says otherwise is
    refused, since nothing would come of it. The machine may be another, so `trainer.threads` is this one's."""
    directory = config["resume"]
    if found := unused_overrides(directory, overrides):
        raise InputError(*found)
    path = stored_in(directory)
    try:
        stored = read_yaml(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"resume={directory}: no directory of a run, with a config.yaml in it; give one, or auto") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"resume={directory}: {path} cannot be read ({_first_line(error)})") from error
    if not isinstance(stored, dict):
        raise InputError(f"resume={directory}: {path} is no configuration of a run")
    if "trainer.threads" in map(key_of, overrides) and isinstance(stored.get("trainer"), dict):
        stored["trainer"]["threads"] = config["trainer"]["threads"]
    return {**stored, "resume": directory}


def stored_in(directory: str) -> Path:
    return path_of(directory) / "config.yaml"


def unused_overrides(directory: str, overrides: Sequence[str]) -> list[str]:
    """A line for each override that a run which goes on has no use for."""
    others = [override for override in overrides if key_of(override) not in ("resume", "trainer.threads")]
    return [f"resume={directory} goes on with that run's own settings; leave out {override}" for override in others]


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line as Hydra will read it; an InputError where it has a flag that is none of these. Hydra's
    --experimental-rerun is none: it reads a pickle, which can run any code."""
    parser = Flags(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    for names in (("--help", "-h"), ("--multirun", "-m"), ("--run", "-r"), ("--shell-completion", "-sc")):
        parser.add_argument(*names, action="store_true")
    for name in ("--hydra-help", "--version", "--resolve"):
        parser.add_argument(name, action="store_true")
    for names in (("--package", "-p"), ("--config-path", "-cp"), ("--config-name", "-cn"), ("--config-dir", "-cd")):
        parser.add_argument(*names)
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=INFO)
    return parser.parse_args(arguments)


class Flags(argparse.ArgumentParser):
    """Reports what it cannot read as the rest of the program does."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; --help lists the flags, which go before the settings")


def help_text(configs: Path, name: str, check: Check | None, arguments: argparse.Namespace) -> str:
    """What the command does, the files that can be chosen, and each setting with its value, comment and range."""
    with hydra.initialize_config_dir(str(configs), version_base="1.3"):
        try:
            config: Any = OmegaConf.to_container(hydra.compose(name, arguments.overrides))
        except UNUSABLE:
            config = None
    if config is None:
        raise InputError(*misfits(configs, name, check, arguments))
    lines = (configs / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("#"), lines)]
    groups = [group for group in groups_of(configs, name) if (configs / group).is_dir()]
    chosen = [f"  {group}={'|'.join(choices(configs / group))}" for group in groups]
    more = "--cfg job shows the configuration, -m runs several values (KEY=1,2), --hydra-help lists the others"
    parts = ["\n".join(header), f"Flags, before the settings: {more}."]
    parts += ["\n".join(["Files of settings, GROUP=NAME:", *chosen])] if chosen else []
    return "\n\n".join([*parts, "Settings, KEY=VALUE or PART.KEY=VALUE:", commented(name, config)])


def misfits(configs: Path, name: str, check: Check | None, arguments: argparse.Namespace) -> list[str]:
    """A line for each override of the command line that does not compose, and for all that is wrong with what the others
    compose; none where the fault is not theirs."""
    if arguments.config_path or arguments.config_dir:
        return []  # other files decide what there is
    groups = groups_of(configs, arguments.config_name or name)
    given, lines = list_sweeps(arguments, configs, name)
    resume = next((one.partition("=")[2] for one in given if key_of(one) == "resume"), "null")
    if resume not in ("null", "auto") and (found := unused_overrides(resume, given)):
        return found
    given.sort(key=lambda one: key_of(one) not in groups)  # which settings there are depends on the choices of groups
    good: dict[str, str] = {}
    unclear: set[str] = set()  # groups of which nothing is known, since it cannot even be guessed which choice was meant

    def compose(key: str = "", *more: str) -> DictConfig:
        return hydra.compose(arguments.config_name or name, [*(one for k, one in good.items() if k != key), *more])

    with hydra.initialize_config_dir(str(configs), version_base="1.3"):
        try:
            config = compose()
        except UNUSABLE:
            return []
        for one in given:
            key = key_of(one)
            if key.partition(".")[0] in unclear or not unclear <= config.keys():  # one that is no part may choose anything
                continue
            try:
                config = compose(key, one)
                good[key] = one
            except UNUSABLE as error:
                lines.append(explain(one, error, config, configs, groups))
                if key not in groups or key in good or isinstance(error, OverrideParseException):
                    continue
                if near := nearest(one.partition("=")[2], choices(configs / key)):
                    good[key] = f"{key}={near}"  # the other overrides are judged as if this had been given
                    config = compose()
                else:
                    unclear.add(key)
        values, found = plain(config)
    # Files of ours have nothing wrong in them: without a value of the user's there is nothing to check, which takes seconds.
    checked = check(values) if lines and check and values and good.keys() - groups else []
    return list(dict.fromkeys([*lines, *found, *checked]))


def list_sweeps(arguments: argparse.Namespace, configs: Path, name: str) -> tuple[list[str], list[str]]:
    """The overrides, each value of a sweep as one of its own; and a line for each sweep whose values cannot be listed."""
    if not arguments.multirun or arguments.config_path or arguments.config_dir:
        return arguments.overrides, []
    groups = groups_of(configs, arguments.config_name or name)
    given: list[str] = []
    lines = []
    for override in arguments.overrides:
        try:
            given += expand_sweep(override, groups, configs)
        except UNUSABLE as error:  # of what a user's range is made of
            lines.append(f"{override}: {_first_line(error)}")
    return given, lines


def expand_sweep(override: str, groups: Sequence[str], configs: Path) -> list[str]:
    """One override for each value of a sweep; the override itself where it is none. A ValueError where it has no values, or
    more than can be meant."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return [override]
    if not parsed.is_sweep_override():
        return [override]
    key, values = parsed.get_key_element(), parsed.value()
    if isinstance(values, Glob):
        known = choices(configs / key) if key in groups else []
        found = values.filter(known)
    elif parsed.is_discrete_sweep():
        found = list(islice(parsed.sweep_string_iterator(), MOST_VALUES + 1))
    else:
        raise ValueError("these values cannot be listed; write them out, or as range(START,STOP,STEP)")
    if not found:
        raise ValueError("there is no value to run with; give one")
    if len(found) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values; give fewer")
    return [f"{key}={value}" for value in found]


def explain(override: str, error: Exception, config: DictConfig, configs: Path, groups: Sequence[str]) -> str:
    """Why an override does not compose, in one line; `config` is what the others compose."""
    key, choice = key_of(override), override.partition("=")[2]
    if isinstance(error, OverrideParseException):
        return f"{override}: this is no override; write KEY=VALUE, with quotes around special characters"
    if OverridesParser.create().parse_override(override).is_sweep_override():
        return f"{override}: to try several values, add -m; a list is written {key}=[...]"
    if key in groups and choice not in choices(configs / key):
        near = nearest(choice, choices(configs / key))
        return f"{override}: choose one of {', '.join(choices(configs / key))}" + (f"; did you mean {near}?" if near else "")
    if "Could not override" in str(error):
        settings = [key for key, _ in flat(OmegaConf.to_container(config))]
        return unknown(key, choice, list(dict.fromkeys([*settings, *groups])))
    return f"{override}: {_first_line(error)}"


def groups_of(configs: Path, name: str) -> list[str]:
    """The groups of which the configuration `name`, or one that it is built on, makes a choice."""
    path = configs / f"{name}.yaml"
    defaults = yaml.safe_load(path.read_text(encoding="utf-8")).get("defaults", []) if path.exists() else []
    own = [group for choice in defaults if isinstance(choice, dict) for group in choice]
    below = [choice for choice in defaults if isinstance(choice, str) and choice != "_self_"]
    return sorted({*own, *(group for choice in below for group in groups_of(configs, choice))})


def choices(group: Path) -> list[str]:
    return sorted(path.stem for path in group.glob("*.yaml"))


def key_of(override: str) -> str:
    """The dotted key of an override of the command line."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _first_line(error: BaseException) -> str:
    if error.__cause__ and (not str(error) or str(error).startswith("Error merging")):  # Hydra's; the reason is OmegaConf's
        error = error.__cause__
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, KeyError):
        return f"there is no {error}"
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{error.full_key}: {text}" if isinstance(error, OmegaConfBaseException) and error.full_key else text
