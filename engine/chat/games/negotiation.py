"""Negotiations as lessons: recorded dialogues, as the seat of a chat model has them.

A dialogue of a corpus is one side's view. The seat learns its own utterances, its `<selection>`, and its choice at the end.
Without a deal it learns "no deal" if both sides chose that, and nothing of choices that did not fit each other. Most dialogues
are in the corpus from both sides, so one adapter learns both. Words that the corpus' vocabulary lacks are learned, too.

Perplexity per word is that of `parley train negotiator` on a side's own turns. Its released formula counts speaker markers,
words, `<eos>` and `<selection>`; so an utterance of n words counts n + 2, the end of the talk 2. The choice is not among them.
Two things differ: a recurrent agent predicts the partner's turns as well (one had 5.600 on all turns of Deal or No Deal's test
split, 5.560 on own ones), and `<unk>` where a chat model spells a rare word.

`selection_accuracy` is that of `parley train negotiator`: of dialogues that end in a deal or in no agreement, the share whose
choice is the recorded one, of a split's first `MOST_CHOICES` such dialogues. The model chooses as it plays at temperature 0
(`policies/chat/negotiator.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from parley.engine.chat.supervised import TEST, TRAIN, VALIDATION, ChatGame, SeatDialogue
from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.arrow import data_root as resolve_data_root
from parley.envs.corpora.lines import corpus_named
from parley.envs.negotiation.corpora.catalogue import find_negotiations
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord
from parley.envs.negotiation.domain import Domain, Numbers
from parley.envs.negotiation.game import NegotiationGame
from parley.policies.chat.model import Chat, ChatModel
from parley.policies.chat.negotiator import ChatNegotiator, choice, choices, seat_moves

MOST_CHOICES = 200
"""Dialogues of a split whose choice is measured: every deal is scored, which takes a second and a half of a core."""
_PARTS = {TRAIN: "train", VALIDATION: "val", TEST: "test"}


@dataclass(frozen=True)
class NegotiationDialogue(SeatDialogue):
    """One side's view of a negotiation.

    Args:
        question: the messages before its choice.
        domain: what is negotiated about.
        counts: number of each item.
        selection: its choice, a deal or no agreement; None if nothing is learned of it.
    """

    question: Chat
    domain: Domain
    counts: Numbers
    selection: int | None

    @property
    def learned(self) -> Sequence[tuple[Chat, str]]:
        if self.selection is None:
            return self.moves
        return *self.moves, (self.question, choices(self.domain, self.counts)[self.selection])


@dataclass(frozen=True)
class RecordedNegotiations(ChatGame):
    """The dialogues of a corpus.

    Args:
        corpus: its name, or path/file.py:NAME.
        data_root: the folder of corpora; the usual folders if None.
    """

    corpus: str
    data_root: Path | None

    @property
    def title(self) -> str:
        return "both sides of a negotiation"

    @property
    def teachers(self) -> str:
        return self.corpus

    @cached_property
    def splits(self) -> Mapping[str, Sequence[DialogueRecord]]:
        """The recorded dialogues, read once."""
        with corpus_named(self.corpus, self.data_root):
            return find_negotiations(self.corpus).read(resolve_data_root(self.data_root)).require_whole().splits

    def dialogues(self, split: str, limit: int = 0) -> list[NegotiationDialogue]:
        """Return the dialogues of a split in the order of the corpus.

        Raises:
            ConfigError: an unknown corpus.
            DataError: files are missing, or a line is broken.
        """
        return [seat_dialogue(record) for record in self.splits[_PARTS[split]][: limit or None]]

    def measure(self, load: Callable[[], ChatModel], dialogues: Sequence[NegotiationDialogue]) -> Mapping[str, Estimate]:
        chosen = [dialogue for dialogue in dialogues if dialogue.selection is not None][:MOST_CHOICES]
        if not chosen:
            return {}
        domain = chosen[0].domain
        agent = ChatNegotiator(self.corpus, load, domain.vocabulary(), temperature=0.0)
        scores = agent.choice_scores(
            [dialogue.question for dialogue in chosen], domain, [dialogue.counts for dialogue in chosen]
        )
        right = [int(score.argmax()) == dialogue.selection for score, dialogue in zip(scores, chosen, strict=True)]
        return {"selection_accuracy": clustered_rate(right, [dialogue.unit for dialogue in chosen])}

    def match(self, player: str, base: str) -> list[str]:
        return ["parley", "selfplay", "--adversary", player, "--target", base]


def seat_dialogue(record: DialogueRecord) -> NegotiationDialogue:
    """Return a recorded dialogue as the seat of its view has it."""
    scenario, domain = record.scenario, record.scenario.domain
    # A seat is told what a view of a dialogue before its first turn holds.
    view = NegotiationGame([scenario], [0], domain.vocabulary()).view(0)
    turns = [(turn.is_you, " ".join(turn.words)) for turn in record.turns]
    legal = scenario.selections.table.tolist()[: scenario.selections.no_agreement + 1]
    output = list(record.output)
    return NegotiationDialogue(
        seat_moves(view, 0, turns),
        sum(len(turn.words) + 2 for turn in record.turns if turn.is_you) - record.turns[-1].is_you,
        # Both views of a dialogue have its words in one order.
        derive_seed(0, *(text for _, text in turns)),
        choice(view, 0, then=turns),
        domain,
        scenario.counts,
        legal.index(output) if output in legal else None,
    )
