"""Starts commands: composes the configuration with Hydra, and reports all of the user's mistakes at once."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import hydra
import yaml
from hydra._internal.utils import get_args_parser  # Hydra has no public API for its flags
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from entente.config.help import help_text
from entente.config.schema import MISSING, fill, flat, nearest, problems, suggestion, unknown, unset
from entente.config.tables import is_surely_valid
from entente.console.endings import StopSignals, endings, occupy_standard_streams
from entente.errors import InputError, reason
from entente.files import path_of, read_yaml

Command = Callable[[dict[str, Any]], None]
Check = Callable[[dict[str, Any]], Sequence[str]]

# Settings of `trainer` that, like output_dir, may be overridden with resume=DIRECTORY, for example to continue the run on
# another machine.
OF_THE_MACHINE = ("threads", "accelerator", "devices", "num_nodes", "strategy", "accumulate")
MOST_VALUES = 10_000  # maximum number of values of one override in a sweep, since Hydra expands them all
HYDRA_ERRORS = Exception  # Hydra raises errors of many types for a bad command line: KeyError, OSError, ...


def run(command: Command, configs: Path, name: str, check: Check = lambda config: ()) -> None:
    """Calls `command` with the configuration composed from `configs/name.yaml` and the overrides of the command line, or prints
    the help text for --help. `check` returns one line per problem in a configuration; `command` runs only if there are none."""
    occupy_standard_streams()
    with endings(), StopSignals():
        sys.argv[1:] = usable_arguments()
        wanted = [one for one in sys.argv[1:] if one not in ("-h", "--help", "help")]  # help may be requested in any position
        is_help, sys.argv[1:] = len(wanted) < len(sys.argv) - 1, wanted
        line = CommandLine(configs, name, check)
        if is_help:
            print(line.help())
        else:
            line.call(command)


def run_named(configs: Path, name: str, given: str, command: str) -> None:
    """Calls `run` with a command and a check that are imported only after Hydra has applied the overrides, since the imports
    take seconds. given: MODULE:NAME of the class of the command's settings, or of a function that checks its configuration.
    command: MODULE:NAME of the function to call with the settings or, if `given` is a function, with the configuration."""

    def check(config: dict[str, Any]) -> Sequence[str]:
        kind = resolve_name(given)
        return problems(kind, "", config) if isinstance(kind, type) else kind(config)

    def main(config: dict[str, Any]) -> None:
        kind = resolve_name(given)
        resolve_name(command)(fill(kind, "", config) if isinstance(kind, type) else config)

    run(main, configs, name, check)


def usable_arguments() -> list[str]:
    """Returns the arguments in `sys.argv`, quoted if Hydra's grammar requires it. Raises InputError if an argument is not
    UTF-8 or if the working directory does not exist."""
    try:
        os.getcwd()
    except OSError:
        raise InputError("the working directory has been deleted; change to another one") from None
    # Python decodes bytes that are not UTF-8 as lone surrogates.
    if strange := [ascii(argument) for argument in sys.argv[1:] if re.search("[\ud800-\udfff]", argument)]:
        raise InputError(*(f"{argument}: not UTF-8 text; convert it, or rename the file" for argument in strange))
    return [quote_value(argument) for argument in sys.argv[1:]]


def read_override(override: str) -> Override | None:
    """Parses an override with Hydra's grammar; returns None if it is invalid."""
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


def quote_value(argument: str) -> str:
    """Quotes the value of an argument if Hydra's grammar requires it, for example because of an apostrophe. The
    values of `sentence` and `target` are always quoted, so that a comma in them does not start a sweep."""
    key, equals, value = argument.partition("=")
    is_text = key == "sentence" or (key == "target" and value != "null")  # null: the model's own translation
    if not equals or key.startswith("-"):
        return argument
    one = read_override(argument)
    is_quoted = value[:1] in ("'", '"') and one is not None and not one.is_sweep_override()
    if is_quoted or (not is_text and (value[:1] in ("[", "{") or one)):
        return argument
    return f"{key}={quote(value)}"


def quote(text: str) -> str:
    """Returns `text` between quotation marks, as a string of Hydra's grammar."""
    # In this grammar, backslashes are doubled only before a quotation mark.
    escaped = re.sub(r'(\\*)("|\Z)', lambda found: 2 * found[1] + found[2].replace('"', r"\""), text)
    return f'"{escaped}"'


def key_of(override: str) -> str:
    """Returns the dotted key of an override."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def plain(config: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """Returns `config` as a dict with interpolations resolved, and a line for each missing value. If an interpolation cannot
    be resolved, the dict is empty and a line says why."""
    found = [unset(key) for key, value in flat(OmegaConf.to_container(config)) if value == MISSING]
    try:
        container: Any = OmegaConf.to_container(config, resolve=True)
    except InterpolationToMissingValueError:
        return {}, found
    except OmegaConfBaseException as error:
        return {}, [*found, f"{why(error)}; correct the interpolation, or do not remove the setting that it refers to"]
    return container, found


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the stored configuration of the run in the directory `resume`. The resumed run uses it unchanged, except that
    output_dir and the settings in OF_THE_MACHINE may be overridden. Raises InputError if there is no readable configuration."""
    directory = config["resume"]
    path = path_of(directory) / "config.yaml"
    if not os.path.exists(path):
        raise InputError(
            f"resume={directory}: not a run's directory (it has no config.yaml); give the directory of a run, or resume=auto"
        )
    try:
        stored = read_yaml(path)
    except ValueError as error:
        raise InputError(f"resume={directory}: {path} cannot be read ({error})") from error
    if not isinstance(stored, dict):
        raise InputError(f"resume={directory}: {path} is not the configuration of a run")
    given = {key_of(one) for one in overrides}
    if isinstance(stored.get("trainer"), dict):
        stored["trainer"] |= {key: config["trainer"][key] for key in OF_THE_MACHINE if f"trainer.{key}" in given}
    return {**stored, **{key: config[key] for key in given & {"output_dir"}}, "resume": str(path.parent)}


def refuse(message: str) -> NoReturn:
    raise InputError(f"{message}; --help lists the flags, which go before the settings")


def flags_parser() -> argparse.ArgumentParser:
    """Returns Hydra's command-line parser, which here raises InputError if a flag is invalid."""
    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser


class CommandLine:
    """The flags and overrides of one command, parsed before Hydra runs.

    overrides: the overrides given, with each sweep (-m) replaced by one override per value. unlisted: an error message for each
    sweep that cannot be expanded.
    """

    def __init__(self, configs: Path, name: str, check: Check) -> None:
        self.configs, self.verb, self.name, self.check = configs, name, name, check
        try:
            self.flags = flags_parser().parse_args()
            if self.flags.experimental_rerun:
                refuse(f"--experimental-rerun={self.flags.experimental_rerun}: a pickle can run any code; leave out this flag")
        except InputError as error:
            raise InputError(*(self._settings_with_dashes() or error.problems)) from error
        self.name = self.flags.config_name or name
        self.elsewhere = bool(self.flags.config_path or self.flags.config_dir)  # whether other folders may define settings
        self.overrides: list[str] = []
        self.unlisted: list[str] = []
        for override in self.flags.overrides:
            try:
                self.overrides += self._values(override) if self.flags.multirun and not self.elsewhere else [override]
            except HYDRA_ERRORS as error:
                self.unlisted.append(f"{override}: {why(error)}")

    def _values(self, override: str) -> list[str]:
        """Returns one override for each value of a sweep, or the override itself if it is not a sweep. Raises ValueError for an
        interval, and if there are no values or more than MOST_VALUES."""
        one = read_override(override)
        if one is None or not one.is_sweep_override():
            return [override]
        key, values = one.get_key_element(), one.value()
        if isinstance(values, Glob):
            found = values.filter(self.choices.get(key, []))
        elif one.is_discrete_sweep():
            found = list(islice(one.sweep_string_iterator(), MOST_VALUES + 1))
        else:
            raise ValueError("an interval cannot be expanded into values; list the values, or use range(START,STOP,STEP)")
        if not found:
            raise ValueError("no values to sweep over; give at least one")
        if len(found) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values; give fewer")
        return [f"{key}={value}" for value in found]

    def _settings_with_dashes(self) -> list[str]:
        """Returns a line for each argument that is a setting written as a flag, such as --model birnn or --model=birnn."""
        arguments, lines = sys.argv[1:], list[str]()
        unknown_flags = {one for one in flags_parser().parse_known_args(arguments)[1] if one.startswith("-")}
        with self._composing():
            config = hydra.compose(self.verb)
        known = self._known(config)
        for one, following in zip_longest(arguments, arguments[1:], fillvalue=""):
            flag, equals, value = one.partition("=")
            if one in unknown_flags and (meant := nearest(flag.lstrip("-").replace("-", "_"), known)):
                value = value if equals or following.startswith("-") or "=" in following else following
                given = one if equals else f"{one} {value}".strip()
                lines.append(f"{given}: settings are written without dashes; write {meant}={value or 'VALUE'}")
        return lines

    def _known(self, config: DictConfig) -> list[str]:
        """Returns the keys of the settings and config groups in a configuration."""
        return list(dict.fromkeys([*(key for key, _ in flat(OmegaConf.to_container(config))), *self.choices]))

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """The options of each config group, which are the names of the files in its folder. Hydra's own groups are left out."""
        with self._composing():
            groups = hydra.compose(self.name, return_hydra_config=True).hydra.runtime.choices
        files = {group: sorted(path.stem for path in (self.configs / group).glob("*.yaml")) for group in sorted(groups)}
        return {group: names for group, names in files.items() if names and not group.startswith("hydra/")}

    def _composing(self) -> AbstractContextManager[None]:
        return hydra.initialize_config_dir(str(self.configs), version_base="1.3")

    def call(self, command: Command) -> None:
        """Lets Hydra compose the configuration and calls the command with it; in a sweep, once per combination of values."""
        if found := self.unused_by_resume() or self.sweep_over_devices() or (self.unlisted and self.problems()):
            raise InputError(*found)  # before Hydra creates its output directory
        ours = False  # whether the command is running, rather than Hydra

        def main(config: DictConfig) -> None:
            nonlocal ours
            ours = True
            with endings():  # exits here, before Hydra can add lines to the error
                command(self.resolve(config))
            ours = False

        os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise errors instead of printing them
        try:
            hydra.main(version_base="1.3", config_path=str(self.configs), config_name=self.verb)(main)()
        except SystemExit as ended:
            sys.exit(2 if ended.code == 1 and not ours else ended.code)  # Hydra exits with 1 after reporting a bad flag
        except HYDRA_ERRORS as error:
            denied = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
            # Some commands compose configurations too, so these errors may also come from `command`.
            composing = isinstance(error, HydraException | OmegaConfBaseException | yaml.YAMLError)
            if not composing and (ours or denied):
                raise  # out of memory, a failed system call, or a bug in the command
            raise InputError(*(self.problems() or [why(error)])) from error

    def resolve(self, config: DictConfig) -> dict[str, Any]:
        """Returns `config` with interpolations resolved, or the configuration of the run whose directory `resume` names. Raises
        InputError with all problems if the configuration is invalid."""
        values, found = plain(config)
        directory = values.get("resume") if self.verb == "train" else None  # a suite refuses it
        if isinstance(directory, str) and directory != "auto":
            values = resumed_config(values, HydraConfig.get().overrides.task)
            found = [f"{path_of(directory) / 'config.yaml'}: {problem}" for problem in self.check(values)]
        elif values or not found:
            found += self.check(values)
        if found:
            raise InputError(*dict.fromkeys(found))
        return values

    def help(self) -> str:
        """Returns the help text, in which the settings and their values reflect the overrides."""
        try:
            with self._composing():
                config: Any = OmegaConf.to_container(hydra.compose(self.verb, self.flags.overrides))
        except HYDRA_ERRORS as error:
            raise InputError(*(self.problems() or [why(error)])) from error
        return help_text(self.configs / f"{self.verb}.yaml", config, self.choices)

    def unused_by_resume(self) -> list[str]:
        """Returns a line for each override that would be ignored, since a resumed run keeps its own settings."""
        directory = next((one.partition("=")[2] for one in self.overrides if key_of(one) == "resume"), "")
        if directory in ("", "null", "auto") or self.verb != "train":
            return []
        free = {"resume", "output_dir", *(f"trainer.{key}" for key in OF_THE_MACHINE)}
        others = [one for one in self.overrides if key_of(one) not in free and not key_of(one).startswith("hydra")]
        return [f"resume={directory} continues with that run's own settings; leave out {one}" for one in others]

    def sweep_over_devices(self) -> list[str]:
        """Returns an error message if this is a sweep (-m) whose runs use several devices, since each run would start processes
        that repeat the whole sweep. SLURM launchers are allowed, since they start the processes themselves."""
        several = [one for one in self.overrides if key_of(one) == "trainer.devices" and one.partition("=")[2] != "1"]
        if not self.flags.multirun or any(key_of(one) == "hydra/launcher" and "slurm" in one for one in self.overrides):
            return []
        return [f"{one}: each run needs its own command; leave out -m, or use ablate" for one in several]

    def problems(self) -> list[str]:
        """Returns a line for each override that Hydra rejects, and for each problem in the configuration composed from the
        other overrides. The list is empty if the overrides are not the cause, or if other folders may define settings."""
        if self.elsewhere:
            return []
        try:
            groups = self.choices.keys()
        except HYDRA_ERRORS:  # composing fails even without overrides
            return []
        with self._composing():
            lines, good, config = self._composed_one_by_one()
            values, found = plain(config)
        # The check takes seconds, and it cannot fail if all overrides are surely valid.
        unsure = not all(is_surely_valid(key, self.verb, values) for key in good - groups)
        checked = self.check(values) if lines and values and unsure else []
        return list(dict.fromkeys([*lines, *found, *checked]))

    def _composed_one_by_one(self) -> tuple[list[str], set[str], DictConfig]:
        """Returns a line for each override that Hydra rejects, the keys of the other overrides, and the configuration composed
        from them. Options of config groups come first, since they decide which settings exist. An invalid option is replaced
        by the nearest valid name; if none is near, the settings of that group are not checked."""
        config = hydra.compose(self.name)
        lines = list(self.unlisted)
        good: dict[str, str] = {}  # the overrides that Hydra accepts, by key
        unclear: set[str] = set()  # groups whose option is invalid and resembles no valid one
        for one in sorted(self.overrides, key=lambda one: key_of(one) not in self.choices):
            key, value = key_of(one), one.partition("=")[2]
            if key.partition(".")[0] in unclear or not unclear <= config.keys():  # an option of `experiment` could set any key
                continue
            ours = one.startswith(key) and not key.startswith("hydra") and not key[-1:].isdigit()
            if ours and read_override(one) and key not in self._known(config):
                lines.append(unknown(key, value, self._known(config)))  # not composed, since that would take 0.1 s and fail
                continue
            try:
                config = hydra.compose(self.name, [*{**good, key: one}.values()])
                good[key] = one
                continue
            except HYDRA_ERRORS as error:
                lines.append(self._explain(one, error, config))
            if key not in self.choices or key in good or not read_override(one):
                continue
            if meant := nearest(value, self.choices[key]):
                good[key] = f"{key}={meant}"
                config = hydra.compose(self.name, [*good.values()])
            else:
                unclear.add(key)
        return lines, set(good), config

    def _explain(self, override: str, error: Exception, config: DictConfig) -> str:
        """Explains in one line why Hydra rejects an override. config: the configuration composed without this override."""
        key, value, one = key_of(override), override.partition("=")[2], read_override(override)
        if one is None:
            groups = [group for group, options in self.choices.items() if override in options]
            if len(groups) == 1 or override in self._known(config):
                meant = f"{override}=VALUE" if override in self._known(config) else f"{groups[0]}={override}"
                return f"{override}: not an override; write KEY=VALUE; did you mean {meant}?"
            return f"{override}: not an override; write KEY=VALUE, with quotes around special characters"
        if one.is_sweep_override():
            return f"{override}: to try several values, add -m; a list is written {key}=[...]"
        if key in self.choices and value not in self.choices[key]:
            return f"{override}: choose one of {', '.join(self.choices[key])}{suggestion(value, self.choices[key])}"
        if "Could not override" in str(error):
            return unknown(key, value, self._known(config))
        return f"{override}: {why(error)}"


def why(error: BaseException) -> str:
    """Describes an error raised by Hydra or OmegaConf in one line, starting with the YAML line or key at fault if known."""
    if error.__cause__ and (not str(error) or str(error).startswith("Error merging")):  # Hydra wrapped the original error
        error = error.__cause__
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, KeyError):
        return f"there is no {error}"
    key = error.full_key if isinstance(error, OmegaConfBaseException) else None
    return f"{key}: {reason(error)}" if key else reason(error)
