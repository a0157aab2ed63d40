"""Attacks on a negotiation agent, evaluated: `parley attack rl` and `parley attack transfer` (Cheng et al. 2019).

Both are matches under the complementary rule; `rl` plays a trained adversary, `transfer` an ordinary speaker that plugs
in sentences which won elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.jobs.job import Reporter, Result
from engine.jobs.negotiation.agents import require_negotiator
from engine.jobs.negotiation.match import MatchConfig, Roster, match_job, run_match
from engine.jobs.sharded import ShardedConfig
from engine.negotiation.transfer import PAPER_SENTENCE, PAPER_TURN, TransferAgent, last_sentences
from engine.store.layout import CONFIG
from engine.store.mirror import fetched_run
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.core.errors import ConfigError, RunError
from envs.negotiation.game import Agent

_NAME_ONE = '--set transfer.source=RUN (an attack rl run) or --set "transfer.sentence=TEXT"'
_MAKE_ONE = "parley attack rl makes runs/attack-rl; or --set transfer.source=RUN, or the preset fixed: one sentence for all"
_EMPTY_ONE = "add --set transfer.source= to keep the sentence, or --set transfer.sentence= to keep the source; presets name one"


@dataclass(frozen=True, kw_only=True)
class AttackConfig(ShardedConfig):
    """Who is attacked, and through whom."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder, or any agent's name."""
    speaker: str = "runs/adversary"
    """Who speaks for the attacker: the trained adversary (rl), or the agent that sentences are plugged into (transfer)."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty the target (or else the speaker), before any reinforcement."""
    dialogues: int = 2000
    """Number of dialogues."""
    scenarios: str = "random"
    """"random" for random legal scenarios, a corpus name for its self-play scenarios in turn, or a file of them."""
    temperature: float = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""

    def match(self) -> MatchConfig:
        """The same as a match under the attack's rule."""
        shared = {name: value for name, value in vars(self).items() if name in MatchConfig.__dataclass_fields__}
        return MatchConfig(adversary=self.speaker, complementary=True, **shared)


@dataclass(frozen=True, kw_only=True)
class TransferSettings:
    """Where the sentences come from and when they are said."""

    source: str = ""
    """Run of an attack whose adversary's last sentences are collected."""
    sentence: str = ""
    """One fixed sentence instead, words separated by blanks."""
    min_advantage: int = 4
    """Points by which a collected sentence's adversary must have won."""
    max_sentences: int = 100
    """Keep at most this many collected sentences, the most frequent ones."""
    turn: int = PAPER_TURN
    """Utterances that must have been said before the sentence is."""

    def __post_init__(self) -> None:
        check(self, "max_sentences", self.max_sentences >= 1, "at least 1")
        check(self, "turn", self.turn >= 0, "at least 0")


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

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        """The adversary and the target; models compute on the device."""
        speaker, target = super().agents(device)
        return TransferAgent(speaker, self.sentences, self.turn), target


def run_rl(config: AttackConfig, path: Path, reporter: Reporter) -> Result:
    """Plays a trained adversary against the target."""
    require_negotiator(config.speaker, "--speaker")
    return run_match(ATTACK_RL, config, Roster(config.match()), path, reporter, f"RL attack on {config.target}")


def run_transfer(config: TransferConfig, path: Path, reporter: Reporter) -> Result:
    """Plugs sentences that won elsewhere into an ordinary speaker's dialogues."""
    settings = config.transfer
    sentences = transfer_sentences(settings, reporter)
    roster = TransferRoster(config.match(), sentences, settings.turn)
    return run_match(ATTACK_TRANSFER, config, roster, path, reporter, f"transfer attack on {config.target}")


def transfer_sentences(settings: TransferSettings, reporter: Reporter) -> tuple[str, ...]:
    """What a transfer attack plugs in.

    Raises:
        ConfigError: no source is named, or two (a preset may have named one of them), or none of its dialogues is good enough.
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
        sentences = last_sentences(rows, settings.min_advantage, settings.max_sentences)
    others = f", and {len(sentences) - 1} less frequent" if len(sentences) > 1 else ""
    reporter.say(f"to plug in: {sentences[0] if sentences else '(none)'}{others}")
    if not sentences:
        raise ConfigError(
            "no adversary's dialogue in the source is good enough to take a sentence from",
            where=settings.source,
            got=f"none won by {settings.min_advantage} points or more",
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


ATTACK_RL = match_job("attack-rl", AttackConfig, {"cheng2019": learned}, run_rl)
ATTACK_TRANSFER = match_job(
    "attack-transfer", TransferConfig, {"cheng2019": transfer_from_rl, "fixed": fixed_sentence}, run_transfer
)
