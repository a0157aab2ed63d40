"""From the command line to a configuration: a preset, then a YAML file, then `--set` and flags.

Flags are made by tyro from the simple fields of a configuration; the docstring under a field is its help. Sections (fields
that are configurations themselves) have no flags: they are set by `--set SECTION.KEY=VALUE` or in the YAML file.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import tyro
from tyro import conf

from parley.engine.core.cli.mistakes import meant, numbers, told, unknown_flag
from parley.engine.core.cli.verbs import PRESET, Verb
from parley.engine.core.verbs.job import Job
from parley.envs.core.config import assign, overlay
from parley.envs.core.errors import ConfigError, OutOfRangeError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.core.storage.uris import local_copy

ArgumentsT = TypeVar("ArgumentsT")
_POSITIONAL = get_args(conf.Positional[str])[1]
"""What tyro marks an argument without a flag by."""


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


@dataclass(frozen=True)
class JobCommand:
    """A command line understood.

    Args:
        config: the job's configuration, complete.
        run: the run's folder; of a URI its local copy.
        json: whether the metrics are wanted as JSON.
    """

    config: Any
    run: Path
    json: bool


def parse_job(verb: Verb, job: Job[Any, Any, Any], arguments: Sequence[str]) -> JobCommand:
    """Understands the arguments of a verb that runs a job.

    Args:
        verb: what was typed before them.
        job: the job.
        arguments: `[PRESET] [flags]`.

    Raises:
        ConfigError: an unknown preset, flag or key (with the nearest name), or a value that is not allowed.
        SystemExit: help was asked for, or tyro found a value of the wrong type and said so.
    """
    preset, rest = _take_preset(job, arguments)
    for name in job.repeatable:
        rest = gathered(rest, f"--{name.replace('_', '-')}")
    config = job.presets[preset]()
    if job.argument and any(word.split("=")[0] == f"--{job.argument}" for word in rest):
        usage = f"parley {verb.name} [PRESET] {job.argument.upper()}"
        raise ConfigError(f"{job.argument} are typed without a flag, behind the preset", got=f"--{job.argument}", fix=usage)
    settings_type = _settings_type(job.config, job.argument)
    title = verb.words[-1].replace("-", "_")
    parts = {title: settings_type, "run": RunFlags}
    line_type = make_dataclass("Line", [(name, Annotated[part, conf.OmitArgPrefixes]) for name, part in parts.items()])

    def read(base: Any) -> Any:
        shown = {field.name: getattr(base, field.name) for field in dataclasses.fields(settings_type)}
        line = line_type(settings_type(**shown), RunFlags(run=f"runs/{job.run_name}"))
        return _parse(line_type, verb, rest, _about(verb, job), _sections_help(verb, job.config), line, job.config)

    # Read twice: the first time for the settings that flags are laid over.
    run: RunFlags = read(config).run
    try:
        base = assign(overlay(config, fetched_file(run.config), run.config) if run.config else config, run.set)
    except ConfigError as error:
        fix = f"{error.fix}; parley settings {verb.name} lists every setting" if error.fix else None
        raise type(error)(error.what, where=error.where, got=error.got, fix=fix) from None
    flags = vars(getattr(read(base), title))
    try:
        return JobCommand(dataclasses.replace(base, **flags), local_copy(run.run), run.json)
    except OutOfRangeError as error:
        raise _of_a_flag(error) from None


def parse(kind: type[ArgumentsT], verb: Verb, arguments: Sequence[str]) -> ArgumentsT:
    """Understands the arguments of any other verb.

    Args:
        kind: a dataclass with a docstring under every field.
        verb: what was typed before them.
        arguments: what follows it.

    Raises:
        ConfigError: an unknown flag or one argument too many.
        SystemExit: help was asked for, or tyro found a missing or wrong value and said so.
    """
    return _parse(kind, verb, arguments, verb.summary, (), tyro.MISSING_NONPROP, kind)


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, inherited ones included."""
    docs: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in itertools.pairwise(definition.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                        docs[name] = inspect.cleandoc(doc)
    return docs


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
    """The arguments with the values of a flag that is given several times behind it once, commas between them."""
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
    kind: type[ArgumentsT], verb: Verb, arguments: Sequence[str], about: str, more: Sequence[str], default: Any, known: type
) -> ArgumentsT:
    name = f"parley {verb.name}"
    try:
        with told(name, arguments):
            found, unknown = tyro.cli(
                kind,
                # tyro shows positional arguments of its own accord; it does not know of presets.
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
            sys.stdout.write("\n".join([*more, "", "examples:", *(f"  {line}" for line in verb.examples), ""]))
        raise
    if unknown:
        owners = (known,) if known is kind else (known, RunFlags)
        hints = {each: hint for owner in owners for each, hint in get_type_hints(owner, include_extras=True).items()}
        typed = [each for each, hint in hints.items() if _POSITIONAL in getattr(hint, "__metadata__", ())]
        flags = [each.replace("_", "-") for each in hints if each not in typed]
        raise unknown_flag(unknown[0], name, flags, typed, dotted_keys(known))
    return found


def _of_a_flag(error: OutOfRangeError) -> OutOfRangeError:
    """The error of a setting that was given by a flag."""
    name, _, rest = error.what.partition(" ")
    what = f"--{name.replace('_', '-')} {rest}"
    return OutOfRangeError(what, where=error.where, got=error.got, fix=error.fix)


def dotted_keys(kind: type, prefix: str = "") -> list[str]:
    """Every simple key of a configuration, those of sections with the sections' names in front."""
    keys = [prefix + name for name, _ in _simple_fields(kind)]
    for name, inner in _sections(kind):
        keys += dotted_keys(inner, f"{prefix}{name}.")
    return keys


def _simple_fields(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, hint) for name, hint in _fields(kind) if not dataclasses.is_dataclass(hint))


def _sections(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, hint) for name, hint in _fields(kind) if dataclasses.is_dataclass(hint))


def _fields(kind: type) -> Iterator[tuple[str, Any]]:
    """Names and types, those of the configuration itself before those that it shares with others."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for owner in map(inspect.get_annotations, kind.__mro__):
        yield from ((name, hints[name]) for name in names if name in owner)
        names = [name for name in names if name not in owner]


def _settings_type(kind: type, argument: str) -> Any:
    """A dataclass of the simple fields of a configuration, as tyro shall show them; one of them may be an argument."""
    docs = field_docs(kind)
    positional: Any = conf.Positional
    flags = [
        (
            name,
            Annotated[
                positional[hint] if name == argument else hint,
                conf.arg(
                    help=docs.get(name, ""),
                    metavar=argument.upper() if name == argument else _metavar(hint),
                    help_behavior_hint=_default_hint,
                ),
            ],
        )
        for name, hint in _simple_fields(kind)
    ]
    return make_dataclass("Settings", flags, kw_only=True, namespace={"__doc__": inspect.getdoc(kind)})


def _metavar(hint: Any) -> str | None:
    """None leaves it to tyro, which would show the None of an optional value as a choice."""
    return "PATH" if Path in get_args(hint) else None


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
    return lines
