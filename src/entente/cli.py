"""Turns a command line into settings, and reports all of the user's mistakes at once.

`train`, `ablate` and `data` are composed by Hydra from the files in configs/. The other verbs need no config groups: each of
their arguments is split at its first `=`, and the value of a text setting is taken as it stands.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml

from entente.commands import settings as commands
from entente.console import lines_of, print_error
from entente.errors import InputError, reason
from entente.help import help_text, overview
from entente.settings import MISSING, RunSettings, Section
from entente.validation import fields_of, suggestion, validate

HERE = Path(__file__).resolve().parent
# configs/ is in the package if installed as a wheel, or at the top level of a checkout.
CONFIGS = HERE / "configs" if (HERE / "configs").is_dir() else HERE.parents[1] / "configs"
VERBS: dict[str, type[Section]] = {
    "train": RunSettings,
    "evaluate": commands.EvaluateSettings,
    "translate": commands.TranslateSettings,
    "attention": commands.AttentionSettings,
    "trace": commands.TraceSettings,
    "ablate": commands.AblateSettings,
    "compare": commands.CompareSettings,
    "data": commands.InspectSettings,
    "corpus": commands.CorpusSettings,
}
COMPOSED = ("train", "ablate", "data")  # the verbs that Hydra composes


@dataclass(frozen=True)
class Composition:
    """A configuration composed by Hydra. values: nested plain values, with defaults. overrides: as typed. choices: the option
    of each config group. config_dir: the user's own folder with config groups, or None."""

    values: dict[str, Any]
    overrides: list[str]
    choices: dict[str, str]
    config_dir: str | None = None


def main(arguments: Sequence[str]) -> None:
    """Runs a command line, without the name of the program."""
    verb, *rest = [word for word in arguments if word not in ("-h", "--help", "help")] or [""]
    wants_help = len(rest) + bool(verb) < len(arguments) or not verb
    if verb in VERBS:
        run(verb, rest, wants_help)
    elif verb == "--version":
        print(f"entente {version('entente')}")
    elif wants_help and not verb:
        print(overview([*VERBS]), file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    else:
        raise InputError(f"{verb}: choose one of {', '.join(VERBS)}{suggestion(verb, VERBS)}")


def run(verb: str, arguments: Sequence[str], wants_help: bool) -> None:
    """Checks the settings of a verb and calls `main` of its module in entente.commands, or prints help."""
    if verb not in COMPOSED:
        values = read_arguments(verb, arguments)
        if wants_help:
            print(help_text(verb, [VERBS[verb]], defaults(VERBS[verb]), {}))
        else:
            settings = validate(VERBS[verb], values)
            import_module(f"entente.commands.{verb}").main(settings)
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _refuse_flag  # type: ignore[method-assign]
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("--config-dir")
    parser.add_argument("overrides", nargs="*")
    flags = parser.parse_intermixed_args(arguments)
    if flags.multirun and not wants_help:
        sweep(verb, flags.overrides, flags.config_dir)
        return
    composition, problems = compose_checked(verb, flags.overrides, flags.config_dir)
    if wants_help or flags.cfg:
        if problems:
            raise InputError(*problems)
        if wants_help:
            kinds = [RunSettings, VERBS[verb]] if verb == "ablate" else [VERBS[verb]]
            print(help_text(verb, kinds, composition.values, options(flags.config_dir)))
        else:
            print(yaml.safe_dump(composition.values, sort_keys=False, allow_unicode=True).rstrip())
    else:
        call(verb, composition, problems)


def call(verb: str, composition: Composition, problems: Sequence[str] = ()) -> None:
    """Calls the command of a verb. problems: those found before its settings were checked; all are reported together."""
    kind, values = VERBS[verb], composition.values
    own = values if verb != "ablate" else {key: value for key, value in values.items() if key in kind.model_fields}
    skip = tuple(f"{problem.partition('=')[0]}." for problem in problems)  # settings of a config group with a wrong option
    try:
        settings = validate(kind, own)
    except InputError as error:
        raise InputError(*problems, *(line for line in error.problems if not line.startswith(skip))) from None
    if problems:
        raise InputError(*problems)
    command = import_module(f"entente.commands.{verb}").main
    command(settings) if verb == "data" else command(settings, composition)


def sweep(verb: str, overrides: Sequence[str], config_dir: str | None) -> None:
    """Lets Hydra run the verb once for each combination of values. A failing run is reported, and the others go on."""
    from hydra import version as hydra_version
    from hydra._internal.utils import _run_hydra, get_args_parser  # hydra.main can only read sys.argv
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    register()
    hydra_version.setbase("1.3")  # older versions change the working directory
    codes: list[int] = []

    def task(config: Any) -> None:
        job = HydraConfig.get()
        values: Any = OmegaConf.to_container(config, resolve=True)
        choices = {str(group): str(option) for group, option in job.runtime.choices.items()}
        try:
            call(verb, Composition(values, [*job.overrides.task], choices, config_dir))
        except Exception as error:
            if (ending := lines_of(error)) is not None:
                codes.append(print_error(*ending))
            raise

    flags = ["--multirun", *([f"--config-dir={config_dir}"] if config_dir else [])]
    parser = get_args_parser()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise errors instead of printing them
    try:
        _run_hydra(parser.parse_args([*flags, *map(forced, overrides)]), parser, task, str(CONFIGS), verb)
    except Exception as error:
        if codes:
            sys.exit(codes[0])
        if lines_of(error) is None:
            raise InputError(reason(error.__cause__ or error)) from error
        raise


def compose(verb: str, overrides: Sequence[str], config_dir: str | None = None) -> Composition:
    """Returns the configuration that Hydra composes. Raises InputError if an override or a file is invalid."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    register()
    sweeping, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None  # not None during a sweep
    paths = [f"hydra.searchpath=[file://{os.path.abspath(config_dir)}]"] if config_dir else []
    try:
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = hydra.compose(verb, [*map(forced, overrides), *paths], return_hydra_config=True)
        choices = {str(group): str(option) for group, option in config.hydra.runtime.choices.items()}
        values: Any = OmegaConf.to_container(
            OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), resolve=True
        )
    except Exception as error:  # Hydra raises errors of many types for a bad command line or file
        cause = error.__cause__ if error.__cause__ and "Error merging" in str(error) else error
        raise InputError(reason(cause)) from error
    finally:
        GlobalHydra.instance().hydra = sweeping
    return Composition(values, list(overrides), choices, config_dir)


def compose_checked(verb: str, overrides: Sequence[str], config_dir: str | None) -> tuple[Composition, list[str]]:
    """Returns the configuration composed from the overrides that Hydra can use, and a line for each of the others."""
    groups, problems, usable = options(config_dir), [], []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not key.startswith("~"):
            likely = [f"{group}={key}" for group, names in groups.items() if key in names]
            problems.append(f"{override}: write KEY=VALUE{f'; did you mean {likely[0]}?' if likely else ''}")
        elif key in groups and value not in groups[key]:
            problems.append(f"{override}: choose one of {', '.join(groups[key])}{suggestion(value, groups[key])}")
        else:
            usable.append(override)
    return compose(verb, usable, config_dir), problems


def forced(override: str) -> str:
    """Returns an override that Hydra accepts even if the key is unknown (`validate` then reports it with everything else), with
    quotes around a value that Hydra's grammar could not read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = override.partition("=")
    if not equals or key[:1] in "+~" or key.startswith("hydra") or key.partition("@")[0] in options(None):
        return override
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        value = '"' + value.replace('"', r"\"") + '"'
    return f"++{key}={value}"


def options(config_dir: str | None) -> dict[str, list[str]]:
    """Returns the options of each config group: the names of the files in its folder."""
    names: dict[str, list[str]] = {}
    for folder in filter(None, (CONFIGS, config_dir)):
        for group in sorted(path for path in Path(folder).glob("*") if path.is_dir() and path.name != "hydra"):
            names.setdefault(group.name, []).extend(sorted(path.stem for path in group.glob("*.yaml")))
    return {group: list(dict.fromkeys(files)) for group, files in names.items() if files}


def register() -> None:
    """Gives Hydra the defaults of all settings, as the configs `_train`, `data/_grammar` and so on that configs/ refers to."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    run_defaults = {key: value for key, value in defaults(RunSettings).items() if key not in ("model", "data")}
    store.store("_train", run_defaults)
    for verb in ("ablate", "data"):
        store.store(f"_{verb}", {key: value for key, value in defaults(VERBS[verb]).items() if key != "data"})
    for group in ("model", "data"):
        for kind in get_args(RunSettings.model_fields[group].annotation):
            store.store(f"_{kind.model_fields['name'].default}", defaults(kind), group)


def defaults(kind: type[Section]) -> dict[str, Any]:
    """Returns the default values of a section, as plain values. A setting without a default has the value MISSING."""
    required = {name: MISSING for name, field in kind.model_fields.items() if field.is_required()}
    return kind.model_construct().model_dump(mode="json", exclude={*required}) | required


def read_arguments(verb: str, arguments: Iterable[str]) -> dict[str, Any]:
    """Returns the settings given as KEY=VALUE, nested. `compare` also takes directories without a key."""
    from omegaconf import OmegaConf

    values: dict[str, Any] = {}
    texts = {key for key, field in fields_of(VERBS[verb], {}) if str in (field.annotation, *get_args(field.annotation))}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if argument.startswith("-"):
            _refuse_flag(f"unknown flag: {argument}")
        elif not equals and verb == "compare":
            values["runs"] = [*values.get("runs", []), argument]
        elif not equals:
            raise InputError(f"{argument}: write KEY=VALUE")
        elif key in texts and text[:1] != "[":
            values[key] = None if text == "null" else text
        else:
            read: Any = OmegaConf.to_container(OmegaConf.from_dotlist([argument]))
            for part, value in read.items():
                values[part] = {**values.get(part, {}), **value} if isinstance(value, dict) else value
    return values


def _refuse_flag(message: str) -> NoReturn:
    raise InputError(f"{message}; the flags are --help, --cfg job, -m (--multirun) and --config-dir=FOLDER")


def key_of(override: str) -> str:
    """Returns the dotted key of an override."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]
