"""Validates configurations against the signatures of the callables that they configure.

A part of a configuration (`model`, `optim`, ...) holds the arguments of a callable. Their annotations are the schema: types,
choices (`Literal`), ranges (`Annotated[int, Interval(ge=1)]`) and nested parts (a TypedDict, a dataclass, a mapping). The
attribute `relations` of a callable lists functions that check constraints between several of its arguments, and raise
ValueError if the values are incompatible. A model's constructor also runs these checks.

Pydantic validates each value in strict mode: "3" is not a number, true is not 1, and NaN and infinity are rejected. Error
messages describe the allowed values in words generated from the annotation's JSON schema.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from entente.console import escape
from entente.errors import InputError

T = TypeVar("T")

MISSING = "???"  # OmegaConf's marker for a value that the user must set
REQUIRED = inspect.Parameter.empty  # marks a setting that has no default
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
NEEDS_QUOTES = re.compile(r"\s*|null|true|false|[-+]?(\.?inf|\.?nan|[\d._]+(e[-+]?\d+)?)", re.IGNORECASE)
LONGEST = 80  # maximum length of a value in a message, in characters
TYPES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text", "null": "null"}
LIMITS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "less than {}",
}


def problems(target: Callable[..., Any], part: str, values: object, given: Collection[str] = ()) -> list[str]:
    """Returns a line for each unknown or invalid setting in `values`, each missing argument, and each violated relation.
    part: key of `values` in the configuration ("" at the top level). given: names of arguments that the program supplies."""
    if not isinstance(values, Mapping):
        return [f"{part}={to_text(values)}: give settings, each as {part}.KEY=VALUE"]
    settings = {name: setting for name, setting in settings_of(target).items() if name not in given}
    known = [_key(part, name) for name in settings]
    found = [unknown(_key(part, name), to_text(value), known) for name, value in values.items() if name not in settings]
    sound: dict[str, Any] = {}
    for name, setting in settings.items():
        key, value = _key(part, name), values.get(name, setting.default)
        if value is REQUIRED or (isinstance(value, str) and value == MISSING):
            found.append(unset(key))
        elif name in values and (wrong := _value_problems(setting.annotation, key, value)):
            found += wrong
        else:
            sound[name] = value
    for relation in getattr(target, "relations", ()):
        names = list(inspect.signature(relation).parameters)
        if sound.keys() >= set(names):
            try:
                relation(**{name: sound[name] for name in names})
            except InputError as error:
                found += error.problems
            except ValueError as error:  # replace each NAME= in the message with the full key
                found.append(re.sub(rf"\b({'|'.join(names)})=", lambda match: _key(part, match[0]), str(error)))
    return found


def fill(target: Callable[..., T], part: str, values: Mapping[str, Any], /, **given: Any) -> T:
    """Calls `target` with the settings `values` and the arguments `given`. Raises InputError with every problem found."""
    if found := problems(target, part, values, given):
        raise InputError(*found)
    arguments = dict(values)
    for name, setting in settings_of(target).items():
        if name in values and dataclasses.is_dataclass(setting.annotation):
            arguments[name] = fill(setting.annotation, _key(part, name), values[name])  # type: ignore[arg-type]
    try:
        return target(**arguments, **given)
    except ValueError as error:
        raise InputError(f"{part}: {error}") from error


def settings_of(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a function or class, or the keys of a TypedDict, with their annotations and defaults."""
    if is_typeddict(target):
        hints = get_type_hints(target, include_extras=True).items()
        return {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints}
    return dict(inspect.signature(target, eval_str=True).parameters)


def defaults(target: Callable[..., Any]) -> dict[str, Any]:
    """Returns the default values of the optional arguments of `target`, by name."""
    return {name: setting.default for name, setting in settings_of(target).items() if setting.default is not REQUIRED}


def flat(node: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields the dotted key and the value of every setting and every part of a configuration."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}", value
            yield from flat(value, f"{prefix}{key}.")


def unset(key: str) -> str:
    return f"{key} is not set: give it as {key}=VALUE"


def unknown(key: str, value: str, known: Collection[str]) -> str:
    """Returns a line that reports an unknown key and suggests known ones. known: the full keys of all settings."""
    meant = suggestion(key, known) or f"; the settings here are {', '.join(_siblings(key, known)) or 'none'}"
    return f"{key}={value}: no such setting{meant}"


def suggestion(name: str, known: Collection[str]) -> str:
    """Returns "; did you mean NAME?" for the nearest known name, to append to an error message, or "" if no name is near."""
    return f"; did you mean {near}?" if (near := nearest(name, known)) else ""


def nearest(name: str, known: Collection[str]) -> str:
    """Returns the key that was probably meant, or "" if there is none. Tries, in this order: a key in the same part that is
    spelt similarly; one that starts with the name; the same name in another part; if the part is unknown, any similar key."""
    last = name.rpartition(".")[2]
    siblings = _siblings(name, known)
    alike = get_close_matches(last, siblings, 1) or [one for one in siblings if last and one.startswith(last)]
    found = [siblings[one] for one in alike] + [key for key in known if key.rpartition(".")[2] == last]
    if not (found or siblings):
        found = get_close_matches(name, known, 1)
    return found[0] if found else ""


def _siblings(key: str, known: Collection[str]) -> dict[str, str]:
    """Returns the known keys in the same part as `key`, as a mapping from a key's last component to the full key."""
    parts = [other.rpartition(".") for other in known]
    return {last: f"{part}{dot}{last}" for part, dot, last in parts if part == key.rpartition(".")[0]}


def to_text(value: object) -> str:
    """Formats a value as on a command line, and shortens it if long. Strings that YAML would read as other types are quoted."""
    return escape.line(_yaml(value), LONGEST)


def _yaml(value: object) -> str:
    match value:
        case None | True | False:
            return "null" if value is None else str(value).lower()
        case str():
            return f"'{value}'" if NEEDS_QUOTES.fullmatch(value) else value
        case Mapping():
            return f"{{{', '.join(f'{key}: {_yaml(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_yaml, value))}]"
        case int() if abs(value) >= 10**LONGEST:  # Python refuses to convert very long integers to text
            return f"(a number of more than {LONGEST} digits)"
    return str(value)


def _key(part: str, name: object) -> str:
    return f"{part}.{name}" if part else str(name)


def _value_problems(annotation: Any, key: str, value: Any) -> list[str]:
    """Returns a line if the value is invalid, or, if it is a nested part, a line for each invalid setting in it."""
    part = part_of(annotation)
    if part and (isinstance(value, Mapping) or (dataclasses.is_dataclass(part) and part is annotation)):
        if get_origin(part) is None:
            return problems(part, key, value)
        names, item = get_args(part)
        odd = [f"{_key(key, to_text(name))}: not {allowed(names)}; rename it" for name in value if not _accepts(names, name)]
        return odd or [line for name in value for line in _value_problems(item, _key(key, name), value[name])]
    if part is not annotation and _accepts(annotation, value):
        return []
    words, choices = allowed(annotation), list(_choices(json_schema(annotation)))
    given = map(str, value if isinstance(value, list | tuple) else [value])
    near = next(filter(None, (suggestion(one, choices) for one in given if one not in choices)), "")
    return [f"{key}={to_text(value)}: {'choose' if 'one of' in words else 'give'} {words}{near}"]


def part_of(annotation: Any) -> Any:
    """Returns `annotation` if it is a TypedDict, dataclass or mapping; otherwise the first such type in it, or None."""
    is_class = isinstance(annotation, type) and (is_typeddict(annotation) or dataclasses.is_dataclass(annotation))
    if is_class or get_origin(annotation) in (dict, Mapping):
        return annotation
    return next(filter(None, map(part_of, get_args(annotation))), None)


def _accepts(annotation: Any, value: object) -> bool:
    try:
        TypeAdapter(annotation, config=STRICT).validate_python(value)
    except ValidationError:
        return False
    return True


def allowed(annotation: Any) -> str:
    """Describes in words the values that an annotation allows."""
    schema = json_schema(annotation)
    return _words(schema, schema.get("$defs", {}))


def json_schema(annotation: Any) -> dict[str, Any]:
    return TypeAdapter(annotation).json_schema()


def _words(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": place}:
            return f"the settings {', '.join(parts[place.rpartition('/')[2]]['properties'])}"
        case {"properties": settings}:
            return f"the settings {', '.join(settings)}"
        case {"anyOf": forms}:
            return " or ".join(_words(form, parts) for form in forms)
        case {"description": words}:
            return str(words)
        case {"const": _} | {"enum": _}:
            return f"one of {', '.join(_choices(schema))}"
        case {"type": "array", "items": items}:
            choices, least = ", ".join(_choices(items)), schema.get("minItems")
            size = f" of length {least} or more" if least else ""
            return f"a list of {choices}" if choices else f"a list{size} in which each item is {_words(items, parts)}"
        case {"type": "object", "additionalProperties": items}:
            return f"settings by name, where each value is {'any value' if items is True else _words(items, parts)}"
        case {"minimum": low, "maximum": high}:
            return f"{TYPES[schema['type']]} from {low} to {high}"
        case {"type": kind}:
            limits = [words.format(schema[limit]) for limit, words in LIMITS.items() if limit in schema]
            return " ".join([TYPES[kind], " and ".join(limits)]).strip()
    return "any value"


def _choices(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields the values that a JSON schema enumerates, directly, in its alternatives (anyOf) or in the schema of its items."""
    yield from map(_yaml, schema.get("enum", [schema["const"]] if "const" in schema else []))
    for form in schema.get("anyOf", [schema["items"]] if "items" in schema else []):
        yield from _choices(form)
