"""What a configuration may say, read from the signatures of what it configures.

A part of a configuration (`model`, `optim`, ...) is the arguments of a callable. Its annotations are the schema: types,
choices (`Literal`), ranges (`Annotated[int, Interval(ge=1)]`), nested parts (a TypedDict, a dataclass, a mapping). What must
hold between several arguments is a function of just these that raises ValueError where it does not; a callable lists such
functions in its attribute `relations`, and its constructor calls them too.

Pydantic judges each value, strictly: "3" is no number, true is no 1, and NaN and infinity are no numbers to train with. The
words are ours.
"""

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from annotated_types import DocInfo, Ge, GroupedMetadata, Gt, Le, Lt, MinLen
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from entente.console import escape
from entente.errors import InputError

T = TypeVar("T")

MISSING = "???"  # a value that a configuration file leaves to the user
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "any value", None: "null"}
OTHER_THAN_TEXT = re.compile(r"\s*|null|true|false|[-+]?(\.?inf|\.?nan|[\d._]+(e[-+]?\d+)?)", re.IGNORECASE)
LONGEST = 80  # characters of a value that are shown


class Setting(NamedTuple):
    """One argument: its annotation, its default (`inspect.Parameter.empty`: it must be given), and the comment that
    `annotated_types.doc` puts in an annotation."""

    annotation: Any
    default: Any
    comment: str = ""

    @classmethod
    def of(cls, annotation: Any, default: Any) -> "Setting":
        if get_origin(annotation) is not Annotated:
            return cls(annotation, default)
        bare, *metadata = get_args(annotation)
        comment = next((entry.documentation for entry in metadata if isinstance(entry, DocInfo)), "")
        others = [entry for entry in metadata if not isinstance(entry, DocInfo)]
        return cls(Annotated[(bare, *others)] if others else bare, default, comment)


def problems(target: Callable[..., Any], part: str, values: object, given: Collection[str] = ()) -> list[str]:
    """A line for each of `values` that `target` does not take, each argument without a value, and each relation that does not
    hold. `part` is where the values stand in the configuration ("": at the top); the arguments in `given` are supplied by the
    program."""
    if not isinstance(values, Mapping):
        return [f"{part}={shown(values)}: give settings, each as {part}.KEY=VALUE"]
    settings = {name: setting for name, setting in settings_of(target).items() if name not in given}
    known = [_key(part, name) for name in settings]
    found = [unknown(_key(part, name), shown(value), known) for name, value in values.items() if name not in settings]
    sound: dict[str, Any] = {}
    for name, (annotation, default, _) in settings.items():
        key, value = _key(part, name), values.get(name, default)
        if value is inspect.Parameter.empty or (isinstance(value, str) and value == MISSING):
            found.append(unset(key))
        elif name in values and (wrong := _wrong(annotation, key, value)):
            found += wrong
        else:
            sound[name] = value
    for relation in getattr(target, "relations", ()):
        names = list(inspect.signature(relation).parameters)
        if sound.keys() >= set(names):
            try:
                relation(**{name: sound[name] for name in names})
            except ValueError as error:  # it names its arguments as NAME=VALUE: here they get their full keys
                found.append(re.sub(rf"\b({'|'.join(names)})=", lambda match: _key(part, match[0]), str(error)))
    return found


def fill(target: Callable[..., T], part: str, values: Mapping[str, Any], /, **given: Any) -> T:
    """`target` called with a part of the configuration and what the program gives; an InputError with all that is wrong."""
    if found := problems(target, part, values, given):
        raise InputError(*found)
    settings = settings_of(target)
    arguments = {
        name: fill(settings[name].annotation, _key(part, name), value)
        if dataclasses.is_dataclass(settings[name].annotation)
        else value
        for name, value in values.items()
    }
    try:
        return target(**arguments, **given)
    except ValueError as error:
        raise InputError(f"{part}: {error}") from error


def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """The named arguments of a function or class, or the keys of a TypedDict."""
    if is_typeddict(target):
        needed: frozenset[str] = target.__required_keys__  # type: ignore[attr-defined]
        hints = get_type_hints(target, include_extras=True).items()
        bare = {name: get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint for name, hint in hints}
        return {name: Setting.of(hint, inspect.Parameter.empty if name in needed else None) for name, hint in bare.items()}
    parameters = inspect.signature(target, eval_str=True).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: Setting.of(Any if p.annotation is p.empty else p.annotation, p.default) for p in named}


def defaults(target: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that need not be given, with what they are then."""
    return {
        name: setting.default for name, setting in settings_of(target).items() if setting.default is not inspect.Parameter.empty
    }


def flat(node: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every setting of a configuration and its value, parts and what is in them."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}", value
            yield from flat(value, f"{prefix}{key}.")


def unset(key: str) -> str:
    return f"{key} is not set: give it as {key}=VALUE"


def unknown(key: str, value: str, known: Collection[str]) -> str:
    """Of a key that is none of the known ones, all with their full names."""
    near = nearest(key, known)
    beside = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == key.rpartition(".")[0]]
    return f"{key}={value}: no such setting; " + (
        f"did you mean {near}?" if near else f"there are {', '.join(beside) or 'none'}"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """A guess at what was meant: what stands beside it and is written alike or begins so, what has the name in another place,
    or, where its place is unknown, whatever is written alike. Empty where there is none."""
    place, _, last = name.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == place}
    near = [
        beside[key] for key in get_close_matches(last, beside, 1) or [key for key in beside if last and key.startswith(last)]
    ]
    near = near or [key for key in known if key.rpartition(".")[2] == last]
    near = near or ([] if beside else get_close_matches(name, known, 1))
    return near[0] if near else ""


def shown(value: object) -> str:
    """A value as a command line gives it, cut where it is long; text that would read as something else is quoted."""
    return escape.line(_written(value), LONGEST)


def _written(value: object) -> str:
    match value:
        case None | True | False:
            return "null" if value is None else str(value).lower()
        case str():
            return f"'{value}'" if OTHER_THAN_TEXT.fullmatch(value) else value
        case Mapping():
            return f"{{{', '.join(f'{key}: {_written(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_written, value))}]"
        case int() if abs(value) >= 10**LONGEST:  # Python refuses to write out the longest
            return f"(a number of more than {LONGEST} digits)"
    return str(value)


def _key(part: str, name: object) -> str:
    return f"{part}.{name}" if part else str(name)


def _wrong(annotation: Any, key: str, value: object) -> list[str]:
    """What is wrong with the value of a key: one line, or one for each wrong setting of a nested part."""
    if dataclasses.is_dataclass(annotation):
        return problems(annotation, key, value)  # type: ignore[arg-type]
    members = list(_members(annotation))
    if isinstance(value, Mapping):
        if inner := [_wrong_part(member, key, value) for member in members if _is_part(member)]:
            return min(inner, key=len)  # of several forms it is meant to be the one that it is most like
    if any(_accepts(member, value) for member in members if not _is_part(member)):
        return []
    choices = [str(choice) for member in members for choice in _choices(member)]
    items = value if isinstance(value, list | tuple) else [value]
    near = next((near for item in items if str(item) not in choices for near in [nearest(str(item), choices)] if near), "")
    verb = "choose" if any(get_origin(member) is Literal for member in members) else "give"
    return [f"{key}={shown(value)}: {verb} {allowed(annotation)}" + (f"; did you mean {near}?" if near else "")]


def _wrong_part(annotation: Any, key: str, value: Mapping[Any, Any]) -> list[str]:
    if _is_mapping(annotation):
        keys, item = get_args(annotation) or (Any, Any)
        odd = [f"{_key(key, shown(name))}: not {allowed(keys)}; rename it" for name in value if not _accepts(keys, name)]
        return odd or [line for name in value for line in _wrong(item, _key(key, name), value[name])]
    return problems(annotation, key, value)


def _is_part(annotation: Any) -> bool:
    """Whether its values are settings, each with a key of its own."""
    return is_typeddict(annotation) or dataclasses.is_dataclass(annotation) or _is_mapping(annotation)


def _is_mapping(annotation: Any) -> bool:
    return (get_origin(annotation) or annotation) in (dict, Mapping)


def _item(annotation: Any) -> Any:
    """What a mapping's values, or a list's items, are."""
    return get_args(annotation)[-1] if get_args(annotation) else Any


def _accepts(annotation: Any, value: object) -> bool:
    try:
        TypeAdapter(annotation, config=STRICT).validate_python(value)
    except ValidationError:
        return False
    return True


def allowed(annotation: Any) -> str:
    """What an annotation allows, in words."""
    members = list(_members(annotation))
    words = [_words(member) for member in members if member is not types.NoneType]
    return " or ".join(words + ["null"] * (types.NoneType in members))


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if said := [entry.description for entry in arguments[1:] if isinstance(entry, FieldInfo) and entry.description]:
        return said[0]
    if origin is Annotated:
        return f"{allowed(arguments[0])}{_range(arguments[1:])}"
    if origin is Literal:
        return f"one of {', '.join(map(_written, arguments))}"
    if _is_mapping(annotation):
        return f"settings by name, each {allowed(_item(annotation))}"
    if _is_part(annotation):
        return f"the settings {', '.join(settings_of(annotation))}"
    if origin in (list, Sequence):
        choices = _choices(annotation)
        return f"a list of {', '.join(map(_written, choices))}" if choices else f"a list, each {allowed(_item(annotation))}"
    return NAMES.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _range(metadata: Sequence[object]) -> str:
    """The bounds of a number, or of a length, in words, with a space in front."""
    marks = [mark for entry in metadata for mark in (entry if isinstance(entry, GroupedMetadata) else [entry])]
    bounds = {type(mark): dataclasses.astuple(mark)[0] for mark in marks if isinstance(mark, Ge | Gt | Le | Lt | MinLen)}
    if MinLen in bounds:
        return f" of at least {bounds[MinLen]} character{'s' * (bounds[MinLen] > 1)}"
    if {Ge, Le} <= bounds.keys():
        return f" from {bounds[Ge]} to {bounds[Le]}"
    phrases = {Ge: "of at least {}", Gt: "greater than {}", Le: "of at most {}", Lt: "less than {}"}
    said = [phrase.format(bounds[kind]) for kind, phrase in phrases.items() if kind in bounds]
    return f" {' and '.join(said)}" if said else ""


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the annotation itself; None as its type."""
    if get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield types.NoneType if annotation is None else annotation


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The choices of a `Literal`, or of a list of them."""
    if get_origin(annotation) in (list, Sequence):
        annotation = _item(annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()
