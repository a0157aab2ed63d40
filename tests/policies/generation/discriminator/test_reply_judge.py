"""A trained discriminator as judge of replies: what it says is what the network says, and it keeps a judge's promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.envs.core.conformance import promises
from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import EOT, Example, turn_of
from parley.envs.generation.game import REPLY_JUDGE
from parley.envs.generation.reply_env import ReplyEnv, reply_action
from parley.policies.generation.discriminator.batches import DISCRIMINATOR, ReplyExamples, TrainedReplyJudge
from tests.policies.generation.discriminator.made_up import EOT_ID, VOCABULARY, judged, network, sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judge") / "checkpoint"
    DISCRIMINATOR.save(network(), path, {})
    return path


def examples() -> tuple[list[Example], list[list[str]]]:
    """Contexts of one to three turns with what people replied, and other replies, in words."""
    found, others = [], []
    for number, item in enumerate(judged(6)):
        source = np.asarray(item.source)
        turns = [turn[turn != EOT_ID] for turn in np.split(source, np.flatnonzero(source == EOT_ID))]
        recorded, other = (VOCABULARY.decode(reply) for reply in item.replies)
        found.append(Example(str(number), tuple(turn_of(VOCABULARY.decode(turn)) for turn in turns), turn_of(recorded)))
        others.append(other)
    return found, others


def test_it_says_what_the_network_says_of_whole_replies(folder: Path) -> None:
    found, others = examples()
    said = TrainedReplyJudge(folder).judge_replies(found, list(map(turn_of, others)))
    batch = ReplyExamples(judged(6), VOCABULARY, sizes()).batch(np.arange(6))
    with torch.no_grad():
        expected = network()(batch).sigmoid().numpy()[1::2]
    assert np.allclose(said, expected, atol=1e-6)
    assert np.ptp(said) > 0.01


def test_it_rewards_the_replies_of_the_environment(folder: Path) -> None:
    judge = TrainedReplyJudge(folder)
    (example, *_), (other, *_) = examples()
    env = ReplyEnv(examples=[example], judge=judge, vocabulary=judge.vocabulary)
    env.reset(seed=1)
    _, reward, _, _, _ = env.step(reply_action(env.vocabulary, env.rules, other))
    assert reward == judge.judge_replies([example], [turn_of(other)])[0]


def test_it_keeps_the_promises_of_a_judge(folder: Path) -> None:
    assert EOT in TrainedReplyJudge(folder).vocabulary.index
    assert not [each.failure for each in promises(REPLY_JUDGE, TrainedReplyJudge(folder)) if each.failure]
    with pytest.raises(CheckpointError):
        TrainedReplyJudge(folder / "nothing")
