"""From a command line to a configuration: a preset, then a YAML file, then `--set` and flags.

tyro makes flags from the simple fields of a configuration; the docstring below a field is its help. Sections (fields that are
configurations themselves) have no flags: `--set SECTION.KEY=VALUE` or the YAML file sets them.

Mistakes on a command line become errors of the usual form: what is wrong, what was given, how to fix it.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import tyro
from tyro import conf
from tyro._errors import BadValue, InstantiationFailure, InvalidChoice, MissingArgs, ParseErrorEvent, on_parse_error
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from parley.engine.core.cli.main import PRESET, Verb
from parley.engine.core.verbs.job import Job
from parley.envs.core.config import assign, hints_of, overlay
from parley.envs.core.errors import ConfigError, OutOfRangeError, ParleyError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.core.storage.uris import local_copy

if TYPE_CHECKING:
    from parley.engine.core.verbs.conditions import FailCondition

# tyro offers its errors to a caller only in the module `tyro._errors`; constraints.txt pins the version.


_ALIKE = 0.75
"""The similarity by `difflib` above which a known name is taken for a typed one; 1 is the same."""
_MEANINGS = (
    {"adversary", "speaker", "attacker", "learner"},
    {"target", "model", "agent", "victim", "corpus"},
    {"dialogues", "limit", "num-trials", "budget", "contexts", "num-targets", "samples", "n", "num", "count", "games"},
    {"run", "out", "output", "output-dir", "dir", "folder"},
    {"workers", "env-runners", "num-workers", "jobs", "processes"},
    {"device", "gpu", "cuda"},
    {"judge", "lm"},
)
"""Groups of flags with about the same meaning, because verbs name it differently."""
_KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path"}


@contextmanager
def parser_errors(command: str, words: Sequence[str]) -> Iterator[None]:
    """Turn tyro's errors into our own within a `with` block.

    Args:
        command: the verb as typed, such as "parley selfplay".
        words: the words after it.

    Raises:
        ConfigError: a value is missing or of the wrong type.
    """
    fix = f"{command} --help"

    def hook(event: ParseErrorEvent) -> None:
        match event:
            case MissingArgs(missing_arguments=missing):
                raise ConfigError(f"{', '.join(_name(entry.arg) for entry in missing)} is missing", fix=fix)
            case BadValue(argument=argument):
                raise ConfigError(f"{_name(argument)} needs a value", got=event.offending_value, fix=fix)
            case InvalidChoice(argument=argument, value=value, choices=choices):
                what = f"{_name(argument)} takes one of {', '.join(choices)}{meant(value, choices)}"
                raise ConfigError(what, got=repr(value), fix=fix)
            case InstantiationFailure(argument=None, message=message):
                # The arguments' own checks have raised, and tyro is handling that error.
                error = sys.exception()
                raise error if isinstance(error, ParleyError) else ConfigError(message, fix=fix)
            case InstantiationFailure(argument=argument) if argument is not None:
                flag = _name(argument)
                kinds = [kind for metavar, kind in _KINDS.items() if metavar in str(argument.lowered.metavar)]
                raise ConfigError(f"{flag} takes {' or '.join(kinds) or 'another value'}", got=_value_of(flag, words), fix=fix)

    with on_parse_error(hook):
        yield


def unknown_flag(
    argument: str, command: str, flags: Sequence[str], positional: Sequence[str], settings: Sequence[str]
) -> ConfigError:
    """Return the error of an argument that a verb does not have.

    Args:
        argument: the argument as typed.
        command: the verb, such as "parley selfplay".
        flags: names of the verb's flags, without dashes.
        positional: names of its arguments without a flag.
        settings: dotted keys of its sections.
    """
    fix = f"{command} --help"
    if not argument.startswith("-"):
        return ConfigError(f"{argument!r} is one argument too many", fix=f"{fix}; a preset comes before the flags")
    shown = argument.partition("=")[0]
    name = shown.lstrip("-").replace("_", "-")
    inside = [key for key in settings if key.endswith(f".{name.replace('-', '_')}")]
    if inside:
        return ConfigError(f"{shown} is a setting of a section and not a flag", fix=f"--set {inside[0]}=VALUE")
    section = name.replace("-", "_")
    if any(key.startswith(f"{section}.") for key in settings):
        return ConfigError(f"{shown} is a section of settings and not a flag", fix=f"--set {section}.KEY=VALUE")
    if name in positional:
        return ConfigError(f"{name} is typed without a flag", got=shown, fix=fix)
    return ConfigError(f"there is no flag {shown}{meant(name, flags, '--')}", fix=fix)


def meant(name: str, names: Sequence[str], dashes: str = "") -> str:
    """Return a hint such as ", did you mean '--speaker'?", by meaning or by spelling; empty if nothing fits."""
    alike = difflib.get_close_matches(name, names, n=1, cutoff=_ALIKE)
    same = [candidate for group in _MEANINGS if name in group for candidate in names if candidate in group]
    matches = [*(candidate for candidate in alike if candidate in same), *same, *alike][:1]
    return f", did you mean {dashes + matches[0]!r}?" if matches else ""


numbers = ConstructorRegistry()
"""Tyro's rule for numbers: whole ones may be written 1e3, others must be finite."""


@numbers.primitive_rule
def _number(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if kind.type not in (int, float):
        return None
    read, metavar = (_whole, "INT") if kind.type is int else (_finite, "FLOAT")
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = _finite(text)
        if not value.is_integer():
            raise ValueError(repr(text)) from None
        return int(value)


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(repr(text))
    return value


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    values = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    values += [value for word, value in itertools.pairwise(words) if word == flag]
    return repr(values[-1]) if values else None


def _name(argument: Any) -> str:
    flags = argument.lowered.name_or_flags
    return str(argument.lowered.metavar) if argument.is_positional() else str(flags[0])


ArgumentsT = TypeVar("ArgumentsT")
_POSITIONAL = get_args(conf.Positional[str])[1]
"""Tyro's mark of an argument without a flag."""


FailIf = Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="CONDITION", help_behavior_hint="(repeatable)")]
"""The type of the flag --fail-if."""


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """Where the run goes and how it is set; a preset, then the YAML file, then single settings and flags."""

    run: Annotated[str, conf.arg(metavar="DIR")]
    """Folder or URI of the run; the same command again goes on with what is there."""
    config: Annotated[str, conf.arg(metavar="FILE.yaml", help_behavior_hint="")] = ""
    """Settings laid over the preset; a file or its URI."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """One setting, also one of a section."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""
    fail_if: FailIf = ()
    """End with status 1 if this is true of the metrics, such as "METRIC.low < 0.3"; 2 if it cannot be decided."""


@dataclass(frozen=True)
class JobCommand:
    """A parsed command line.

    Args:
        config: the job's complete configuration.
        run: the run's folder; for a URI its local copy.
        json: whether to print the metrics as JSON.
        conditions: conditions on the metrics that decide the exit status.
    """

    config: Any
    run: Path
    json: bool
    conditions: tuple[FailCondition, ...] = ()


def parse_job(verb: Verb, job: Job[Any, Any, Any], arguments: Sequence[str]) -> JobCommand:
    """Parse the arguments of a verb that runs a job.

    Args:
        verb: the verb.
        job: its job.
        arguments: `[PRESET] [flags]`.

    Raises:
        ConfigError: a preset, flag or key is unknown (the error names the nearest), or a value is not allowed.
        SystemExit: help was printed, or tyro has reported a value of the wrong type.
    """
    preset, rest = _take_preset(job, spelled_out(arguments))
    for name in job.repeatable:
        rest = gathered(rest, f"--{name.replace('_', '-')}")
    config = job.presets[preset]()
    if job.argument and any(word.split("=")[0] == f"--{job.argument}" for word in rest):
        usage = f"parley {verb.name} [PRESET] {job.argument.upper()}"
        raise ConfigError(f"{job.argument} are typed without a flag, behind the preset", got=f"--{job.argument}", fix=usage)
    asks_help = bool({"-h", "--help"} & {*rest})
    docs = field_docs(job.config) if asks_help else {}  # type: ignore[arg-type]  # a class is hashable
    settings_type = _settings_type(job.config, job.argument, docs)
    title = verb.words[-1].replace("-", "_")
    parts = {title: settings_type, "run": RunFlags}
    # With an empty help tyro does not search the sources for comments on the parts.
    shown = conf.arg(help=None if asks_help else "")
    line_type = make_dataclass("Line", [(name, Annotated[part, conf.OmitArgPrefixes, shown]) for name, part in parts.items()])

    def read(base: Any) -> Any:
        values = {field.name: getattr(base, field.name) for field in dataclasses.fields(settings_type)}
        line = line_type(settings_type(**values), RunFlags(run=f"runs/{job.run_name}"))
        return _parse(line_type, verb, rest, _about(verb, job), _sections_help(verb, job.config), line, job.config)

    line = read(config)
    base, run = config, line.run
    if run.config or run.set:
        try:
            base = assign(overlay(config, fetched_file(run.config), run.config) if run.config else config, run.set)
        except ConfigError as error:
            fix = f"{error.fix}; parley settings {verb.name} lists every setting" if error.fix else None
            raise type(error)(error.what, where=error.where, got=error.got, fix=fix) from None
        # Flags lie above these settings.
        line = read(base)
    flags = vars(getattr(line, title))
    try:
        complete = dataclasses.replace(base, **flags)
    except OutOfRangeError as error:
        raise _of_a_flag(error) from None
    conditions: tuple[FailCondition, ...] = ()
    if run.fail_if:
        from parley.engine.core.verbs.conditions import parse_conditions

        conditions = parse_conditions(run.fail_if, known=job.metrics_of(complete))
    return JobCommand(complete, local_copy(run.run), run.json, conditions)


def parse(kind: type[ArgumentsT], verb: Verb, arguments: Sequence[str]) -> ArgumentsT:
    """Parse the arguments of any other verb.

    Args:
        kind: a dataclass with a docstring below every field.
        verb: the verb.
        arguments: the words after it.

    Raises:
        ConfigError: a flag is unknown, or there is one argument too many.
        SystemExit: help was printed, or tyro has reported a missing or wrong value.
    """
    return _parse(kind, verb, arguments, verb.summary, (), tyro.MISSING_NONPROP, kind)


@cache
def field_docs(kind: type) -> Mapping[str, str]:
    """Return the docstrings below the fields of a dataclass, with inherited ones."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[1:]):
        docs |= field_docs(base)
    if dataclasses.is_dataclass(kind):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in itertools.pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    docs[name] = inspect.cleandoc(doc)
    return docs


_LIMITS = {"--max-requests": "chat.max_requests", "--max-cost": "chat.max_cost"}
"""Flags of every verb that asks chat models, and of parley resume, with the settings that they stand for."""


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with flags for limits as settings: `--max-cost 5` is `--set chat.max_cost=5`."""
    spelled, words = [], iter(arguments)
    for word in words:
        flag, mark, value = word.partition("=")
        if flag in _LIMITS:
            spelled += ["--set", f"{_LIMITS[flag]}={value if mark else next(words, '')}"]
        else:
            spelled.append(word)
    return spelled


def _take_preset(job: Job[Any, Any, Any], arguments: Sequence[str]) -> tuple[str, list[str]]:
    if not arguments or arguments[0].startswith("-"):
        return next(iter(job.presets)), list(arguments)
    name = arguments[0]
    if name not in job.presets and job.argument:
        return next(iter(job.presets)), list(arguments)
    if name not in job.presets:
        fix = f"presets: {', '.join(job.presets)}; the first one when none is named"
        raise ConfigError(f"no preset is called {name!r}{meant(name, [*job.presets])}", fix=fix)
    return name, list(arguments[1:])


def gathered(arguments: Sequence[str], flag: str) -> list[str]:
    """Return the arguments with the values of a repeated flag joined by commas, after the flag, at the end."""
    rest, values = [], []
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name != flag:
            rest.append(word)
        elif value or (value := next(words, "")):
            values.append(value)
        else:
            rest.append(word)
    return [*rest, flag, ",".join(values)] if values else rest


def _parse(
    kind: type[ArgumentsT],
    verb: Verb,
    arguments: Sequence[str],
    about: str,
    footer: Sequence[str],
    default: Any,
    owner_kind: type,
) -> ArgumentsT:
    name = f"parley {verb.name}"
    try:
        with parser_errors(name, arguments):
            parsed, unknown = tyro.cli(
                kind,
                # tyro shows positional arguments by itself; it does not know of presets.
                prog=f"{name} {PRESET}" if verb.has_presets else name,
                description=about,
                args=list(arguments),
                default=default,
                return_unknown_args=True,
                registry=numbers,
            )
    except OutOfRangeError as error:
        raise _of_a_flag(error) from None
    except SystemExit as end:
        if end.code in (None, 0):
            sys.stdout.write("\n".join([*footer, "", "examples:", *(f"  {line}" for line in verb.examples), ""]))
        raise
    if unknown:
        owners = (owner_kind,) if owner_kind is kind else (owner_kind, RunFlags)
        hints = {field: hint for owner in owners for field, hint in get_type_hints(owner, include_extras=True).items()}
        typed = [field for field, hint in hints.items() if _POSITIONAL in getattr(hint, "__metadata__", ())]
        flags = [field.replace("_", "-") for field in hints if field not in typed]
        raise unknown_flag(unknown[0], name, flags, typed, dotted_keys(owner_kind))
    return parsed


def _of_a_flag(error: OutOfRangeError) -> OutOfRangeError:
    name, _, rest = error.what.partition(" ")
    what = f"--{name.replace('_', '-')} {rest}"
    return OutOfRangeError(what, where=error.where, got=error.got, fix=error.fix)


def dotted_keys(kind: type, prefix: str = "") -> list[str]:
    """Return every simple key of a configuration; keys of sections begin with the sections' names."""
    keys = [prefix + name for name, _ in _simple_fields(kind)]
    for name, inner in _sections(kind):
        keys += dotted_keys(inner, f"{prefix}{name}.")
    return keys


def _simple_fields(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, hint) for name, hint in _fields(kind) if not dataclasses.is_dataclass(hint))


def _sections(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, hint) for name, hint in _fields(kind) if dataclasses.is_dataclass(hint))


def _fields(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield names and types of fields, those of the configuration itself before inherited ones."""
    hints = hints_of(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for owner in map(inspect.get_annotations, kind.__mro__):
        yield from ((name, hints[name]) for name in names if name in owner)
        names = [name for name in names if name not in owner]


def _settings_type(kind: type, argument: str, docs: Mapping[str, str]) -> Any:
    """Return a dataclass of the simple fields of a configuration as tyro shall show them; one may be an argument."""
    positional: Any = conf.Positional
    flags = [
        (
            name,
            Annotated[
                positional[hint] if name == argument else hint,
                conf.arg(
                    help=docs.get(name, ""),
                    metavar=argument.upper() if name == argument else "PATH" if Path in get_args(hint) else None,
                    help_behavior_hint=_default_hint,
                ),
            ],
        )
        for name, hint in _simple_fields(kind)
    ]
    return make_dataclass("Settings", flags, kw_only=True, namespace={"__doc__": inspect.getdoc(kind)})


def _default_hint(default: str) -> str:
    return "" if default in ("None", "''") else f"(default: {default})"


def _about(verb: Verb, job: Job[Any, Any, Any]) -> str:
    lines = [verb.summary, "", "presets:"]
    for number, (name, preset) in enumerate(job.presets.items()):
        text = (inspect.getdoc(preset) or "").splitlines()[0]
        lines.append(f"  {name:<12} {'(default) ' if number == 0 else ''}{text}")
    return "\n".join(lines)


def _sections_help(verb: Verb, kind: type) -> list[str]:
    keys = [key for key in dotted_keys(kind) if "." in key]
    if not keys:
        return []
    lines = ["", f"sections, for --set SECTION.KEY=VALUE and --config (parley settings {verb.name} says what each is):"]
    for section, inside in itertools.groupby(keys, key=lambda key: key.rpartition(".")[0]):
        names = ", ".join(key.rpartition(".")[2] for key in inside)
        lines += textwrap.wrap(f"{section}: {names}", 100, initial_indent="  ", subsequent_indent="      ")
    return lines + ["  --max-requests N and --max-cost N set those of chat"] * (_LIMITS["--max-cost"] in keys)
