"""Verbs that explain: `parley list` (everything with a name), `parley check` (a part of the user), `parley settings VERB`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from rich.console import Console
from tyro import conf

from parley.engine.core.cli.flags import field_docs, meant, parse, parse_job
from parley.engine.core.cli.main import JOBS, Verb, find_verb
from parley.engine.core.cli.screen import make_console, show_lines, show_table
from parley.engine.core.verbs.api import check_part
from parley.engine.core.verbs.catalogue import ENTRIES, find
from parley.engine.core.verbs.job import flat
from parley.envs import IDS
from parley.envs.core.config import JsonObject, assign, hints_of, overlay, to_dict
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.mutual_friends.compiled import friend_corpora
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.corpora.catalogue import corpora
from parley.envs.negotiation.domain import domains
from parley.envs.ranking.corpora import candidate_corpora
from parley.envs.secret.players import attackers as secret_attackers
from parley.envs.secret.players import defenders as secret_defenders
from parley.policies.chat.addresses import chat_models
from parley.policies.chat.loading import CHAT_MODEL_KINDS
from parley.policies.core.responder import RULES
from parley.policies.generation.discriminator.settings import KINDS
from parley.policies.generation.judges.judge import JUDGE_KINDS, judges
from parley.policies.ranking.rankers import RANKER_KINDS, rankers


@dataclass(frozen=True, kw_only=True)
class CheckArguments:
    """The part to check."""

    part: Annotated[conf.Positional[str], conf.arg(metavar="PART")]
    """path/file.py:Name of an agent, a player of MutualFriends or the secret game, a corpus, a strategy or rule, a responder,
    a ranker, a method of attacks on rankers, a judge, a chat model, a model or method of trigger search."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on standard output."""


def run_check(verb: Verb, arguments: Sequence[str]) -> int:
    """Test the part; return 0 if it keeps every promise, 1 otherwise."""
    options = parse(CheckArguments, verb, arguments)
    results = check_part(options.part)
    broken = sum(not conformance.kept for conformance in results)
    if options.json:
        kinds = {
            result.kind.name: {
                "protocol": result.kind.protocol,
                "kept": result.kept,
                "promises": {promise.text: promise.failure for promise in result.promises},
            }
            for result in results
        }
        sys.stdout.write(f"{json.dumps({'part': options.part, 'kinds': kinds})}\n")
        return int(broken > 0)
    console = make_console()
    for result in results:
        rows = [(promise.text, "kept" if not promise.failure else f"BROKEN: {promise.failure}") for promise in result.promises]
        show_table(console, f"{options.part} as {result.kind.name} ({result.kind.protocol})", ("promise", ""), rows)
    return int(broken > 0)


@dataclass(frozen=True, kw_only=True)
class ListArguments:
    """Options of the output."""

    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on standard output."""


def run_list(verb: Verb, arguments: Sequence[str]) -> int:
    """Print the lists; return the exit status."""
    options = parse(ListArguments, verb, arguments)
    parts = listing()
    if options.json:
        sys.stdout.write(f"{json.dumps(parts)}\n")
        return 0
    console = make_console()
    show_table(console, "Agents, beside run and checkpoint folders", ("name", "what it is"), [*parts["agents"].items()])
    bots = [*parts["friends agents"].items()]
    show_table(console, "Bots that look for common friends, beside runs and checkpoints", ("name", "what it does"), bots)
    players = [*parts["secret attackers"].items(), *parts["secret defenders"].items()]
    show_table(console, "Attackers and defenders of the secret game", ("name", "what it does"), players)
    show_table(console, "Games of negotiation, beside --scenarios random:", ("name", "what it is"), [*parts["games"].items()])
    show_table(console, "Corpora of negotiations", ("name", "what it is"), [*parts["corpora"].items()])
    pairs = [*parts["pair corpora"].items()]
    show_table(console, "Corpora of pairs, beside source<TAB>reply files", ("name", "what it is"), pairs)
    candidates = [*parts["candidate corpora"].items()]
    show_table(console, "Corpora of candidates, beside those of pairs", ("name", "what it is"), candidates)
    chats = [*parts["friend corpora"].items()]
    show_table(console, "Corpora of chats between friends", ("name", "what it is"), chats)
    presets = [(verb, ", ".join(names)) for verb, names in parts["presets"].items()]
    show_table(console, "Presets, the default first", ("verb", "presets"), presets)
    show_table(console, "Methods of trigger search", ("name", "what it is"), [*parts["searches"].items()])
    show_table(
        console, "Attackers of a scan, for attacks: of a policy", ("name", "what it does"), [*parts["attackers"].items()]
    )
    show_table(console, "Perturbation strategies", ("name", "what it does"), [*parts["strategies"].items()])
    liars = [*parts["liars"].items()]
    show_table(console, "Strategies of evaluate collaboration, beside these", ("name", "what is heard"), liars)
    show_table(console, "Rules on candidate replies", ("name", "what it does"), [*parts["rules"].items()])
    show_table(console, "Rankers", ("name", "what it goes by"), [*parts["rankers"].items()])
    show_table(console, "Methods of attacks on rankers", ("name", "what it tries"), [*parts["rank attacks"].items()])
    show_table(console, "Moves of attacks on rankers", ("name", "what it does"), [*parts["moves"].items()])
    show_table(console, "Chat models", ("address", "what it is"), [*parts["chat models"].items()])
    show_table(console, "Judges of generated replies", ("name", "what it goes by"), [*parts["judges"].items()])
    show_table(console, "Decoders of replies, for --decoder", ("name", "what is said"), [*parts["decoders"].items()])
    show_table(console, "Discriminators, for sizes.kind", ("name", "what reads a dialogue"), [*parts["discriminators"].items()])
    show_table(console, "Methods of minmax replies", ("name", "what a word earns"), [*parts["reply methods"].items()])
    show_table(console, "Rows of evaluate generation", ("name", "whose replies"), [*parts["generation rows"].items()])
    show_table(console, "Environments, for gymnasium.make", ("id",), [(name,) for name in parts["environments"]])
    metrics = [(name, metric["direction"], metric["definition"]) for name, metric in parts["metrics"].items()]
    show_table(console, "Metrics of a negotiation", ("name", "direction", "definition"), metrics)
    return 0


def _part(target: str) -> Any:
    """Return a part of a system by "module:name", which no core module imports at its top."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def listing() -> dict[str, Any]:
    """Return the names of each kind of part, with a summary of each."""
    friends_agents = _part("parley.engine.mutual_friends.verbs.agents:friends_agents")
    liars = _part("parley.engine.mutual_friends.verbs.config:LIARS")
    searches = _part("parley.engine.triggers.catalogue:searches")
    attackers = _part("parley.engine.scan.attackers.catalogue:attackers")
    strategies = _part("parley.engine.perturb.catalogue:strategies")
    rules = _part("parley.engine.perturb.replies.catalogue:rules")
    rank_attacks = _part("parley.engine.ranking.attacks.catalogue:rank_attacks")
    moves = _part("parley.engine.ranking.attacks.cases:BY_NAME")
    methods = _part("parley.engine.generation.settings:METHODS")
    decoded, at, trained = (_part(f"parley.engine.generation.metrics.trained:{name}") for name in ("DECODED", "AT", "TRAINED"))
    attack_metrics = _part("parley.engine.negotiation.metrics.attack:ATTACK_METRICS")
    return {
        "agents": {name: agents.summary(name) for name in agents},
        "friends agents": {name: friends_agents.summary(name) for name in friends_agents},
        "games": {name: domains.summary(name) for name in domains},
        "corpora": {name: corpora.summary(name) for name in corpora},
        "pair corpora": {name: pair_corpora.summary(name) for name in pair_corpora},
        "candidate corpora": {name: candidate_corpora.summary(name) for name in candidate_corpora},
        "friend corpora": {name: friend_corpora.summary(name) for name in friend_corpora},
        "presets": {" ".join(entry.words): list(entry.load().presets) for entry in ENTRIES},
        "searches": {name: searches.summary(name) for name in searches},
        "attackers": {name: attackers.summary(name) for name in attackers},
        "strategies": {name: strategies.summary(name) for name in strategies},
        "liars": liars,
        "rules": {name: rules.summary(name) for name in rules},
        "rankers": {name: rankers.summary(name) for name in rankers} | RANKER_KINDS,
        "rank attacks": {name: rank_attacks.summary(name) for name in rank_attacks},
        "moves": {name: (inspect.getdoc(move) or "").splitlines()[0].rstrip(".") for name, move in moves.items()},
        "secret attackers": {name: secret_attackers.summary(name) for name in secret_attackers},
        "secret defenders": {name: secret_defenders.summary(name) for name in secret_defenders},
        "chat models": {name: chat_models.summary(name) for name in chat_models} | CHAT_MODEL_KINDS,
        "judges": {name: judges.summary(name) for name in judges} | JUDGE_KINDS,
        "decoders": {name: rule.summary for name, rule in RULES.items()},
        "discriminators": KINDS,
        "reply methods": methods,
        "generation rows": {**decoded, f"{at}T": "the start, sampled at temperature T", **trained},
        "environments": list(IDS),
        "metrics": {name: metric._asdict() for name, metric in attack_metrics.items()},
    }


OTHERS = {
    "perturb": "parley.engine.perturb.verbs.perturb:PerturbConfig",
    "play ranking": "parley.engine.ranking.verbs.config:PlayRankingConfig",
}
"""Verbs with settings that run no job."""
HELP, ALL = {"-h", "--help"}, "--all"
TOPICS = {
    "chat": ("chat", "parley.policies.chat.settings:ChatSeat"),
    "hugging-face": ("hugging_face", "parley.engine.triggers.verbs.config:HuggingFaceSettings"),
    "success": ("success", "parley.engine.triggers.success:SuccessSettings"),
    "relaxation": ("search.relaxation", "parley.engine.triggers.methods.settings:RelaxationSettings"),
    **{kind: (kind, f"parley.policies.ranking.matching.settings:{kind.title()}Sizes") for kind in ("smn", "dam", "mrfn")},
    "pool-search": ("search", "parley.engine.ranking.verbs.matcher:PoolSearchSettings"),
    "reply-learning": ("learning", "parley.engine.generation.settings:ReplyLearning"),
}
"""Sections with a list of their own, `parley settings NAME`: the key of the section, and its class."""
_TYPES = {int: "whole number", float: "number", str: "text", bool: "true, false", Path: "path", JsonObject: "JSON object"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a job.

    Args:
        key: its dotted key.
        kind: its allowed values, in words.
        default: its own default, before any preset; `dataclasses.MISSING` if it has none.
        meaning: the docstring below it.
        num: number of settings, of a section that another list has; 0 for one setting.
    """

    key: str
    kind: str
    default: Any
    meaning: str
    num: int = 0

    def explained(self, value: Any) -> str:
        """Return its meaning, its allowed values, and its default if the value differs."""
        differs = self.default is not dataclasses.MISSING and self.default != value
        default = f"; default {_shown(self.default)}" if differs else ""
        return f"{self.meaning} [{self.kind}{default}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsArguments:
    """Options after a verb with settings that runs no job."""

    config: Annotated[str, conf.arg(metavar="FILE.yaml", help_behavior_hint="")] = ""
    """Settings laid over the defaults; a file or its URI."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """One setting."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the settings as one JSON object on standard output."""


def run_settings(verb: Verb, arguments: Sequence[str]) -> int:
    """Print the settings that a command line would use; return the exit status."""
    in_full, arguments = ALL in arguments, [argument for argument in arguments if argument != ALL]
    # The words of a verb may be quoted as one argument.
    arguments = [word for argument in arguments[:1] for word in argument.split()] + list(arguments[1:])
    target = find_verb(arguments)
    if target is not None and target.name in OTHERS and not set(arguments) & HELP:
        return _settings_of_no_job(target, arguments[len(target.words) :])
    if arguments[:1] and arguments[0] in TOPICS:
        section, _ = TOPICS[arguments[0]]
        rows = [(row.key, row.default, row) for row in settings_of(topic_class(arguments[0]), f"{section}.")]
        _show_rows(f"settings of the section {section}", rows)
        return 0
    if target not in JOBS:
        names = [*(job.name for job in JOBS), *OTHERS]
        words = [argument for argument in arguments if argument not in HELP]
        if words != list(arguments) or not words:
            sys.stdout.write(_help(verb))
            return 0
        beginnings = [name for name in names if name.startswith(f"{words[0]} ")]
        hint = "" if beginnings and len(words) == 1 else meant(" ".join(words), beginnings or names)
        raise ConfigError(f"no verb with settings is called {words[0]!r}{hint}", fix=f"one of {', '.join(beginnings or names)}")
    assert target is not None
    job = find("-".join(target.words)).load()
    command = parse_job(target, job, arguments[len(target.words) :])
    values = flat(to_dict(command.config))
    if command.json:
        sys.stdout.write(f"{json.dumps(to_dict(command.config))}\n")
        return 0
    console = _show(target.name, job.config, values, in_full)
    first, *other_presets = (flat(to_dict(preset())) for preset in job.presets.values())
    differences = [
        (name, ", ".join(f"{key}={_shown(value)}" for key, value in preset.items() if value != first[key]))
        for name, preset in zip([*job.presets][1:], other_presets, strict=True)
    ]
    if differences:
        show_table(console, f"presets, where they differ from {next(iter(job.presets))}", ("preset", "settings"), differences)
    show_lines(console, "this command", [job.command(command.config, command.run)])
    return 0


def _settings_of_no_job(verb: Verb, arguments: Sequence[str]) -> int:
    """Print the settings of a verb that runs no job; return the exit status."""
    options = parse(SettingsArguments, verb, arguments)
    module, _, name = OTHERS[verb.name].partition(":")
    kind = getattr(importlib.import_module(module), name)
    config = overlay(kind(), fetched_file(options.config), options.config) if options.config else kind()
    values = to_dict(assign(config, options.set))
    if options.json:
        sys.stdout.write(f"{json.dumps(values)}\n")
    else:
        _show(verb.name, kind, flat(values), in_full=True)
    return 0


def _show(name: str, kind: type, values: Mapping[str, Any], in_full: bool = False) -> Console:
    rows = []
    for setting in settings_of(kind, verb="" if in_full else name):
        defaults = setting.default.items() if setting.num else ()
        changed = [f"{key}={_shown(values[key])}" for key, default in defaults if values[key] != default]
        rows.append((setting.key, ", ".join(changed) or "defaults" if setting.num else values[setting.key], setting))
    return _show_rows(f"settings of parley {name}", rows)


def _show_rows(title: str, rows: Sequence[tuple[str, Any, Setting]]) -> Console:
    console = make_console()
    shown = [(key, _shown(value), setting.meaning if setting.num else setting.explained(value)) for key, value, setting in rows]
    show_table(console, title, ("setting", "value", "what it is"), shown)
    return console


def topic_class(name: str) -> type:
    """Return the class of a section that has a list of its own, one of `TOPICS`."""
    module, _, kind = TOPICS[name][1].partition(":")
    return cast(type, getattr(importlib.import_module(module), kind))


def settings_of(kind: type, prefix: str = "", *, verb: str = "") -> Iterator[Setting]:
    """Yield every simple setting of a configuration in the order of its fields, those of a section at its place.

    Args:
        kind: the configuration.
        prefix: stands before each key.
        verb: whose list it is: a section that the list of another verb has (`Configuration.topic`) is one entry. When empty
            all sections are listed in full.
    """
    hints, docs = hints_of(kind), field_docs(kind)
    for field in dataclasses.fields(kind):
        hint, key, meaning = hints[field.name], f"{prefix}{field.name}", " ".join(docs.get(field.name, "").split())
        if not dataclasses.is_dataclass(hint):
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            yield Setting(key, _kind(hint), default, meaning)
            continue
        assert isinstance(hint, type)
        topic = getattr(hint, "topic", "")
        if verb and topic not in ("", verb):
            inside = list(settings_of(hint, f"{key}."))
            meaning = f"{meaning} {len(inside)} settings; parley settings {topic} lists them."
            yield Setting(f"{key}.*", "", {setting.key: setting.default for setting in inside}, meaning, len(inside))
        else:
            yield from settings_of(hint, f"{key}.", verb=verb)


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if isinstance(hint, UnionType):
        return " or ".join("none" if part is NoneType else _kind(part) for part in get_args(hint))
    return _TYPES.get(hint, getattr(hint, "__name__", str(hint)))


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _help(verb: Verb) -> str:
    lines = [f"usage: parley {verb.name} {verb.usage}", "", verb.summary, ""]
    lines += [
        "What follows is what could follow that verb: a preset, --config, --set and flags. --json prints JSON.",
        "--all also lists the settings of each section that another list has.",
    ]
    return "\n".join([*lines, "", "examples:", *(f"  {line}" for line in verb.examples), ""])
