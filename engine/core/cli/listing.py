"""`parley list`: everything that can be named on the command line."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.tables import make_console, show_table
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.verbs.catalogue import ENTRIES
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.mutual_friends.corpora import friend_corpora
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.corpora.catalogue import corpora
from parley.envs.negotiation.domain import domains
from parley.envs.ranking.corpora import candidate_corpora
from parley.envs.registration import IDS
from parley.policies.chat.addresses import chat_models
from parley.policies.chat.loading import CHAT_MODEL_KINDS
from parley.policies.core.decoders import RULES
from parley.policies.generation.discriminator.settings import KINDS
from parley.policies.generation.judges.judge import JUDGE_KINDS, judges
from parley.policies.ranking.rankers import RANKER_KINDS, rankers


@dataclass(frozen=True, kw_only=True)
class ListArguments:
    """How it is printed."""

    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on standard output."""


def run_list(verb: Verb, arguments: Sequence[str]) -> int:
    """Prints the lists; returns the exit status."""
    asked = parse(ListArguments, verb, arguments)
    parts = listing()
    if asked.json:
        sys.stdout.write(f"{json.dumps(parts)}\n")
        return 0
    console = make_console()
    show_table(console, "Agents, beside run and checkpoint folders", ("name", "what it is"), [*parts["agents"].items()])
    bots = [*parts["friends agents"].items()]
    show_table(console, "Bots that look for common friends, beside runs and checkpoints", ("name", "what it does"), bots)
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
    """The names of each kind of part, with what is worth knowing of each."""
    friends_agents = _part("parley.engine.mutual_friends.verbs.agents:friends_agents")
    liars = _part("parley.engine.mutual_friends.verbs.channels:LIARS")
    searches = _part("parley.engine.triggers.catalogue:searches")
    strategies = _part("parley.engine.perturb.catalogue:strategies")
    rules = _part("parley.engine.perturb.replies.catalogue:rules")
    rank_attacks = _part("parley.engine.ranking.attacks.catalogue:rank_attacks")
    moves = _part("parley.engine.ranking.attacks.moves:BY_NAME")
    methods = _part("parley.engine.generation.rewards.settings:METHODS")
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
        "strategies": {name: strategies.summary(name) for name in strategies},
        "liars": liars,
        "rules": {name: rules.summary(name) for name in rules},
        "rankers": {name: rankers.summary(name) for name in rankers} | RANKER_KINDS,
        "rank attacks": {name: rank_attacks.summary(name) for name in rank_attacks},
        "moves": {name: (inspect.getdoc(move) or "").splitlines()[0].rstrip(".") for name, move in moves.items()},
        "chat models": {name: chat_models.summary(name) for name in chat_models} | CHAT_MODEL_KINDS,
        "judges": {name: judges.summary(name) for name in judges} | JUDGE_KINDS,
        "decoders": {name: rule.summary for name, rule in RULES.items()},
        "discriminators": KINDS,
        "reply methods": methods,
        "generation rows": {**decoded, f"{at}T": "the start, sampled at temperature T", **trained},
        "environments": list(IDS),
        "metrics": {name: metric._asdict() for name, metric in attack_metrics.items()},
    }
