"""Attacks on a negotiation agent, evaluated: `parley attack rl` and `parley attack transfer` (Cheng et al. 2019).

Both are matches under the complementary rule; `rl` plays a trained adversary, `transfer` an ordinary speaker that plugs
in sentences which won elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from parley.engine.core.runs.layout import CONFIG
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Reporter, Summary
from parley.engine.negotiation.attacks.transfer import (
    PAPER_SENTENCE,
    PAPER_TURN,
    TransferAgent,
    last_sentences,
    unspeakable_words,
)
from parley.engine.negotiation.verbs.agents import require_partner
from parley.engine.negotiation.verbs.match import MatchConfig, MatchJob, OneMatchConfig, Roster
from parley.envs.core.config import shared
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.ranges import Configuration, NonNegativeInt, PositiveInt
from parley.envs.negotiation.game import Agent
from parley.envs.negotiation.vocabulary import Vocabulary

UNFOUND = "unfound"
"""Entry of the summary: why a row of a table has nothing to play."""
_NAME_ONE = '--set transfer.source=RUN (an attack rl run) or --set "transfer.sentence=TEXT"'
_MAKE_ONE = "parley attack rl makes runs/attack-rl; or --set transfer.source=RUN, or the preset fixed: one sentence for all"
_EMPTY_ONE = "add --set transfer.source= to keep the sentence, or --set transfer.sentence= to keep the source; presets name one"


@dataclass(frozen=True, kw_only=True)
class AttackConfig(OneMatchConfig):
    """Who is attacked, and through whom."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder, or any agent's name."""
    speaker: str = "runs/adversary"
    """Who speaks for the attacker: the trained adversary (rl), or the agent that sentences are plugged into (transfer)."""

    @property
    def match(self) -> MatchConfig:
        """The same as a match under the attack's rule."""
        return MatchConfig(adversary=self.speaker, target=self.target, complementary=True, **shared(self, OneMatchConfig)).match


class NothingWonError(ConfigError):
    """There is no sentence in the dialogues of a source that were won by enough points, or none that the speaker can say."""


AttackConfigT = TypeVar("AttackConfigT", bound=AttackConfig)


@dataclass(frozen=True, kw_only=True)
class TransferSettings(Configuration):
    """Where the sentences come from and when they are said."""

    source: str = ""
    """Run of an attack whose adversary's last sentences are collected."""
    sentence: str = ""
    """One fixed sentence instead, words separated by blanks."""
    min_advantage: int = 4
    """Points by which a collected sentence's adversary must have won."""
    max_sentences: PositiveInt = 100
    """Keep at most this many collected sentences, the most frequent ones."""
    turn: NonNegativeInt = PAPER_TURN
    """Utterances that must have been said before the sentence is."""


@dataclass(frozen=True, kw_only=True)
class TransferConfig(AttackConfig):
    """The transfer attack."""

    transfer: TransferSettings = field(default_factory=TransferSettings)
    """What is plugged in."""


@dataclass(frozen=True)
class TransferRoster(Roster):
    """A match whose adversary plugs in sentences.

    Args:
        sentences: what it plugs in.
        turn: utterances that must be behind it.
    """

    sentences: tuple[str, ...]
    turn: int
    why: str = field(default="", kw_only=True)
    """Why there is none."""

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        speaker, target = super().agents(device)
        return TransferAgent(speaker, self.sentences, self.turn), target


def transfer_sentences(settings: TransferSettings, words: Vocabulary, reporter: Reporter) -> tuple[str, ...]:
    """What a transfer attack plugs in; of a source those sentences that its speaker can say.

    Args:
        settings: where they come from.
        words: of the speaker.
        reporter: who looks on.

    Raises:
        ConfigError: no source is named, or two (a preset may have named one of them).
        NothingWonError: none of its dialogues is good enough, or the speaker can say nothing of them.
        RunError: the source is no run.
    """
    if bool(settings.source) == bool(settings.sentence):
        raise ConfigError(
            "the transfer attack needs one source of sentences",
            got=f"source {settings.source!r}, sentence {settings.sentence!r}",
            fix=_EMPTY_ONE if settings.source else _NAME_ONE,
        )
    if settings.sentence:
        sentences = [settings.sentence]
    else:
        source = fetched_run(settings.source)
        if not (source / CONFIG).is_file():
            what = "there is no run here to take sentences from (transfer.source)"
            raise RunError(what, where=settings.source, fix=_MAKE_ONE)
        rows = RunFolder.load(source).read_rows().to_pylist()
        found = last_sentences(rows, settings.min_advantage, len(rows))
        sentences = [sentence for sentence in found if not unspeakable_words(sentence, words)]
        if found and not sentences:
            raise NothingWonError(
                f"no sentence that won in {settings.source} is in words that the speaker knows",
                got=", ".join(unspeakable_words(found[0], words)),
                fix="name another speaker, or the run of an attack by an adversary of its corpus",
            )
        if left := len(found) - len(sentences):
            reporter.say(f"left out: {left} of {len(found)} sentences, in words that the speaker does not know")
        sentences = sentences[: settings.max_sentences]
    others = f", and {len(sentences) - 1} less frequent" if len(sentences) > 1 else ""
    reporter.say(f"to plug in: {sentences[0] if sentences else '(none)'}{others}")
    if not sentences:
        points = f"{settings.min_advantage} point{'s' * (settings.min_advantage != 1)}"
        raise NothingWonError(
            f"no dialogue of {settings.source} was won by {points} or more",
            got="no sentence to plug in",
            fix="lower transfer.min_advantage, or name the run of a stronger attack",
        )
    return tuple(sentences)


def transfer_from_rl() -> TransferConfig:
    """Sentences collected from an RL attack's best dialogues (Cheng et al. 2019, section 4.2)."""
    return TransferConfig(speaker="runs/negotiator", transfer=TransferSettings(source="runs/attack-rl"))


def fixed_sentence() -> TransferConfig:
    """The paper's one fixed sentence (Cheng et al. 2019, section 7.2)."""
    return TransferConfig(speaker="runs/negotiator", transfer=TransferSettings(sentence=PAPER_SENTENCE))


def learned() -> AttackConfig:
    """An adversary trained with parley train adversary (Cheng et al. 2019, section 4.1)."""
    return AttackConfig()


class AttackJob(MatchJob[AttackConfigT]):
    """A match that is an attack."""

    adversary = "speaker"
    kind: str

    def title(self, match: MatchConfig) -> str:
        return f"{self.kind} attack on {match.target}"


class AttackRL(AttackJob[AttackConfig]):
    """`parley attack rl`."""

    words = ("attack", "rl")
    run_name = "attack-rl"
    config = AttackConfig
    presets = {"cheng2019": learned}
    kind = "RL"

    def roster(self, config: AttackConfig, reporter: Reporter) -> Roster:
        """The trained adversary, or any other agent, and the target."""
        require_partner(config.speaker, "--speaker")
        return super().roster(config, reporter)


class AttackTransfer(AttackJob[TransferConfig]):
    """`parley attack transfer`."""

    words = ("attack", "transfer")
    run_name = "attack-transfer"
    config = TransferConfig
    presets = {"cheng2019": transfer_from_rl, "fixed": fixed_sentence}
    kind = "transfer"

    def roster(self, config: TransferConfig, reporter: Reporter) -> Roster:
        words = Roster(config.match).adversary_words
        return TransferRoster(config.match, transfer_sentences(config.transfer, words, reporter), config.transfer.turn)


class TransferRow(AttackTransfer):
    """The same as a row of a table: without a sentence it ends without a dialogue, and its summary says why."""

    def prepare(self, config: TransferConfig, path: Path, reporter: Reporter) -> Roster:
        try:
            return super().prepare(config, path, reporter)
        except NothingWonError as error:
            reporter.say(f"nothing is played: {error.what}")
            return TransferRoster(config.match, (), config.transfer.turn, why=error.what)

    def work(self, run: RunFolder, prepared: Roster, reporter: Reporter) -> Roster:
        return super().work(run, prepared, reporter) if cast("TransferRoster", prepared).sentences else prepared

    def measure(self, run: RunFolder, found: Roster) -> Summary:
        if not (why := cast("TransferRoster", found).why):
            return super().measure(run, found)
        why += ", so there is no sentence to plug in"
        return Summary(self.title(found.config), f"{why[:1].upper()}{why[1:]}.", {}, {UNFOUND: why})

    def num_rows(self, config: TransferConfig, path: Path) -> int:
        return 0 if UNFOUND in (RunFolder.load(path).summary() or {}) else super().num_rows(config, path)


ATTACK_RL, ATTACK_TRANSFER, TRANSFER_ROW = AttackRL(), AttackTransfer(), TransferRow()
