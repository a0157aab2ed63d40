r"""A recipe: stages that are verbs with settings, and tables of their metrics beside published figures, in one YAML file.

    title: does a hardened ranker keep its accuracy
    settings: {corpus: helpdesk}
    stages:
      plain: {verb: train matcher, settings: {corpus: "${corpus}"}, seeds: [1, 2, 3]}
      ranks: {verb: evaluate ranking, settings: {corpus: "${corpus}", model: "${plain.run}"}}
    tables:
      ranks:
        columns: {first: {metric: "r@1.${plain.name}.{rule}", form: rate}}
        rows:
          "{rule}": {for: {rule: [clean, iiw]}, stage: ranks}
    claims:
      falls:
        says: replaced words bring the right reply down
        holds: ranks.iiw.first.high < ranks.clean.first.low
        fails: ranks.iiw.first.low > ranks.clean.first.low

docs/recipes.md says what each key means. There are no conditions but those of `--fail-if`, and no arithmetic but `difference`
and `best`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.tables.table import read_figures
from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.conditions import FailCondition, parse_conditions
from parley.engine.core.verbs.job import flat
from parley.engine.core.verbs.repeated import nth_name
from parley.engine.core.verbs.trainings import Entry
from parley.envs.core.config import with_values
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.lines import FileLine, utf8_text

FORMS = ("number", "rate", "share", "count", "perplexity")
"""Forms of a column, as those of a metric."""
_KEYS = ("title", "description", "settings", "stages", "tables", "claims", "presets")
_STAGE_KEYS = ("verb", "preset", "settings", "seeds", "for", "minutes")
_TABLE_KEYS = ("for", "title", "note", "corner", "published", "columns", "screen", "rows")
_COLUMN_KEYS = ("for", "metric", "heading", "form", "published", "scale", "optional", "note")
_ROW_KEYS = ("label", "stage", "stages", "for", "fields", "control", "published", "columns", "optional")
_DIFFERENCE_KEYS = ("label", "for", "difference")
_BEST_KEYS = ("label", "for", "best")
_CLAIM_KEYS = ("table", "says", "for", "holds", "fails", "why")
_PUBLISHED_KEYS = ("file", "table", "source")
_NAME = re.compile(r"[A-Za-z0-9][\w.=+-]*")
_KEY = re.compile(r"[^\s.'\"]+")
_OWN_FOLDERS = ("rows", "tensorboard", "checkpoint", "labels")
_UNKNOWN = Path("$run")
"""Stands for the folder of the run before it is known; no folder is called so, which could hold another recipe's runs."""
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_FIELD = re.compile(r"(?<!\$)\{(\w+)\}")
_ATTRIBUTES = ("run", "runs", "name", "names")
_MOST_STAGES = 1_000
_MOST_NAMED = 8

Keys = tuple[str, ...]
PartT = TypeVar("PartT")


@dataclass(frozen=True)
class StageSpec:
    """A stage of a recipe.

    Args:
        name: its name, and that of its folder.
        entry: its verb.
        preset: preset of the verb; empty for the default.
        values: settings by dotted key, with references to other stages.
        seeds: seed of each training; empty for the seed of the settings.
        uses: names of the stages that it refers to.
        copies: number of its runs.
        minutes: minutes of one core that a run takes, about; NaN if unknown.
        where: file and line.
    """

    name: str
    entry: Entry
    preset: str
    values: Mapping[str, Any]
    seeds: tuple[int, ...]
    uses: tuple[str, ...]
    copies: int
    minutes: float
    where: str

    @property
    def folders(self) -> list[str]:
        """The names of its run folders."""
        return [nth_name(self.name, number) for number in range(1, self.copies + 1)]


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a table of a recipe.

    Args:
        key: its name in metrics.
        heading: its heading.
        metric: name of its metric, with fields of the row in braces and references to stages; empty for differences alone.
        form: one of `FORMS`.
        where: file and line.
        optional: whether stages may not measure it.
        note: how to read it, below the table.
    """

    key: str
    heading: str
    metric: str
    form: str
    where: str
    optional: bool
    note: str = ""


@dataclass(frozen=True)
class RowSpec:
    """A row of a table of a recipe.

    Args:
        key: its name in metrics.
        label: its first cell.
        stage: name of the stage that measures it.
        metrics: names of the metrics by column, with references to stages; columns without one are empty.
        published: published figures by column.
        where: file and line.
        optional: columns that the stage may not measure.
        less: the row that is subtracted, training by training; None if the row is no difference.
        stages: stages that measure some columns, by column; `stage` measures the others.
        best: the rows of which the best is taken, column by column; empty if the row is measured itself.
    """

    key: str
    label: str
    stage: str
    metrics: Mapping[str, str]
    published: Mapping[str, float]
    where: str
    optional: Collection[str] = ()
    less: RowSpec | None = None
    stages: Mapping[str, str] = field(default_factory=dict)
    best: tuple[RowSpec, ...] = ()

    def stage_of(self, column: str) -> str:
        """Return the name of the stage that measures a column."""
        return self.stages.get(column, self.stage)


@dataclass(frozen=True)
class TableSpec:
    """A table of a recipe: title, note, heading of the first column, columns, rows, and the source of published figures.

    On a screen it has the columns `screen` alone; all if empty.
    """

    key: str
    title: str
    note: str
    corner: str
    columns: tuple[ColumnSpec, ...]
    rows: tuple[RowSpec, ...]
    source: str
    screen: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimSpec:
    """What a publication claims, with conditions on the metrics of the tables that decide whether it holds here.

    Args:
        key: its name.
        table: the published table or figure that claims it, such as "table 3".
        says: the claim in words.
        holds: it holds where this is true.
        fails: its contrary holds where this is true. Where neither is, the intervals are too wide to tell.
        why: a sentence on the cause, if it fails.
    """

    key: str
    table: str
    says: str
    holds: FailCondition
    fails: FailCondition
    why: str


@dataclass(frozen=True)
class RecipePlan:
    """A checked recipe.

    Args:
        title: its title.
        description: one or two sentences.
        preset: name of the preset; empty if the file has none.
        stages: the stages by name, each after those that it uses.
        tables: the tables.
        claims: what the publication claims.
    """

    title: str
    description: str
    preset: str
    stages: Mapping[str, StageSpec]
    tables: tuple[TableSpec, ...]
    claims: tuple[ClaimSpec, ...] = ()

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, TABLE.ROW.COLUMN."""
        return [f"{table.key}.{row.key}.{name}" for table in self.tables for row in table.rows for name in row.metrics]

    def planned(self, path: Path, shared: Mapping[str, Any]) -> dict[str, Stage]:
        """Return the job and the configuration of each run, by the name of its folder.

        Args:
            path: the folder that holds their folders.
            shared: settings by dotted key that each stage takes if its verb has them and the recipe does not set them.

        Raises:
            ConfigError: a setting is unknown or not allowed.
        """
        return {name: stage for spec in self.stages.values() for name, stage in self.planned_of(spec, path, shared).items()}

    def planned_of(self, spec: StageSpec, path: Path, shared: Mapping[str, Any]) -> dict[str, Stage]:
        """Return the same of one stage."""
        job = spec.entry.load()
        base = job.presets[spec.preset or next(iter(job.presets))]()
        stages: dict[str, Stage] = {}
        for number, folder in enumerate(spec.folders, start=1):
            values = {key: value for key, value in shared.items() if hasattr(base, key.partition(".")[0])}
            values |= self.resolved(spec.values, number, path)
            values |= {"seed": spec.seeds[number - 1]} if spec.seeds else {}
            stages[folder] = job, with_values(base, values, f"{spec.where}, stage {spec.name}")
        return stages

    def needs(self) -> dict[str, list[str]]:
        """Return the run folders that each run needs, by the name of its folder."""
        needed: dict[str, list[str]] = {}
        for spec in self.stages.values():
            joined = _joined(spec.values)
            for number, folder in enumerate(spec.folders, start=1):
                used = [self.stages[name] for name in spec.uses]
                needed[folder] = [
                    other
                    for stage in used
                    for other in (stage.folders if stage.name in joined else [stage.folders[min(number, stage.copies) - 1]])
                ]
        return needed

    def resolved(self, value: Any, number: int, path: Path) -> Any:
        """Return a value with the folders of stages in the place of references.

        Args:
            value: text, list, mapping or number.
            number: number of the training, from 1.
            path: the folder that holds their folders.
        """

        def text_of(reference: re.Match[str]) -> str:
            name, _, attribute = reference[1].rpartition(".")
            stage = self.stages[name]
            folders = stage.folders if attribute.endswith("s") else [stage.folders[min(number, stage.copies) - 1]]
            if attribute not in _ATTRIBUTES:
                summary = path / folders[0] / SUMMARY
                return _offered(stage.entry, attribute, summary, summary.stat().st_mtime_ns) if summary.exists() else ""
            return ",".join(display_path(path / folder) if attribute.startswith("run") else folder for folder in folders)

        return _mapped(value, lambda text: _REFERENCE.sub(text_of, text))


@lru_cache(1 << 10)
def _offered(entry: Entry, attribute: str, summary: Path, written_ns: int) -> str:
    """Return what a verb offers of a finished run, which some verbs find in all of its rows; asked anew for another summary."""
    return entry.load().offers[attribute](RunFolder.load(summary.parent))


def read_recipe(
    path: Path,
    preset: str = "",
    override: str = "",
    given: Mapping[str, Any] = MappingProxyType({}),
    shared: Mapping[str, Any] = MappingProxyType({}),
) -> RecipePlan:
    """Return the recipe of a file.

    Args:
        path: the YAML file; files of published figures in it are relative to its folder.
        preset: name of a preset of the file; the first one if empty.
        override: settings of the recipe that differ, KEY=VALUE between commas.
        given: further settings of the recipe.
        shared: as in `RecipePlan.planned`.

    Raises:
        DataError: a file cannot be read.
        ConfigError: a key, verb, preset, setting, use, metric or published figure is unknown, or a stage uses itself.
    """
    return _RecipeReader(path, preset, override, given, shared).recipe()


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a value with all texts in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    return [_mapped(inner, change) for inner in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _references(value: Any) -> list[str]:
    return [match[1] for text in _texts(value) for match in _REFERENCE.finditer(text)]


def _joined(value: Any) -> set[str]:
    parted = (reference.rpartition(".") for reference in _references(value))
    return {name for name, _, attribute in parted if attribute.endswith("s")}


def _laid_over(base: Any, over: Any) -> Any:
    """Return a mapping with another laid over it, key by key; null removes a key."""
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    merged = {**base, **{key: _laid_over(base.get(key), value) for key, value in over.items()}}
    return {key: value for key, value in merged.items() if value is not None or key not in over}


class _RecipeReader:
    """The reader of one file, which knows the line of every key."""

    def __init__(self, path: Path, preset: str, override: str, given: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        self._path, self._lines, self._shared = path, dict[Keys, int](), shared
        self._rows = dict[str, RowSpec]()
        self._attributes = dict[str, tuple[str, ...]]()
        self._known: dict[str, Collection[str]] = {}
        document = self._document()
        self._require_keys(document, _KEYS, ())
        presets = self._mapping(document.pop("presets", {}), ("presets",))
        if preset and preset not in presets:
            fix = f"presets: {', '.join(presets)}" if presets else "the recipe has none: leave it out"
            raise ConfigError(f"the recipe has no preset {preset!r}{nearest(preset, presets)}", where=self._path, fix=fix)
        self._preset = preset or next(iter(presets), "")
        if self._preset:
            keys = ("presets", self._preset)
            over = self._mapping(presets[self._preset] or {}, keys)
            self._require_keys(over, _KEYS[:-1], keys)
            document = _laid_over(document, over)
            # An error in a preset names its line there.
            self._lines |= {keys_of[2:]: line for keys_of, line in self._lines.items() if keys_of[:2] == keys}
        settings = self._mapping(document.pop("settings", {}), ("settings",))
        for key, value in _overrides(override).items():
            if key not in settings:
                fix = f"settings of the recipe: {', '.join(settings) or 'none'}"
                raise ConfigError(f"the recipe has no setting {key!r}{nearest(key, settings)}", where="--override", fix=fix)
            settings[key] = value
        self._settings = {**settings, **given}
        self._document_values = {key: self._with_settings(value, (key,)) for key, value in document.items()}

    def recipe(self) -> RecipePlan:
        """Return the checked recipe."""
        document = self._document_values
        stages = self._stages(self._mapping(document.get("stages", {}), ("stages",)))
        if not stages:
            raise self._error("the recipe has no stages", ("stages",), fix="write stages: NAME: {verb: ...}")
        tables = self._each(self._mapping(document.get("tables", {}), ("tables",)), ("tables",), _TABLE_KEYS)
        plan = RecipePlan(
            title=self._text(document.get("title", self._path.stem), ("title",)),
            description=self._text(document.get("description", ""), ("description",)),
            preset=self._preset,
            stages=stages,
            tables=self._distinct(
                "title", tuple(self._table(key, entry, keys, stages) for key, entry, _, keys in tables), ("tables",)
            ),
        )
        entries = self._each(self._mapping(document.get("claims", {}), ("claims",)), ("claims",), _CLAIM_KEYS)
        return replace(plan, claims=tuple(self._claim(name, entry, keys, plan.metrics) for name, entry, _, keys in entries))

    def _distinct(self, what: str, parts: tuple[PartT, ...], keys: Keys) -> tuple[PartT, ...]:
        """Return the parts if each is shown under another name."""
        shown = [getattr(part, what) for part in parts]
        if twice := next((name for name in shown if shown.count(name) > 1), ""):
            raise self._error(f"two have one {what}", keys, got=twice, fix=f"give each a {what} of its own")
        return parts

    def _document(self) -> dict[str, Any]:
        try:
            text = utf8_text(self._path)
        except DataError as error:
            fix = "name a file that is there: parley compare RECIPE.yaml"
            raise DataError("the recipe cannot be read", where=error.where, got=error.got or error.what, fix=fix) from None
        try:
            loader = yaml.SafeLoader(text)
            try:
                node = loader.get_single_node()
                if node is not None:
                    # Before merge keys (<<) put those of another mapping into one.
                    self._note_lines(node, (), set())
                document = None if node is None else loader.construct_document(node)
            finally:
                loader.dispose()
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            fix = 'put texts that hold ${, { or : in quotes: "${stage.run}"'
            raise ConfigError("the recipe is not YAML", where=self._path, got=str(error), fix=fix) from None
        return dict(self._mapping(document, ()))

    def _note_lines(self, node: yaml.Node, keys: Keys, seen: set[int]) -> None:
        if not isinstance(node, yaml.MappingNode) or id(node) in seen:
            return
        seen.add(id(node))
        own: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            self._lines[*keys, name] = key.start_mark.line + 1
            if name in own:
                raise self._error(f"the key {name!r} stands twice", (*keys, name), fix="remove one of the two")
            own.add(name)
            self._note_lines(value, (*keys, name), seen)

    def _where(self, keys: Keys) -> str:
        known = next((keys[:end] for end in range(len(keys), 0, -1) if keys[:end] in self._lines), None)
        return str(self._path if known is None else FileLine(str(self._path), self._lines[known]))

    def _error(self, what: str, keys: Keys, got: object = None, fix: str | None = None) -> ConfigError:
        return ConfigError(what, where=self._where(keys), got=got, fix=fix)

    def _mapping(self, value: Any, keys: Keys) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            what = f"{keys[-1]} is a mapping" if keys else "a recipe is a mapping"
            fix = "write KEY: VALUE, one a line" if keys else "write stages: and tables:; docs/compare.md has an example"
            raise self._error(what, keys, got=repr(value)[:80], fix=fix)
        return {str(key): inner for key, inner in value.items()}

    def _text(self, value: Any, keys: Keys) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._error(f"{keys[-1]} is no text", keys, got=repr(value)[:80], fix=f'write {keys[-1]}: "..."')
        return str(value)

    def _require_keys(self, entry: Mapping[str, Any], known: Sequence[str], keys: Keys) -> None:
        for key in entry:
            if key not in known:
                what = f"the recipe has an unknown key {key!r}{nearest(key, known)}"
                policy = "; a policy is not a recipe: parley scan FILE.yaml" if {"rules", "prompts"} & entry.keys() else ""
                raise self._error(what, (*keys, key), fix=f"one of {', '.join(known)}{policy if not keys else ''}")

    def _with_settings(self, value: Any, keys: Keys) -> Any:
        """Return a value with the settings of the recipe in it; a text that is one reference takes the setting's type."""
        if isinstance(value, Mapping):
            return {str(key): self._with_settings(inner, (*keys, str(key))) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._with_settings(inner, keys) for inner in value]
        if not isinstance(value, str):
            return value
        for name in (name for name in _references(value) if "." not in name):
            if name not in self._settings:
                fix = f"settings: {', '.join(self._settings) or 'none'}; a stage is used as ${{STAGE.run}}"
                raise self._error(f"no setting is called {name!r}{nearest(name, self._settings)}", keys, got=value, fix=fix)
            if value == f"${{{name}}}":
                return self._settings[name]
            value = value.replace(f"${{{name}}}", str(self._settings[name]))
        return value

    def _repeated(
        self, name: str, entry: Mapping[str, Any], keys: Keys
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yield name, entry and fields of each repetition of a stage or a row."""
        repeated = entry.get("for", {})
        if isinstance(repeated, list):
            chosen = [self._mapping(fields, (*keys, "for")) for fields in repeated]
        else:
            repeated = self._mapping(repeated, (*keys, "for"))
            for field_name, values in repeated.items():
                if not isinstance(values, list) or not values:
                    fix = f"write {field_name}: [one, two]"
                    raise self._error(f"{field_name} has no values", (*keys, "for", field_name), got=repr(values)[:80], fix=fix)
            chosen = [dict(zip(repeated, values, strict=True)) for values in itertools.product(*repeated.values())]
        rest = {key: value for key, value in entry.items() if key != "for"}
        for fields in chosen:

            def filled(text: str, fields: Mapping[str, Any] = fields) -> Any:
                whole = _FIELD.fullmatch(text)
                if whole and whole[1] in fields:
                    return fields[whole[1]]
                return _FIELD.sub(lambda match: str(fields.get(match[1], match[0])), text)

            yield str(filled(name)), _mapped(rest, filled), fields

    def _each(
        self, entries: Mapping[str, Any], keys: Keys, known: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], Keys]]:
        """Yield name, entry, fields and keys of each part of a section, repeated by its `for`."""
        names: set[str] = set()
        for name, value in entries.items():
            here = (*keys, name)
            entry = self._mapping(value, here)
            self._require_keys(entry, known, here)
            for full, filled, fields in self._repeated(name, entry, here):
                if full in names:
                    fix = "give each a name of its own, with the names of for: in braces"
                    raise self._error(f"two {keys[-1]} have one name", here, got=full, fix=fix)
                names.add(full)
                yield full, filled, fields, here

    def _stages(self, entries: Mapping[str, Any]) -> dict[str, StageSpec]:
        drafts: dict[str, tuple[dict[str, Any], Keys]] = {}
        for name, entry, _, keys in self._each(entries, ("stages",), _STAGE_KEYS):
            if not _NAME.fullmatch(name) or name in _OWN_FOLDERS:
                fix = "letters, digits and dashes; not one of " + ", ".join(_OWN_FOLDERS)
                raise self._error("a stage's name is the name of a folder", keys, got=name, fix=fix)
            drafts[name] = entry, keys
            self._attributes[name] = *_ATTRIBUTES, *self._verb(name, entry, keys).load().offers
        if len(drafts) > _MOST_STAGES:
            raise self._error(f"the recipe has more than {_MOST_STAGES:,} stages", ("stages",), got=f"{len(drafts):,}")
        stages: dict[str, StageSpec] = {}
        for name in self._in_order({name: self._uses(name, *draft, drafts) for name, draft in drafts.items()}, drafts):
            stages[name] = self._stage(name, *drafts[name], stages)
        folders = [folder for stage in stages.values() for folder in stage.folders]
        if twice := next((folder for folder in folders if folders.count(folder) > 1), ""):
            fix = "rename the stage that ends in a number"
            raise self._error("two runs would have one folder", ("stages", twice), got=twice, fix=fix)
        return stages

    def _uses(self, name: str, entry: Mapping[str, Any], keys: Keys, known: Collection[str]) -> list[str]:
        """Return the stages that a stage refers to, each once."""
        used = []
        for reference in _references(entry.get("settings", {})):
            stage, _, attribute = reference.rpartition(".")
            where = next(
                (
                    (*keys, "settings", key)
                    for key, value in self._mapping(entry["settings"], (*keys, "settings")).items()
                    if reference in _references(value)
                ),
                keys,
            )
            self._require_reference(stage, attribute, known, where)
            used.append(stage)
        return list(dict.fromkeys(used))

    def _require_reference(self, stage: str, attribute: str, known: Collection[str], keys: Keys) -> None:
        if stage not in known:
            fix = f"stages: {', '.join(known)}"
            raise self._error(f"no stage is called {stage!r}{nearest(stage, known)}", keys, fix=fix)
        if attribute not in (there := self._attributes[stage]):
            fix = f"one of {', '.join(f'${{{stage}.{end}}}' for end in there)}"
            raise self._error(f"a stage has no {attribute!r}{nearest(attribute, there)}", keys, fix=fix)

    def _in_order(self, uses: Mapping[str, Sequence[str]], drafts: Mapping[str, tuple[Any, Keys]]) -> list[str]:
        """Return the stages, each after those that it uses, else in the order of the file."""
        order: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...]) -> None:
            if name in above:
                got = " uses ".join((*above[above.index(name) :], name))
                raise self._error("stages use each other in a circle", drafts[name][1], got=got, fix="remove one of the uses")
            if name not in order:
                for other in uses[name]:
                    visit(other, (*above, name))
                order[name] = None

        for name in uses:
            visit(name, ())
        return list(order)

    def _verb(self, name: str, entry: Mapping[str, Any], keys: Keys) -> Entry:
        verb = self._text(entry.get("verb", ""), (*keys, "verb"))
        entries = {" ".join(known.words): known for known in ENTRIES if known.words[0] not in ("compare", "reproduce", "demo")}
        if verb not in entries:
            what = f"no verb is called {verb!r}{nearest(verb, entries)}" if verb else f"the stage {name} has no verb"
            raise self._error(what, (*keys, "verb"), fix="one of those that parley --help lists and that make a run")
        return entries[verb]

    def _stage(self, name: str, entry: Mapping[str, Any], keys: Keys, earlier: Mapping[str, StageSpec]) -> StageSpec:
        verb = self._verb(name, entry, keys)
        preset = self._text(entry.get("preset", ""), (*keys, "preset"))
        presets = verb.load().presets
        if preset and preset not in presets:
            what = f"{' '.join(verb.words)} has no preset {preset!r}{nearest(preset, presets)}"
            raise self._error(what, (*keys, "preset"), fix=f"one of {', '.join(presets)}")
        seeds = entry.get("seeds", [0])
        whole = [seed for seed in seeds if type(seed) is int] if isinstance(seeds, list) else []
        if not whole or len({*whole}) != len(seeds):
            fix = "write seeds: [1, 2, 3], each once"
            raise self._error("seeds are whole numbers", (*keys, "seeds"), got=repr(seeds)[:80], fix=fix)
        whole = whole if "seeds" in entry else []
        minutes = entry.get("minutes", math.nan)
        if isinstance(minutes, bool) or not isinstance(minutes, int | float):
            raise self._error("minutes is no number", (*keys, "minutes"), got=repr(minutes)[:80], fix="write minutes: 5")
        values = self._mapping(entry.get("settings", {}), (*keys, "settings"))
        uses, joined = self._uses(name, entry, keys, earlier), _joined(values)
        counts = {other: earlier[other].copies for other in uses if other not in joined and earlier[other].copies > 1}
        counts |= {"seeds": len(whole)} if len(whole) > 1 else {}
        if len({*counts.values()}) > 1:
            got = ", ".join(f"{other} {number}" for other, number in counts.items())
            fix = "give all the same number of seeds, or join the trainings of one by ${STAGE.runs}"
            raise self._error(f"the stage {name} uses different numbers of trainings", keys, got=got, fix=fix)
        where = self._where((*keys, "settings") if "settings" in entry else keys)
        copies = max([1, *counts.values()])
        spec = StageSpec(
            name=name,
            entry=verb,
            preset=preset,
            values=flat(values),
            seeds=tuple(whole) * copies if len(whole) == 1 else tuple(whole),
            uses=tuple(uses),
            copies=copies,
            minutes=float(minutes),
            where=where,
        )
        # A wrong setting is found before the folder of the run is known.
        job, config = RecipePlan("", "", "", {**earlier, name: spec}, ()).planned_of(spec, _UNKNOWN, self._shared)[name]
        self._known[name] = job.metrics_of(config) or ()
        return spec

    def _table(self, key: str, entry: Mapping[str, Any], keys: Keys, stages: Mapping[str, StageSpec]) -> TableSpec:
        self._require_key(key, keys)
        figures, source = self._published(entry.get("published", {}), (*keys, "published"))
        columns, printed = list[ColumnSpec](), dict[str, tuple[str, float]]()
        within = (*keys, "columns")
        entries = self._mapping(entry.get("columns", {}), within)
        entries = {name: {"metric": facts} if isinstance(facts, str) else facts for name, facts in entries.items()}
        for name, facts, _, here in self._each(entries, within, _COLUMN_KEYS):
            self._require_key(name, here)
            form = self._text(facts.get("form", "number"), (*here, "form"))
            if form not in FORMS:
                raise self._error(f"no form is called {form!r}{nearest(form, FORMS)}", here, fix=f"one of {', '.join(FORMS)}")
            heading = self._text(facts.get("heading", name), (*here, "heading"))
            metric = self._text(facts.get("metric", ""), (*here, "metric"))
            optional, note = self._flag(facts, "optional", here), self._text(facts.get("note", ""), (*here, "note"))
            columns.append(ColumnSpec(name, heading, metric, form, self._where(here), optional, note))
            scale = facts.get("scale", 1)
            if isinstance(scale, bool) or not isinstance(scale, int | float):
                raise self._error("scale is no number", (*here, "scale"), got=repr(scale), fix="write scale: 0.01")
            printed[name] = self._text(facts.get("published", name), (*here, "published")), float(scale)
        if not columns:
            raise self._error(f"the table {key} has no columns", keys, fix="write columns: NAME: METRIC")
        rows: dict[str, RowSpec] = {}
        within = (*keys, "rows")
        known = (*_ROW_KEYS, "difference", "best")
        for name, row, fields, place in self._each(self._mapping(entry.get("rows", {}), within), within, known):
            self._require_key(name, place)
            if "difference" in row:
                rows[name] = self._difference(name, row, place, columns)
            elif "best" in row:
                rows[name] = self._best(name, row, place)
            elif (spec := self._row(name, row, fields, place, columns, printed, figures, stages)) is not None:
                rows[name] = self._rows[f"{key}.{name}"] = spec
        if not rows:
            raise self._error(f"the table {key} has no rows", keys, fix="write rows: NAME: {stage: ...}")
        return TableSpec(
            key=key,
            title=self._text(entry.get("title", key), (*keys, "title")),
            note=self._text(entry.get("note", ""), (*keys, "note")).rstrip(),
            corner=self._text(entry.get("corner", ""), (*keys, "corner")),
            columns=self._distinct("heading", tuple(columns), (*keys, "columns")),
            rows=tuple(rows.values()),
            source=source,
            screen=self._columns(entry.get("screen", []), (*keys, "screen"), columns),
        )

    def _columns(self, value: Any, keys: Keys, columns: Sequence[ColumnSpec]) -> tuple[str, ...]:
        if not isinstance(value, list) or {*map(str, value)} - {column.key for column in columns}:
            fix = f"write {keys[-1]}: [...] with some of {', '.join(column.key for column in columns)}"
            raise self._error("columns are unknown", keys, got=repr(value)[:80], fix=fix)
        return tuple(map(str, value))

    def _claim(self, name: str, entry: Mapping[str, Any], keys: Keys, metrics: Sequence[str]) -> ClaimSpec:
        self._require_key(name, keys)
        texts = {key: self._text(entry.get(key, ""), (*keys, key)) for key in ("table", "says", "holds", "fails", "why")}
        if absent := next((key for key in ("says", "holds", "fails") if not texts[key]), ""):
            fix = 'write says: "...", and holds: and fails:, such as "TABLE.ROW.COLUMN.low > 0.5"'
            raise self._error(f"the claim {name} has no {absent}", (*keys, absent), fix=fix)
        conditions = {}
        for key in ("holds", "fails"):
            try:
                (conditions[key],) = parse_conditions([texts[key]], known=metrics)
            except ConfigError as error:
                raise self._error(error.what, (*keys, key), got=error.got, fix=error.fix) from None
        return ClaimSpec(name, texts["table"], texts["says"], conditions["holds"], conditions["fails"], texts["why"])

    def _require_key(self, name: str, keys: Keys) -> None:
        if not _KEY.fullmatch(name):
            fix = "write a short name without dots, blanks and quotation marks; title:, heading: and label: are shown"
            raise self._error("the name is part of the names of metrics", keys, got=name, fix=fix)

    def _published(self, value: Any, keys: Keys) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """Return published figures by row and column, and their source."""
        entry = self._mapping(value, keys)
        self._require_keys(entry, _PUBLISHED_KEYS, keys)
        source = self._text(entry.get("source", ""), (*keys, "source"))
        if "file" not in entry:
            return {}, source
        file = self._path.parent / self._text(entry["file"], (*keys, "file"))
        if not file.is_file():
            fix = "name a file beside the recipe, with the columns table,row,column,value"
            what = "the file of published figures cannot be read"
            raise DataError(what, where=self._where((*keys, "file")), got=str(file), fix=fix)
        tables = read_figures(file)
        name = self._text(entry.get("table", ""), (*keys, "table"))
        if name not in tables:
            what = f"the file of published figures has no table {name!r}{nearest(name, tables)}"
            raise self._error(what, (*keys, "table"), got=file.name, fix=f"one of {', '.join(tables)}")
        return tables[name], source

    def _row(
        self,
        name: str,
        entry: Mapping[str, Any],
        chosen: Mapping[str, Any],
        keys: Keys,
        columns: Sequence[ColumnSpec],
        printed: Mapping[str, tuple[str, float]],
        figures: Mapping[str, Mapping[str, float]],
        stages: Mapping[str, StageSpec],
    ) -> RowSpec | None:
        """Return a row; None if it is optional, and its verb measures none of its metrics."""
        by_column = {key: str(of) for key, of in self._mapping(entry.get("stages", {}), (*keys, "stages")).items()}
        self._columns(list(by_column), (*keys, "stages"), columns)
        stage = self._text(entry.get("stage", next(iter(by_column.values()), "")), (*keys, "stage"))
        for of in (stage, *by_column.values()):
            if of not in stages:
                what = f"no stage is called {of!r}{nearest(of, stages)}" if of else f"the row {name} has no stage"
                raise self._error(what, (*keys, "stage"), fix=f"stages: {', '.join(stages)}")
        fields = {**chosen, **self._mapping(entry.get("fields", {}), (*keys, "fields"))}
        every = [column.key for column in columns] if "stage" in entry else list(by_column)
        own = self._columns(entry.get("columns", every), (*keys, "columns"), columns)
        metrics: dict[str, str] = {}
        for column in (column for column in columns if column.key in own):
            if not (metric := column.metric):
                fix = "write metric: NAME, as --json prints it"
                raise self._error(f"the column {column.key} has no metric", (*keys[:-2], "columns", column.key), fix=fix)
            missing = [field_name for field_name in _FIELD.findall(metric) if field_name not in fields]
            if missing:
                fix = f"write fields: {{{missing[0]}: ...}} in the row"
                what = f"the row {name} has no field {missing[0]!r}{nearest(missing[0], fields)}"
                raise self._error(what, keys, got=metric, fix=fix)
            metrics[column.key] = _FIELD.sub(lambda match: str(fields[match[1]]), metric)
        is_optional, known = self._flag(entry, "optional", keys), self._known[stage]
        if is_optional and known and not by_column and not {*metrics.values()} & {*known}:
            return None
        optional = frozenset(column.key for column in columns if column.optional or is_optional)
        for column_key in (column_key for column_key in metrics if column_key not in optional):
            of = by_column.get(column_key, stage)
            self._require_metrics(stages, stages[of], {column_key: metrics[column_key]}, keys)
        label = self._text(entry.get("label", name), (*keys, "label"))
        control = self._flag(entry, "control", keys)
        published = self._figures_of(entry.get("published", {}), (*keys, "published"), printed, figures)
        label += " (control)" * control
        return RowSpec(name, label, stage, metrics, published, self._where(keys), optional, stages=by_column)

    def _difference(self, name: str, entry: Mapping[str, Any], keys: Keys, columns: Sequence[ColumnSpec]) -> RowSpec:
        """Return a row of the differences of two rows above it, measured and published."""
        self._require_keys(entry, _DIFFERENCE_KEYS, keys)
        names, here = entry["difference"], (*keys, "difference")
        if not isinstance(names, list) or len(names) != 2:
            fix = "write difference: [TABLE.ROW, TABLE.ROW]"
            raise self._error("a difference is of two rows", here, got=repr(names)[:80], fix=fix)
        first, second = self._above(names, here)
        if absent := [column.key for column in columns if not (column.key in first.metrics and column.key in second.metrics)]:
            fix = "leave the column out, or name rows that have it"
            raise self._error(f"a row of the difference has no column {absent[0]!r}", here, fix=fix)
        label = self._text(entry.get("label", f"{names[0]} less {names[1]}"), (*keys, "label"))
        metrics = {column.key: first.metrics[column.key] for column in columns}
        printed = [column for column in metrics if column in first.published and column in second.published]
        published = {column: round(first.published[column] - second.published[column], 9) for column in printed}
        where = self._where(keys)
        return RowSpec(name, label, first.stage, metrics, published, where, first.optional, second, first.stages)

    def _best(self, name: str, entry: Mapping[str, Any], keys: Keys) -> RowSpec:
        """Return a row of the best of some rows above it, column by column."""
        self._require_keys(entry, _BEST_KEYS, keys)
        names, here = entry["best"], (*keys, "best")
        if not isinstance(names, list) or not names:
            raise self._error("best has no rows", here, got=repr(names)[:80], fix="write best: [TABLE.ROW, TABLE.ROW]")
        rows = self._above(names, here)
        label = self._text(entry.get("label", name), (*keys, "label"))
        metrics = {column: metric for row in rows for column, metric in row.metrics.items()}
        return RowSpec(name, label, rows[0].stage, metrics, {}, self._where(keys), frozenset(metrics), best=rows)

    def _above(self, names: Sequence[Any], keys: Keys) -> tuple[RowSpec, ...]:
        """Return rows above by TABLE.ROW."""
        for row in map(str, names):
            if row not in self._rows:
                fix = f"rows above it: {', '.join([*self._rows][:_MOST_NAMED])}"
                raise self._error(f"no row above is called {row!r}{nearest(row, self._rows)}", keys, fix=fix)
        return tuple(self._rows[str(row)] for row in names)

    def _require_metrics(
        self, stages: Mapping[str, StageSpec], spec: StageSpec, metrics: Mapping[str, str], keys: Keys
    ) -> None:
        """Check the references in names of metrics, and the names if the verb knows them before it runs."""
        for reference in _references(metrics):
            stage, _, attribute = reference.rpartition(".")
            self._require_reference(stage, attribute, stages, keys)
        known = self._known[spec.name]
        for metric in metrics.values() if known else ():
            name = RecipePlan("", "", "", stages, ()).resolved(metric, 1, _UNKNOWN)
            if name not in known:
                what = f"{' '.join(spec.entry.words)} measures no {name!r}{nearest(name, known)}"
                fix = f"metrics such as {', '.join(list(known)[:_MOST_NAMED])}"
                raise self._error(what, keys, got=f"stage {spec.name}", fix=fix)

    def _flag(self, entry: Mapping[str, Any], name: str, keys: Keys) -> bool:
        if not isinstance(flag := entry.get(name, False), bool):
            raise self._error(f"{name} is true or false", (*keys, name), got=repr(flag), fix=f"write {name}: true")
        return flag

    def _figures_of(
        self, value: Any, keys: Keys, printed: Mapping[str, tuple[str, float]], figures: Mapping[str, Mapping[str, float]]
    ) -> dict[str, float]:
        """Return the published figures of a row by column."""
        if isinstance(value, str):
            if value not in figures:
                what = f"the published table has no row {value!r}{nearest(value, figures)}"
                fix = (
                    f"one of {', '.join(figures)}" if figures else "write published: {file: FILE.csv, table: NAME} in the table"
                )
                raise self._error(what, keys, fix=fix)
            row = figures[value]
            return {key: scale * row[name] for key, (name, scale) in printed.items() if name in row}
        typed = self._mapping(value, keys)
        self._require_keys(typed, list(printed), keys)
        for key, figure in typed.items():
            if isinstance(figure, bool) or not isinstance(figure, int | float):
                raise self._error(
                    "a published figure is no number", (*keys, key), got=repr(figure)[:80], fix=f"write {key}: 0.5"
                )
        return {key: float(figure) for key, figure in typed.items()}


def _overrides(text: str) -> dict[str, Any]:
    """Return the settings of a text KEY=VALUE,KEY=VALUE; a value may hold commas."""
    values: dict[str, Any] = {}
    for part in re.split(r",(?=\w+=)", text) if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError("a setting needs a value", where="--override", got=part, fix=f"--override {key}=VALUE")
        try:
            values[key] = yaml.safe_load(value) if value else ""
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError("the value of a setting is not YAML", where=f"--override {part}", got=str(error)) from None
    return values
