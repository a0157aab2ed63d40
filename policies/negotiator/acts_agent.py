"""A policy over dialogue acts, trained by any library, as an agent that is attacked, hardened, rated and played."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.play import Utterances
from parley.envs.negotiation.acts import ActsSeat
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import SideView
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

ActChooser = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Features (n, F) float32 and masks (n, A) bool to acts (n,) int64."""
LEGAL_FLOOR = -1e9


def agent_of(policy: Any, vocabulary: Vocabulary | None = None, name: str | None = None) -> ActsAgent:
    """Return the agent of a policy that was trained on `parley/NegotiationActs-v1` or one of its forms.

    The policy is one of

    * a model with `predict(observation, deterministic=True)`, as of Stable-Baselines3; with `action_masks` if it takes them;
    * a module of RLlib (`forward_inference`), such as `RLModule.from_checkpoint(FOLDER)` or `algorithm.get_module()`;
    * a torch module: flat observations (n, F + A) float32 to logits (n, A), or a tuple that begins with them;
    * a function of one flat observation (F + A,) float32 and its mask (A,) bool to an act.

    It gets the observations that it was trained on: the `Dict` of masked observations if its `observation_space` is one, or
    if it is RLlib's action-masking module; else flat ones. The likeliest legal act is played, so an agent draws nothing.

    Args:
        policy: see above; a torch or RLlib module is set to evaluation and stays on its device.
        vocabulary: the words to read and say, of any game with acts; None for those of the scripted bargainers.
        name: the name in reports; None for the class or function.

    Raises:
        ConfigError: it is none of these, its `observation_space` has another length, or it keeps a state between steps.
        DataError: the vocabulary lacks words of the acts.
    """
    words = vocabulary or bargainer_vocabulary()
    seat = ActsSeat(words)
    choose, observed = _chooser(policy, seat.acts.num_features)
    size = seat.acts.num_features + seat.num_actions
    if isinstance(observed, spaces.Box) and observed.shape != (size,):
        fix = f"train it on parley/NegotiationActs-v1 of the game {words.game!r}, or give the vocabulary of its game"
        raise ConfigError("the policy sees another game", where="agent_of", got=f"{observed.shape}, not {(size,)}", fix=fix)
    return ActsAgent(choose, words, name or str(getattr(policy, "__name__", type(policy).__name__)))


def _chooser(policy: Any, num_features: int) -> tuple[ActChooser, spaces.Space[Any] | None]:
    """Return the function that chooses acts, and the observation space of the policy if it names one."""
    observed = getattr(policy, "observation_space_with_mask", None) or getattr(policy, "observation_space", None)

    def seen_by(flat: np.ndarray, convert: Callable[[np.ndarray], Any]) -> Any:
        if not isinstance(observed, spaces.Dict):
            return convert(flat)
        mask = flat[:, num_features:].astype(np.int8)
        return {"observations": convert(flat[:, :num_features]), "action_mask": convert(mask)}

    if callable(getattr(policy, "predict", None)):
        takes_masks = "action_masks" in inspect.signature(policy.predict).parameters

        def predicted(flat: np.ndarray, mask: np.ndarray) -> np.ndarray:
            given = {"action_masks": mask} if takes_masks else {}
            return np.asarray(policy.predict(seen_by(flat, np.asarray), deterministic=True, **given)[0], dtype=np.int64)

        return predicted, observed
    if callable(getattr(policy, "forward_inference", None)):
        if policy.is_stateful():
            fix = "train one without a recurrent layer; the features hold the state of the talk"
            raise ConfigError("the policy keeps a state between steps", where="agent_of", got=type(policy).__name__, fix=fix)
        policy.eval()

        def inferred(flat: np.ndarray, mask: np.ndarray) -> np.ndarray:
            return _likeliest(policy.forward_inference({"obs": seen_by(flat, _on(policy))})["action_dist_inputs"], mask)

        return inferred, observed
    if isinstance(policy, torch.nn.Module):
        policy.eval()
        return lambda flat, mask: _likeliest(policy(seen_by(flat, _on(policy))), mask), observed
    if callable(policy):
        return lambda flat, mask: np.array([policy(row, legal) for row, legal in zip(flat, mask, strict=True)]), observed
    fix = "give a model with predict, a torch or RLlib module, or a function of an observation and a mask"
    raise ConfigError("this is no policy over dialogue acts", where="agent_of", got=repr(policy)[:80], fix=fix)


def _on(module: torch.nn.Module) -> Callable[[np.ndarray], torch.Tensor]:
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    return lambda values: torch.as_tensor(values, device=device)


def _likeliest(output: Any, mask: np.ndarray) -> np.ndarray:
    logits = output[0] if isinstance(output, tuple | list) else output
    values: np.ndarray = logits.detach().float().cpu().numpy()
    if values.shape != mask.shape or np.isnan(values).any():
        got = f"{values.shape}" + (" with nan" if np.isnan(values).any() else "")
        raise ModelError("a policy gives one logit for each act", where="agent_of", got=got, fix=f"give {mask.shape} numbers")
    chosen: np.ndarray = np.where(mask, np.maximum(values, LEGAL_FLOOR), -np.inf).argmax(1)
    return chosen


class ActsAgent:
    """An agent of the negotiation game that plays dialogue acts.

    Args:
        choose: chooses acts for n observations.
        vocabulary: the words that it reads and says.
        name: the name in reports.
    """

    def __init__(self, choose: ActChooser, vocabulary: Vocabulary, name: str) -> None:
        self.choose, self.vocabulary, self.name = choose, vocabulary, name

    def join(self, view: SideView) -> _ActsSession:
        """Join one side of a batch of dialogues."""
        return _ActsSession(self, view)


class _ActsSession:
    def __init__(self, agent: ActsAgent, view: SideView) -> None:
        self._agent, self._view = agent, view
        self._seats = [ActsSeat(agent.vocabulary) for _ in range(len(view))]
        for seat, context in zip(self._seats, view.contexts, strict=True):
            seat.begin(context)

    def speak(self, rows: np.ndarray) -> Utterances:
        with torch.no_grad():
            seats = self._read(rows)
            observations, masks = np.stack([seat.flat() for seat in seats]), np.stack([seat.acts.mask() for seat in seats])
            acts = np.asarray(self._agent.choose(observations, masks))
        if (
            acts.shape != rows.shape
            or not np.issubdtype(acts.dtype, np.integer)
            or (acts < 0).any()
            or (acts >= masks.shape[1]).any()
        ):
            what, fix = "a policy gives one act for each observation", f"whole numbers from 0 to {masks.shape[1] - 1}"
            raise ModelError(what, where=self._agent.name, got=repr(acts)[:80], fix=fix)
        draws = [self._view.generator(row) for row in rows.tolist()]
        return Utterances.of([seat.say(act, rng) for seat, act, rng in zip(seats, acts.tolist(), draws, strict=True)])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.array([seat.acts.selection() for seat in self._read(rows)], dtype=np.int64)

    def _read(self, rows: np.ndarray) -> list[ActsSeat]:
        view = self._view
        for row in rows.tolist():
            self._seats[row].read(view.tokens[row], view.num_tokens[row])
        return [self._seats[row] for row in rows.tolist()]
