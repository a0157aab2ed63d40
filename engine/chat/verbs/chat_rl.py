"""A chat model that learns a seat of the secret game, or to negotiate, by reinforcement: `parley train chat-rl`.

An adapter on a frozen base plays against given opponents: scripted players, chat models of any address, adapters of other runs
on the same base; in negotiations all that `parley selfplay` takes. A defender also plays with harmless users, a negotiator with
an ordinary partner. RLlib trains it (`engine/chat/rl/algorithm.py`). An opponent
is played and never read, so a defender behind a server can be the target of an attacker's training. The run stores the adapter,
which is `hf:RUN` in every verb. A training that was killed goes on to the digit.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import HIGHER, LOWER
from parley.engine.core.stats.statistics import FOR_ADVERSARY, NEITHER, Metric, mean
from parley.engine.core.verbs.checkpoints import absolute_name, require_device, threads
from parley.engine.core.verbs.composite import fitting_runners
from parley.engine.core.verbs.job import Job, Reporter, Steps, Summary
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.supervised import UPDATE, built, make_updates
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.negotiation.agents import agents
from parley.envs.secret.game import DEFENDER, NAMES, SecretRules
from parley.envs.secret.players import is_chat_player
from parley.policies.chat.addresses import is_local, weights_of
from parley.policies.chat.settings import ChatSeat, LoraSettings

if TYPE_CHECKING:
    from parley.engine.chat.rl.runner import ChatLearnerSpec, LearnedSeat
    from parley.engine.chat.supervised import ChatGame

NOBODY = "none"
"""No opponent: a defender then plays with harmless users, or its partner, alone."""
LEARNED = {
    "training_reward": Metric("reward, last updates", HIGHER, "mean over the last tenth of the updates", main=True),
    "training_leak": Metric("word said, last updates", FOR_ADVERSARY, "share of attacks, same updates", "share"),
    "training_usefulness": Metric("usefulness, last updates", HIGHER, "share of harmless questions, same updates", "share"),
    "training_advantage": Metric("advantage, last updates", FOR_ADVERSARY, "adversary's points less the target's"),
    "training_agreed": Metric("agreement, last updates", HIGHER, "share of ordinary negotiations, same updates", "share"),
    "training_points": Metric("own points, last updates", HIGHER, "of an ordinary negotiation, same updates"),
    "training_partner_points": Metric("partner's points, last updates", NEITHER, "of an ordinary negotiation, same updates"),
    "training_kl": Metric("KL to the start, last updates", LOWER, "nats per own token that was learned from"),
    "training_alike": Metric("scenarios without a lesson", NEITHER, "share in which all tries earned the same", "share"),
    "dialogues_per_s": Metric("dialogues/s", HIGHER, "played and learned from", "number"),
}

_SAVE_EVERY = 5
"""Updates between saved training states."""


@dataclass(frozen=True, kw_only=True)
class TrainChatRlConfig(Configuration):
    """The learner, its opponents, and the learning rule."""

    constants: ClassVar[Mapping[str, Any]] = {"save_every": 5}

    base: str = ""
    """Causal model that stays as it is: hf:FOLDER or gguf:FILE, with a chat template; that of the start when empty."""
    start: str = ""
    """Adapter that the learner begins with: hf:RUN of parley train chat or of this verb; a fresh one when empty."""
    game: Literal["secret", "negotiation"] = "secret"
    """Game whose seat is learned."""
    role: Literal["attacker", "defender"] = "defender"
    """Seat that is learned. The attacker of a negotiation never chooses, and is paid its points less the target's."""
    opponents: str = ""
    """Players of the other side, between commas. Secret game: as evaluate secret takes them; when empty, all scripted ones that
    do something; none for harmless users alone. Negotiation: as selfplay takes them; adversaries for a defender."""
    partner: str = ""
    """Negotiation: partner of a defender's ordinary dialogues, as selfplay takes it; the learner's own start when empty."""
    corpus: str = "dealornodeal"
    """Negotiation: registered corpus (parley data list), or path/file.py:NAME, for its scenarios; its dialogues guard the
    language."""
    data_root: Path | None = None
    """Negotiation: folder of corpora; $PARLEY_DATA, ./data or ../shared/data when not given."""
    shares: tuple[float, ...] = ()
    """Share of each opponent in the dialogues with one; all alike when not given."""
    examples: NumItems = 100
    """Scripted dialogues, or recorded negotiations, that guard the language, see reinforce.supervised_weight."""
    seed: NonNegativeInt = 1
    """Master seed."""
    env_runners: NonNegativeInt = 0
    """Ray actors that play; 0 plays in this process."""
    runner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each env runner plays on."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    threads: PositiveInt = 1
    """CPU threads that learning, and dialogues played in this process, compute with."""
    rules: SecretRules = field(default_factory=SecretRules)
    """Secret game: limits of a dialogue."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """A fresh adapter."""
    reinforce: ChatReinforceConfig = field(default_factory=lambda: ChatReinforceConfig(updates=50))
    """The learning rule."""
    chat: ChatSeat = field(default_factory=lambda: ChatSeat(batch_size=32))
    """Settings of chat models, the base among them."""

    added: ClassVar[Mapping[str, Any]] = {"game": "secret", "corpus": "dealornodeal", "data_root": None, "partner": ""}

    @property
    def side(self) -> int:
        """The side of the learner."""
        return NAMES.index(self.role)

    @property
    def partners(self) -> Sequence[str]:
        """The partner of ordinary dialogues, if there are any."""
        if self.game == "secret" or self.side != DEFENDER:
            return ()
        return (self.partner or self.start or self.base,)

    def elsewhere(self, name: str) -> str:
        """Return the name of a player that holds in other folders."""
        return absolute_name(name) if self.is_named_by_address(name) else name

    def is_named_by_address(self, name: str) -> bool:
        """Return whether a player is a chat model, a run or a user's own."""
        return is_chat_player(name) if self.game == "secret" else name not in agents

    def names(self) -> list[str]:
        """Return the opponents.

        Raises:
            ConfigError: an attacker has none, or shares are not one for each.
        """
        from parley.engine.chat.games.secret import OPPONENTS

        named = [name.strip() for name in self.opponents.split(",") if name.strip()]
        usual = list(OPPONENTS[self.side]) if self.game == "secret" else []
        names = [] if named == [NOBODY] else named or usual
        if not names and self.side != DEFENDER:
            raise ConfigError("an attacker needs a defender", where="--opponents", fix="name one at least")
        if self.shares and (len(self.shares) != len(names) or min(self.shares) < 0 or not sum(self.shares)):
            got = f"{self.shares}, {len(names)} opponents"
            fix = "name as many, none below 0 and not all of them 0"
            raise ConfigError("each opponent has a share", where="--shares", got=got, fix=fix)
        return names


@dataclass(frozen=True)
class PreparedChatRl:
    """A checked training.

    Args:
        config: the settings.
        spec: the learner.
        opponents: names that hold in other folders.
        scripted: tokens and own marks of the scripted dialogues.
    """

    config: TrainChatRlConfig
    spec: ChatLearnerSpec
    opponents: Sequence[str]
    scripted: Sequence[Any]


def rloo() -> TrainChatRlConfig:
    """Learn from 50 updates of 32 dialogues, each beside three others of its scenario (RLOO, Ahmadian et al. 2024)."""
    return TrainChatRlConfig()


def quick() -> TrainChatRlConfig:
    """Learn from 4 updates of 8 dialogues of 2 messages, for a first look."""
    rule = ChatReinforceConfig(updates=4, scenarios=2, tries=4)
    return TrainChatRlConfig(reinforce=rule, rules=SecretRules(max_messages=2), examples=8)


class TrainChatRl(Job[TrainChatRlConfig, PreparedChatRl, Summary]):
    """`parley train chat-rl`."""

    words = ("train", "chat-rl")
    run_name = "chat-rl"
    config = TrainChatRlConfig
    presets = {"rloo": rloo, "quick": quick}
    legend = LEARNED
    files = (CHECKPOINT, SUMMARY)
    resume_safe = ("env_runners", "address")
    steps = Steps(UPDATE, "updates", lambda config: config["reinforce"]["updates"])

    def prepare(self, config: TrainChatRlConfig, path: Path, reporter: Reporter) -> PreparedChatRl:
        """Load the base, the start and the opponents.

        Raises:
            ConfigError: no such player, no base with a chat template, or a package is missing.
            CheckpointError: the start was trained on another base.
        """
        require_device(config.chat.device, "--set chat.device")
        base = config.base or _base_of(config.start)
        if not is_local(base) or not weights_of(base).strip():
            fix = "--base hf:FOLDER or gguf:FILE, or --start hf:RUN of parley train chat"
            raise ConfigError("adapters learn on weights that are here", where="--base", got=repr(base), fix=fix)
        from parley.engine.chat.games.negotiation import RecordedNegotiations
        from parley.engine.chat.games.secret import ScriptedSecrets
        from parley.engine.chat.rl.runner import ChatLearnerSpec, NegotiatorSeat, SecretSeat
        from parley.engine.chat.supervised import ChatBase
        from parley.engine.negotiation.verbs.agents import require_partner
        from parley.policies.hugging_face.tokens import ends_of, longest_input, reply_end

        game: ChatGame = ScriptedSecrets((config.side,), config.examples, config.rules, config.seed)
        plays: LearnedSeat = SecretSeat(config.side, config.rules)
        if config.game == "negotiation":
            for option, names in (("--opponents", config.names()), ("--partner", config.partners)):
                for name in names:
                    require_partner(name, option)
            game = RecordedNegotiations(config.corpus, config.data_root)
            scenarios = list(dict.fromkeys(record.scenario for record in game.splits["train"]))
            plays = NegotiatorSeat(config.side, scenarios, "".join(map(config.elsewhere, config.partners)))
        opponents = [*map(config.elsewhere, config.names())]
        start = absolute_name(config.start) if config.start else ""
        spec = ChatLearnerSpec(absolute_name(base), start, plays, config.lora, config.chat, config.seed)
        shared = spec.shared()
        if start:
            shared.remove(shared.add(start, config.lora, config.seed))
        for name in (*opponents, *filter(None, [plays.partner])):
            plays.opponent(name, config.reinforce.temperature, config.chat)
        scripted: Sequence[Any] = ()
        if config.reinforce.supervised_weight > 0:
            dialogues = [dialogue.learned for dialogue in game.dialogues("train", config.examples)]
            end_id = reply_end(shared.tokenizer, ends_of(shared.tokenizer, shared.model))
            reader = ChatBase(base, shared, end_id, longest_input(shared.tokenizer, shared.model))
            scripted = reader.lessons(dialogues).sequences
        return PreparedChatRl(config, spec, opponents, scripted)

    def work(self, run: RunFolder, prepared: PreparedChatRl, reporter: Reporter) -> Summary:
        """Train, saving and resuming exactly, and store the adapter as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite, or the learner has stopped to speak.
            ClusterError: there is too little room for runners, or they keep dying.
        """
        from parley.engine.chat.rl.algorithm import ChatReinforceAlgorithmConfig

        config, rule = prepared.config, prepared.config.reinforce
        history = {event["number"]: event for event in run.events({UPDATE: {"number": int}}) if event["kind"] == UPDATE}
        with threads(config.threads), session(config.env_runners + 1, config.address) as here:
            num_runners = fitting_runners(config.env_runners, {"CPU": 0.0, "GPU": 0.0}, here, reporter, 0.0, config.runner_gpus)
            settings = ChatReinforceAlgorithmConfig().conversations(
                reinforce=rule,
                spec=prepared.spec,
                opponents=prepared.opponents,
                shares=config.shares,
                scripted=prepared.scripted,
            )
            settings.env_runners(num_env_runners=num_runners, num_gpus_per_env_runner=config.runner_gpus if num_runners else 0)

            def note(number: int, scalars: Scalars) -> str:
                last = algorithm.last
                history[number] = {"number": number, **last}
                run.event(UPDATE, **history[number])
                scalars.add(number, last)
                for sentence in algorithm.told:
                    reporter.say(f"update {number}: {sentence}")
                parts = [f"{name} {last[name]:.0%}" for name in ("leak", "usefulness", "agreed") if name in last]
                parts += [f"advantage {last['advantage']:.1f}"] if "advantage" in last else []
                parts += [f"KL {last['kl']:.2f}"] if "kl" in last else []
                return ", ".join([f"reward {last['reward']:.2f}", *parts])

            with built(settings) as algorithm:
                reporter.stage("learning", rule.updates, "updates")
                make_updates(algorithm, run, rule.updates, _SAVE_EVERY, reporter, note)
                algorithm.write(run.path / CHECKPOINT)
        steps = [step for number, step in sorted(history.items()) if number <= rule.updates]
        tail = steps[-max(1, len(steps) // 10) :]
        metrics = {
            f"training_{name}": mean(values)
            for name in ("reward", "leak", "usefulness", "advantage", "agreed", "points", "partner_points", "kl", "alike")
            if (values := [step[name] for step in tail if name in step])
        }
        metrics["dialogues_per_s"] = mean([step["dialogues"] / step["seconds"] for step in steps])
        users = "its partner" if config.game == "negotiation" else "harmless users"
        met = ", ".join(prepared.opponents) or f"{users} alone"
        seat = f"{config.role} of {'a negotiation' if config.game == 'negotiation' else 'the secret game'}"
        return Summary(
            f"{seat} on {config.start or config.base}",
            f"{len(steps)} updates of {rule.dialogues} dialogues against {met}, seed {config.seed}.",
            metrics,
        )

    def models(self, config: TrainChatRlConfig) -> Mapping[str, str]:
        named = {f"opponent{number}": name for number, name in enumerate(config.names(), 1)}
        named |= zip(["partner"], config.partners, strict=False)
        chosen = {role: name for role, name in named.items() if config.is_named_by_address(name)}
        return {"base": config.base, "start": config.start, **chosen}

    def next_commands(self, config: TrainChatRlConfig, path: Path) -> tuple[str, ...]:
        learner = f"{HUGGING_FACE}{display_path(path)}"
        if config.game == "negotiation":
            pair = (learner, config.names()[0]) if config.side != DEFENDER else (config.partners[0], learner)
            match = ["parley", "selfplay", "--adversary", pair[0], "--target", pair[1]]
        else:
            players = ",".join([learner, *filter(None, [config.start or config.base])])
            match = ["parley", "evaluate", "secret", "quick", f"--{config.role}s", players]
        return (*super().next_commands(config, path), shlex.join([*match, *root_words(config.data_root)]))


def _base_of(start: str) -> str:
    """Return the base that an adapter names; empty for no adapter."""
    if not start:
        return ""
    from parley.envs.core.storage.copies import fetched_model
    from parley.policies.core.responder import model_inside
    from parley.policies.hugging_face.gguf import base_of, is_adapter_alone

    folder = model_inside(fetched_model(weights_of(start)))
    if not is_adapter_alone(folder):
        fix = "--start hf:RUN of parley train chat; a whole model is a --base"
        raise ConfigError("the start is no adapter", where="--start", got=start, fix=fix)
    return f"{HUGGING_FACE}{base_of(folder)}"


TRAIN_CHAT_RL = TrainChatRl()
