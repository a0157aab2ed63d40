"""Both sides of the game of replies as an RLlib multi-agent environment: one says a reply, the other says who wrote one.

Spaces, observations and scores are those of `envs/generation`. Seeds are made as in `env.py`, which says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from parley.engine.core.rllib.env_config import own_stream, require_known
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.seeds import Key, derive_seed, stream
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.generation.game import PERSON, ReplyGame, ReplyRules
from parley.envs.generation.reply_env import reply_space, require_examples, speaker_sees, speaker_space

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
_KEYS = ("vocabulary", "examples", "rules", "seed", "stream")


def listener_space(vocabulary: PairVocabulary, rules: ReplyRules) -> spaces.Dict:
    """What the discriminator sees: what the generator sees, and one reply with its length."""
    return spaces.Dict(
        {
            **speaker_space(vocabulary, rules).spaces,
            "reply": spaces.Box(0, len(vocabulary) - 1, (rules.max_words,), np.int64),
            "reply_length": spaces.Discrete(rules.max_words + 1),
        }
    )


class ReplyMultiAgentEnv(MultiAgentEnv):
    """The "generator" says one reply to a context; the "discriminator" sees the context and one reply, and says who wrote it.

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
        """Shows the next context to the generator.

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
        """Carries out the action of the one agent to act.

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
        told = {"key": game.examples[0].key, "is_recorded": bool(game.is_recorded_B[0]), "guess": int(game.guesses_B[0])}
        ended = dict.fromkeys((*self.possible_agents, "__all__"), over)
        infos = {agent: dict(told) if over else {} for agent in observations}
        rewards = dict(zip(self.possible_agents, scores, strict=True))
        return observations, rewards, ended, dict.fromkeys(ended, False), infos
