"""`parley check`: whether a part of the user's own keeps what its protocol promises."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.tables import make_console, show_table
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.verbs.conformance import check_part


@dataclass(frozen=True, kw_only=True)
class CheckArguments:
    """What is checked."""

    part: Annotated[conf.Positional[str], conf.arg(metavar="PART")]
    """path/file.py:Name of an agent, a player of MutualFriends, a corpus, a strategy or rule, a responder, a ranker,
    a method of attacks on rankers, a judge, a chat model, a model or method of trigger search."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object on standard output."""


def run_check(verb: Verb, arguments: Sequence[str]) -> int:
    """Tests the part; returns 0 when it keeps every promise, 1 otherwise."""
    asked = parse(CheckArguments, verb, arguments)
    found = check_part(asked.part)
    broken = sum(not conformance.kept for conformance in found)
    if asked.json:
        kinds = {
            each.kind.name: {
                "protocol": each.kind.protocol,
                "kept": each.kept,
                "promises": {promise.text: promise.failure for promise in each.promises},
            }
            for each in found
        }
        sys.stdout.write(f"{json.dumps({'part': asked.part, 'kinds': kinds})}\n")
        return int(broken > 0)
    console = make_console()
    for each in found:
        rows = [(promise.text, "kept" if not promise.failure else f"BROKEN: {promise.failure}") for promise in each.promises]
        show_table(console, f"{asked.part} as {each.kind.name} ({each.kind.protocol})", ("promise", ""), rows)
    return int(broken > 0)
