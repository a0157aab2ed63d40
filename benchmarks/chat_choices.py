"""What a chat model chooses behind dialogues, by three rules, beside what was chosen by who sat in its seat.

Sides of agreed dialogues of a corpus' validation split, drawn by `SEED`, each replayed in the game. "line" takes the likeliest
legal choice, "per token" the likeliest a token, "beside the question" what `ChatNegotiator.choice_scores` takes: the choice
that rules, values and talk make likelier than the question alone does. With --quick two sides of the embedded corpus and, where
no model is named, one that scores by chance.

Of each rule: "same" is the share of sides whose choice is that of the corpus, "nothing" that of sides that take no item,
"no deal" that of sides that refuse; "place" is the share of legal choices that the model prefers to that of the corpus, 0.5 by
chance. Intervals are 95 %, over sides. "ratio" is the place by the rule per token over that of the choices that are made;
"identical": every side was scored by every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from benchmarks.measure import BenchmarkOptions, Result, run
from parley.engine.core.stats.statistics import mean, rate
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Utterances
from parley.envs.core.seeds import stream
from parley.envs.corpora.arrow import data_root
from parley.envs.negotiation.corpora.catalogue import CorpusSource, corpora
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord
from parley.envs.negotiation.domain import SELECTION, SELECTION_ID
from parley.envs.negotiation.game import NegotiationGame, Rules
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import Chat, ReplyScore, ScoringChatModel
from parley.policies.chat.negotiator import ChatNegotiator, nats_by_chat
from parley.policies.chat.settings import ChatModelSettings

SEED = 0
RULES = ("line", "per token", "beside the question")


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Choices of a chat model behind dialogues of people."""

    model: str = ""
    """hf:FOLDER or gguf:FILE; empty with --quick alone."""
    corpus: str = "dealornodeal"
    """Whose dialogues."""
    num: int = 16
    """Sides of dialogues."""


class _Chance:
    """Scores replies by chance, the same ones alike."""

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """See `ScoringChatModel`."""
        keys = (f"{chat[-1].content}{len(chat)}{reply}" for chat, reply in zip(chats, replies, strict=True))
        return [ReplyScore(-10 * float(stream(SEED, key).random()), 9) for key in keys]


def measure(options: Options) -> Result:
    """Asks for the choices of every side."""
    model = _model(options)
    sides = _sides("embedded" if options.quick else options.corpus)
    drawn = stream(SEED).permutation(len(sides))[: 2 if options.quick else options.num]
    by_rule: dict[str, list[tuple[float, float, float, float]]] = {rule: [] for rule in RULES}
    for number in drawn.tolist():
        for rule, figures in _figures_of(model, sides[number]).items():
            by_rule[rule].append(figures)
    places = {rule: float(np.mean([row[-1] for row in rows])) for rule, rows in by_rule.items()}
    ratio = places["per token"] / places["beside the question"]
    shown: dict[str, Any] = {"sides": len(drawn)}
    for rule, each_side in by_rule.items():
        same, nothing, refused, standing = np.array(each_side).T
        shares = {name: rate(int(values.sum()), len(values)) for name, values in (("same", same), ("nothing", nothing))}
        shares |= {"no deal": rate(int(refused.sum()), len(refused)), "place": mean(standing)}
        shown |= {f"{rule}: {name}": [round(x, 3) for x in (e.value, e.low, e.high)] for name, e in shares.items()}
    return Result(ratio=ratio, identical=len(by_rule[RULES[0]]) == len(drawn), figures=shown)


def _model(options: Options) -> ScoringChatModel:
    if not options.model:
        if not options.quick:
            raise ConfigError("no chat model is named", where="--model", fix="name one: hf:FOLDER or gguf:FILE")
        return cast("ScoringChatModel", _Chance())
    return cast("ScoringChatModel", load_chat_model(options.model, ChatModelSettings()))


def _sides(corpus: str) -> list[DialogueRecord]:
    source: CorpusSource = corpora.get(corpus)
    records = source.read(data_root(None)).require_whole().splits["val"]
    return [record for record in records if len(set(record.output)) > 1 and 4 <= len(record.turns) < Rules().max_turns]


def _figures_of(model: ScoringChatModel, record: DialogueRecord) -> dict[str, tuple[float, float, float, float]]:
    scenario = record.scenario
    domain, counts, words = scenario.domain, scenario.counts, scenario.domain.vocabulary()
    game = NegotiationGame([scenario], [SEED], words, Rules(), [int(not record.turns[0].is_you)])
    for turn in record.turns:
        utterance = game.view(int(not turn.is_you)).encode(" ".join(turn.words))
        game.say(np.arange(1), Utterances.of([[SELECTION_ID] if turn.words == (SELECTION,) else utterance]))
    chat, legal = bargaining.choice(game.view(0), 0), bargaining.choices(domain, counts)
    agent = ChatNegotiator("model", lambda: model, words)
    recorded = list(map(tuple, scenario.selections.table.tolist())).index(tuple(record.output))
    (nats,) = nats_by_chat(model, [chat], [legal])
    (beside,) = agent.choice_scores([chat], domain, [counts])
    lengths = np.array([score.num_tokens for score in model.score([chat] * len(legal), legal)])
    taken = scenario.selections.chooser_items
    figures = {}
    for rule, scores in zip(RULES, (nats, nats / lengths, beside), strict=True):
        chosen = int(scores.argmax())
        refused = legal[chosen] == bargaining.NO_DEAL
        standing = float(np.delete(scores > scores[recorded], recorded).mean())
        figures[rule] = (float(chosen == recorded), float(not refused and not taken[chosen].any()), float(refused), standing)
    return figures


if __name__ == "__main__":
    run("chat_choices", Options, measure)
