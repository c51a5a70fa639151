"""Checks configurations against the settings' classes, and says in one line per problem what is wrong and what to do."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from entente import escape
from entente.errors import InputError
from entente.settings import MISSING, Section

Kind = TypeVar("Kind", bound=Section)
TYPES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text", "null": "null"}
LIMITS = {"minimum": "of at least {}", "exclusiveMinimum": "greater than {}"}
LIMITS |= {"maximum": "of at most {}", "exclusiveMaximum": "less than {}"}
NEEDS_QUOTES = re.compile(r"\s*|null|true|false|[-+]?(\.?inf|\.?nan|[\d._]+(e[-+]?\d+)?)", re.IGNORECASE)


def validate(kind: type[Kind], values: Mapping[str, Any], where: str = "") -> Kind:
    """Returns the settings. Raises InputError with a line for each problem, which begins with `where`."""
    given = _without_missing(values)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(*dict.fromkeys(f"{where}{line}" for line in _problems(error, kind, given))) from None


def _without_missing(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _without_missing(value) for key, value in node.items() if value != MISSING}
    return node


def _problems(error: ValidationError, kind: type[Section], values: Mapping[str, Any]) -> Iterator[str]:
    details: dict[str, list[Any]] = {}
    for detail in error.errors(include_url=False):
        details.setdefault(_key(detail, values), []).append(detail)
    settings = dict(fields_of(kind, values))
    for key, same in details.items():
        if any(other.startswith(f"{key}.") for other in details):
            continue  # the value is a section, and its own problems are reported
        value, first = dict(flat(values)).get(key), same[0]
        text = first["msg"].removeprefix("Value error, ")
        shown = f"{key}={to_text(value)}"
        if first["type"] == "missing":
            yield f"{key} is not set: give it as {key}=VALUE"
        elif first["type"] == "extra_forbidden":
            yield f"{shown}: no such setting{suggestion(key, settings) or _siblings(key, settings)}"
        elif first["type"] == "union_tag_invalid":
            tags = first["ctx"]["expected_tags"].replace("'", "")
            yield f"{key}.name={first['ctx']['tag']}: choose one of {tags}"
        elif first["type"] == "value_error" and not text.startswith("give "):
            yield from text.splitlines()
        elif first["type"] == "value_error":
            yield f"{key if isinstance(value, Mapping) else shown}: {text}"
        elif key in settings:
            words, names = allowed(settings[key]), _choices(_schema(settings[key]))
            wrong = [str(item) for item in (value if isinstance(value, list) else [value]) if str(item) not in names]
            verb = "choose" if words.startswith("one of") else "give"
            yield f"{shown}: {verb} {words}{next(filter(None, (suggestion(item, names) for item in wrong)), '')}"
        elif any(other.startswith(f"{key}.") for other in settings):
            yield f"{shown}: give settings, each as {key}.KEY=VALUE"
        else:
            yield f"{shown}: {' or '.join(detail['msg'] for detail in same)}"


def _key(detail: Any, values: Any) -> str:
    """Returns the dotted key of an error. pydantic also names the alternatives of a union, which are no keys."""
    parts, node = [], values
    for i, part in enumerate(detail["loc"]):
        is_missing = detail["type"] == "missing" and i == len(detail["loc"]) - 1
        if isinstance(node, Mapping) and (part in node or is_missing):
            parts.append(str(part))
            node = node.get(part)
    return ".".join(parts)


def fields_of(kind: type[Section], values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields the dotted key and the field of every setting. values: decide between sections, such as the two models."""
    for name, field in kind.model_fields.items():
        value = values.get(name)
        kinds = (field.annotation, *get_args(field.annotation))
        sections = [part for part in kinds if isinstance(part, type) and issubclass(part, Section)]
        if field.discriminator:
            label = value.get("name") if isinstance(value, Mapping) else None
            sections = [part for part in sections if part.model_fields["name"].default == label] or sections
        if sections and (field.discriminator or sections[0] is field.annotation or isinstance(value, Mapping)):
            yield from fields_of(sections[0], value if isinstance(value, Mapping) else {}, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _schema(field: FieldInfo) -> dict[str, Any]:
    return TypeAdapter(field.rebuild_annotation()).json_schema()


def allowed(field: FieldInfo) -> str:
    """Describes in words the values that a setting allows."""
    return _words(_schema(field))


def _words(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"anyOf": forms}:
            return " or ".join(_words(form) for form in forms)
        case {"const": _} | {"enum": _}:
            return f"one of {', '.join(_choices(schema))}"
        case {"type": "array", "items": items}:
            choices = ", ".join(_choices(items))
            return f"a list of {choices}" if choices else f"a list in which each item is {_words(items)}"
        case {"type": "object"} | {"$ref": _}:
            return "settings by name"
        case {"minimum": low, "maximum": high}:
            return f"{TYPES[schema['type']]} from {low} to {high}"
        case {"type": kind}:
            limits = [words.format(schema[limit]) for limit, words in LIMITS.items() if limit in schema]
            return " ".join([TYPES[kind], " and ".join(limits)]).strip()
    return "any value"


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """Returns the values that a JSON schema enumerates, directly, in its alternatives or in its items."""
    names = [*map(to_text, schema.get("enum", [schema["const"]] if "const" in schema else []))]
    for form in schema.get("anyOf", [schema["items"]] if "items" in schema else []):
        names += _choices(form)
    return names


def suggestion(name: str, names: Iterable[str]) -> str:
    """Returns "; did you mean NAME?" for the most similar name of the same part, else the same name in another part, else any
    similar name; "" if there is none."""
    part, _, last = name.rpartition(".")
    siblings = {other.rpartition(".")[2]: other for other in names if other.rpartition(".")[0] == part}
    near = [siblings[match] for match in get_close_matches(last, siblings, 1)]
    near += [other for other in names if other.rpartition(".")[2] == last] or get_close_matches(name, [*names], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _siblings(key: str, names: Iterable[str]) -> str:
    part = key.rpartition(".")[0]
    return f"; the settings here are {', '.join(n.rpartition('.')[2] for n in names if n.rpartition('.')[0] == part) or 'none'}"


def flat(node: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key and the value of every setting and every part of a configuration."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}", value
            yield from flat(value, f"{prefix}{key}.")


def to_text(value: object) -> str:
    """Formats a value as on a command line, shortened if long. Strings that YAML would read as other types are quoted."""
    match value:
        case None | True | False:
            text = "null" if value is None else str(value).lower()
        case str():
            text = f"'{value}'" if NEEDS_QUOTES.fullmatch(value) else value
        case Mapping():
            text = f"{{{', '.join(f'{key}: {to_text(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            text = f"[{', '.join(map(to_text, value))}]"
        case _:
            text = str(value)
    return escape.line(text, 80)
