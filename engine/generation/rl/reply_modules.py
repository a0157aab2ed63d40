"""Generator, discriminator and critic as RLModules: the networks of `policies/` behind RLlib's interface, and the loss of each.

Columns of a training batch (B contexts, K turns, N words of a turn or of a source, T words of a reply and its end):
    generator       source (B, N), source_lengths (B,), words (B, T + 1) from `<s>` on, response_weights (B,),
                    advantages (B, T) of policy gradients, or forced (B,) of teacher forcing
    discriminator   context (B, K, N), lengths (B, K), replies (B, 2, T), reply_lengths (B, 2): the recorded one, then the other
    critic          context (B, K, N), lengths (B, K), replies (B, T), reply_lengths (B,), is_cut (B,), rewards (B, T); a linear
                    one encoded (B, H) instead of context and lengths

The file also holds the recorded pairs of a training split, and the game of replies as an RLlib multi-agent environment: one
side says a reply, the other decides whether a person wrote it. Spaces, observations and scores are those of `envs/generation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from torch import Tensor

from parley.engine.core.rllib.distributed_rollouts import own_stream, require_known
from parley.engine.core.rllib.reproducible import SeededLearner
from parley.engine.generation.rewards.rewards import (
    ReplyActions,
    RunningMean,
    action_nll,
    baseline_values,
    critic_loss,
    forcing_loss,
    policy_loss,
)
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.seeds import Key, derive_seed, stream
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import PairSplit
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.generation.game import PERSON, ReplyGame, ReplyRules
from parley.envs.generation.reply_env import reply_space, require_examples, speaker_sees, speaker_space
from parley.policies.core.checkpoint import eager
from parley.policies.core.response_weights import ResponseWeights
from parley.policies.generation.discriminator.batches import (
    ContextBatch,
    Critic,
    Discriminator,
    JudgedBatch,
    LinearCritic,
    load_discriminator,
)
from parley.policies.seq2seq.model import Exchanges, Sentences, Seq2Seq
from parley.policies.seq2seq.scoring import load_seq2seq


@dataclass
class ReplyWorld:
    """Recorded pairs.

    Args:
        pairs: of the training split, in the words of the generator.
        vocabulary: of the generator.
        max_words: words of a reply at most, `</s>` not counted.
        response_weights: of replies, by their tf-idf.
    """

    pairs: PairSplit
    vocabulary: PairVocabulary
    max_words: int
    response_weights: ResponseWeights
    _orders: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def pair(self, seed: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the word ids of an example's context and recorded reply; each pass has its own order.

        Args:
            seed: master seed.
            index: of the example, from 0.
        """
        epoch, position = divmod(index, len(self.pairs))
        if (seed, epoch) not in self._orders:
            self._orders = {(seed, epoch): stream(seed, "order of pairs", epoch).permutation(len(self.pairs))}
        source, reply = self.pairs.pairs[self._orders[seed, epoch][position]].tolist()
        return self.pairs.utterances[source], self.pairs.utterances[reply]

    @property
    def mean_words(self) -> float:
        """Return the mean words of a recorded reply, `</s>` counted."""
        return float(self.pairs.utterances.lengths[self.pairs.pairs[:, 1]].mean()) + 1


GENERATOR, DISCRIMINATOR = "generator", "discriminator"
_KEYS = ("vocabulary", "examples", "rules", "seed", "stream")


def listener_space(vocabulary: PairVocabulary, rules: ReplyRules) -> spaces.Dict:
    """Return the discriminator's observation space: the generator's, and one reply with its length."""
    return spaces.Dict(
        {
            **speaker_space(vocabulary, rules).spaces,
            "reply": spaces.Box(0, len(vocabulary) - 1, (rules.max_words,), np.int64),
            "reply_length": spaces.Discrete(rules.max_words + 1),
        }
    )


class ReplyMultiAgentEnv(MultiAgentEnv):
    """A game of two: the "generator" replies to a context, the "discriminator" guesses who wrote a shown reply.

    The generator's action is that of `parley/Reply-v1`. The discriminator's is `Discrete(2)`: 0 for a machine, 1 for a person;
    it sees either the generator's reply or the recorded one, both alike likely. It earns 1 when it is right; the generator
    earns 1 when its reply was shown and taken for a person's. Two steps are an episode.

    Args:
        config: RLlib's `env_config`, with the keys
            `vocabulary`: the `PairVocabulary` of both; required.
            `examples`: a sequence of `Example` to draw from; required.
            `rules`: a `ReplyRules`.
            `seed`: master seed, 0 by default.
            `stream`: integers that name one of several environments of the same seed, none by default.

    Raises:
        ConfigError: a key is missing or unknown, or there is no example.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        require_known(config, _KEYS)
        for key in ("vocabulary", "examples"):
            if config.get(key) is None:
                raise ConfigError(f"the environment needs {key}", where="env_config", fix=f'set "{key}"')
        require_examples("env_config", config["examples"])
        self.vocabulary, self.examples = config["vocabulary"], config["examples"]
        self.rules = config.get("rules") or ReplyRules()
        self._seed, self._stream = config.get("seed", 0), own_stream(config)
        self.possible_agents = [GENERATOR, DISCRIMINATOR]
        self.agents = [GENERATOR, DISCRIMINATOR]
        seen = speaker_space(self.vocabulary, self.rules), listener_space(self.vocabulary, self.rules)
        done: tuple[spaces.Space[Any], ...] = reply_space(self.vocabulary, self.rules), spaces.Discrete(PERSON + 1)
        self.observation_spaces = dict(zip(self.agents, seen, strict=True))
        self.action_spaces = dict(zip(self.agents, done, strict=True))
        self._last_seed = -1
        self._num_episodes = 0
        self._game: ReplyGame | None = None
        self._to_act: str | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show the next context to the generator.

        Args:
            seed: becomes part of the name of this episode and all later ones; the same seed given twice repeats none.
            options: ignored; RLlib's checker passes an empty one.
        """
        if seed is not None:
            self._last_seed = int(seed)
        name: tuple[Key, ...] = ("replies", *self._stream, self._last_seed, self._num_episodes)
        self._num_episodes += 1
        example = self.examples[int(stream(self._seed, "example", *name).integers(len(self.examples)))]
        self._game = ReplyGame([example], [derive_seed(self._seed, "episode", *name)], self.vocabulary, self.rules)
        self._to_act = GENERATOR
        return {GENERATOR: speaker_sees(self._game)}, {GENERATOR: {}}

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Carry out the action of the agent to act.

        Args:
            action_dict: {agent: action} of the agent in the last observations.

        Returns:
            Observations of the discriminator, or of both at the end; rewards of both, 0 before the end; terminated and
            truncated of both and "__all__" (never truncated); information, empty until the end, when it says `key`, whether
            the reply shown `is_recorded`, and the discriminator's `guess`.

        Raises:
            ScenarioError: the episode is over, another agent than the one to act is given, or its action lies outside its
                space.
        """
        game, agent = self._game, self._to_act
        if game is None or agent is None or set(action_dict) != {agent}:
            raise ScenarioError(
                "these are not the actions that the episode waits for",
                where="step of ReplyMultiAgentEnv",
                got=sorted(action_dict),
                fix="call reset() first" if agent is None else f"give an action of {agent!r} alone",
            )
        action = action_dict[agent]
        if not self.action_spaces[agent].contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see env.action_spaces")
        if agent == GENERATOR:
            game.say(np.asarray(action, dtype=np.int64)[None])
            self._to_act = DISCRIMINATOR
            return self._returned(game, {DISCRIMINATOR: self._shown(game)}, over=False)
        game.guess(np.array([action]))
        self._to_act = None
        return self._returned(game, {GENERATOR: speaker_sees(game), DISCRIMINATOR: self._shown(game)}, over=True)

    def _shown(self, game: ReplyGame) -> dict[str, Any]:
        (reply, *_), (length, *_) = game.shown()
        return {**speaker_sees(game), "reply": reply, "reply_length": length}

    def _returned(self, game: ReplyGame, observations: dict[str, Any], *, over: bool) -> tuple[Any, ...]:
        scores = [float(score[0]) if over else 0.0 for score in game.scores()]
        info = {"key": game.examples[0].key, "is_recorded": bool(game.is_recorded_B[0]), "guess": int(game.guesses_B[0])}
        ended = dict.fromkeys((*self.possible_agents, "__all__"), over)
        infos = {agent: dict(info) if over else {} for agent in observations}
        rewards = dict(zip(self.possible_agents, scores, strict=True))
        return observations, rewards, ended, dict.fromkeys(ended, False), infos


CRITIC = "critic"
"""The module that predicts rewards."""
ACCURACY, NATS = "accuracy", "nats"
"""Figures of an update: of the discriminator before it, and of a word that the generator chose, or is forced to choose."""


class GeneratorModule(TorchRLModule):
    """RLModule around a `Seq2Seq`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Load the model of the checkpoint."""
        self.net: Seq2Seq = load_seq2seq(fetched_model(self.model_config["checkpoint"]))

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Negative log-likelihoods (B, T) of the replies' words."""
        # Dropout belongs to recorded replies: those just said are scored as they were said.
        self.net.train("forced" in batch)
        reply = Sentences(batch["words"])
        nll_BT = action_nll(self.net, Exchanges(source_BN=batch["source"], lengths_B=batch["source_lengths"], reply=reply))
        self.net.eval()
        return {"nll": nll_BT}


class DiscriminatorModule(TorchRLModule):
    """RLModule around a `Discriminator`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Load the model of the checkpoint."""
        self.net: Discriminator = load_discriminator(fetched_model(self.model_config["checkpoint"]))

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Log-odds (B, 2) that a person wrote each reply."""
        self.net.train()
        size = len(batch["replies"])
        rows_R = torch.arange(size, device=batch["replies"].device).repeat_interleave(2)
        judged = JudgedBatch(
            contexts=ContextBatch(batch["context"], batch["lengths"]),
            rows_R=rows_R,
            words_RT=batch["replies"].flatten(0, 1),
            lengths_R=batch["reply_lengths"].flatten(),
            human_R=torch.tensor([1, 0], device=rows_R.device).repeat(size),
        )
        log_odds_R = self.net(judged)
        self.net.eval()
        return {"log_odds": log_odds_R.view(size, 2)}


class CriticModule(TorchRLModule):
    """RLModule around a `Critic`; model config: `checkpoint` of the discriminator whose words and sizes it has, `seed`."""

    def setup(self) -> None:
        """Draw the critic's weights; it shares none with the discriminator."""
        like = load_discriminator(fetched_model(self.model_config["checkpoint"]))
        self.net = Critic(like.vocabulary, like.sizes)
        self.net.initialise(torch.Generator().manual_seed(self.model_config["seed"]))
        self.net.eval()

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the expected rewards after no word of each reply, after one, and so on (B, T + 1)."""
        contexts = ContextBatch(batch["context"], batch["lengths"])
        return {"expected": self.net.prefixes(contexts, batch["replies"], batch["reply_lengths"])}


class LinearCriticModule(TorchRLModule):
    """RLModule around a `LinearCritic`; model config: `hidden` of the generator."""

    def setup(self) -> None:
        """Make a layer of zeros."""
        self.net = LinearCritic(self.model_config["hidden"])

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the expected reward in each context (B, 1)."""
        return {"expected": self.net(batch["encoded"])}


class ReplyLearner(SeededLearner):
    """Updates whichever modules a batch has rows for; the others, and what their optimisers know, stay as they are."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register Adam or SGD at the module's rate."""
        learning, parameters = self.config.learning, self.get_parameters(self._module[module_id])
        rate = {GENERATOR: learning.generator_rate, DISCRIMINATOR: learning.discriminator_rate, CRITIC: learning.critic_rate}
        kind = eager(torch.optim.Adam if learning.optimiser == "adam" else torch.optim.SGD)
        optimiser = kind(parameters, lr=rate[module_id])
        self.register_optimizer(module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=rate[module_id])

    def rate_setting(self, module: str) -> str:
        return f"learning.{module}_rate"

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Compute weighted likelihood, cross-entropy or squared error, by module."""
        if module_id == CRITIC:
            return self._critic_loss(batch, fwd_out["expected"])
        if module_id == GENERATOR:
            return self._generator_loss(batch, fwd_out["nll"])
        log_odds_B2 = fwd_out["log_odds"]
        signed_B2 = torch.stack([log_odds_B2[:, 0], -log_odds_B2[:, 1]], dim=1)
        # Of replies that it has not learned from yet; even odds count half.
        right_B2 = (signed_B2 > 0).float() + 0.5 * (signed_B2 == 0).float()
        self.metrics.log_value((DISCRIMINATOR, ACCURACY), right_B2.mean().item(), window=1)
        return F.softplus(-signed_B2).mean()

    def _generator_loss(self, batch: dict[str, Tensor], nll_BT: Tensor) -> Tensor:
        num_words = self.config.num_words
        self.metrics.log_value((GENERATOR, NATS), (nll_BT.sum() / (nll_BT > 0).sum().clamp(min=1)).item(), window=1)
        if "forced" in batch:
            return forcing_loss(nll_BT, batch["forced"] * batch["response_weights"], num_words)
        return policy_loss(self.config.rewards, nll_BT, batch["advantages"], batch["response_weights"], num_words)

    def _critic_loss(self, batch: dict[str, Tensor], expected_BT1: Tensor) -> Tensor:
        settings = self.config.rewards
        replies = ReplyActions(batch["replies"], batch["reply_lengths"], batch["is_cut"].bool())
        values_BT = baseline_values(settings.chosen_baseline, replies, RunningMean(), expected_BT1)
        return critic_loss(settings, values_BT, batch["rewards"], replies)
