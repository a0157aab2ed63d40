"""`parley list`: everything that can be named on the command line."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro import conf

from parley.engine.cli.flags import parse
from parley.engine.cli.tables import make_console, show_table
from parley.engine.cli.verbs import Verb
from parley.engine.generation.settings import METHODS
from parley.engine.jobs.catalogue import ENTRIES
from parley.engine.jobs.collaboration.agents import friends_agents
from parley.engine.jobs.collaboration.channels import LIARS
from parley.engine.metrics.generation.trained import AT, DECODED, TRAINED
from parley.engine.metrics.negotiation.attack import ATTACK_METRICS
from parley.engine.perturb.catalogue import strategies
from parley.engine.perturb.replies.catalogue import rules
from parley.engine.retrieval.catalogue import rank_attacks
from parley.engine.retrieval.moves import BY_NAME
from parley.engine.triggers.catalogue import searches
from parley.envs.candidates.corpora import candidate_corpora
from parley.envs.friends.corpora import friend_corpora
from parley.envs.negotiation.agents import agents
from parley.envs.negotiation.corpora.catalogue import corpora
from parley.envs.negotiation.domain import domains
from parley.envs.pairs.corpora import pair_corpora
from parley.envs.registration import IDS
from parley.policies.chat.addresses import chat_models
from parley.policies.chat.loading import CHAT_MODEL_KINDS
from parley.policies.decoders import RULES
from parley.policies.discriminator.settings import KINDS
from parley.policies.judges.judge import JUDGE_KINDS, judges
from parley.policies.rankers import RANKER_KINDS, rankers


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


def listing() -> dict[str, Any]:
    """The names of each kind of part, with what is worth knowing of each."""
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
        "liars": LIARS,
        "rules": {name: rules.summary(name) for name in rules},
        "rankers": {name: rankers.summary(name) for name in rankers} | RANKER_KINDS,
        "rank attacks": {name: rank_attacks.summary(name) for name in rank_attacks},
        "moves": {name: (inspect.getdoc(move) or "").splitlines()[0].rstrip(".") for name, move in BY_NAME.items()},
        "chat models": {name: chat_models.summary(name) for name in chat_models} | CHAT_MODEL_KINDS,
        "judges": {name: judges.summary(name) for name in judges} | JUDGE_KINDS,
        "decoders": {name: rule.summary for name, rule in RULES.items()},
        "discriminators": KINDS,
        "reply methods": METHODS,
        "generation rows": {**DECODED, f"{AT}T": "the start, sampled at temperature T", **TRAINED},
        "environments": list(IDS),
        "metrics": {name: metric._asdict() for name, metric in ATTACK_METRICS.items()},
    }
