"""What `parley list` names is what commands take."""

from __future__ import annotations

from typing import get_args, get_type_hints

from parley.engine.core.cli.listing import listing
from parley.engine.generation.settings import Method
from parley.engine.generation.verbs.config import TrainedTableConfig
from parley.engine.mutual_friends.verbs.config import strategy_list
from parley.policies.core.responder import RULES, DecoderSettings
from parley.policies.generation.discriminator.settings import DiscriminatorSizes


def test_parts_of_generation_are_those_that_commands_take() -> None:
    parts = listing()
    needed = {name: f":{rule.needed}=RUN" if rule.needed else "" for name, rule in RULES.items()}
    assert [DecoderSettings.parse(f"{name}{needed[name]}").rule for name in parts["decoders"]] == list(RULES)
    assert tuple(parts["discriminators"]) == get_args(get_type_hints(DiscriminatorSizes)["kind"])
    assert tuple(parts["reply methods"]) == get_args(Method)
    rows = [name.replace("-T", "-0.5") for name in parts["generation rows"]]
    assert TrainedTableConfig(rows=",".join(rows)).row_names == tuple(rows)
    named = {name for name in TrainedTableConfig().row_names if not name.startswith("sample-")}
    assert named == {*parts["generation rows"]} - {"sample-T"}


def test_parts_of_collaboration_are_those_that_commands_take() -> None:
    parts = listing()
    assert set(parts["friend corpora"]) >= {"friends", "mutualfriends_scripted", "mutualfriends_sample", "mutualfriends"}
    assert strategy_list(",".join(parts["liars"])) == tuple(parts["liars"])
