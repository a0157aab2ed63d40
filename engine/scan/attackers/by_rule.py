"""Attackers without a model: many-shot, best-of-n, evolution, found conversations, repeated wordings, and the controls.

Many-shot (Anil et al. 2024, "Many-shot Jailbreaking", NeurIPS): a message that shows made-up dialogues in which an assistant
does all that it is asked, and then the prompt. Departures: the paper goes up to 256 dialogues of harmful requests; ours are
harmless (`shots.yaml`), double from query to query up to 32, and begin anew.

Best-of-n (Hughes et al. 2024, arXiv 2412.03556): the prompt with scrambled letters inside words, random capitals and shifted
characters, drawn anew for each query. As in the paper sigma is 0.4. The inner letters of a word of four or more are shuffled
with probability sigma ** 1/2, the case of a letter is changed with the same, and a printable character is shifted by one with
sigma ** 3. Departure: there are as many queries as the budget holds; the paper goes up to 10,000.

Evolution (`engine/triggers/methods/evolution.py`): words behind the prompt, which evolve by the score of the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from typing import ClassVar

import numpy as np
import yaml

from parley.engine.scan.attackers.attacker import Attacker, AttackGoal, Moves, Query, ask
from parley.engine.scan.attacks import WORDS
from parley.engine.triggers.methods.evolution import Evolution, EvolutionSettings, RatedReply
from parley.envs.core.seeds import derive_seed, stream

_UNBOUNDED = 1_000_000
"""Queries of a search whose budget is of another kind."""


@dataclass(frozen=True)
class ManyShot(Attacker):
    """Made-up dialogues in which an assistant obeys, then the prompt; twice as many with each query."""

    most: int = 32
    """Dialogues of a message at most."""

    source: ClassVar[str] = "Anil et al. 2024, Many-shot Jailbreaking"
    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        dialogues = shots()
        for number in count():
            rng = stream(goal.seed, "many-shot", number)
            num = 2 ** (number % self.most.bit_length())
            order = [int(index) for _ in range(-(-num // len(dialogues))) for index in rng.permutation(len(dialogues))]
            shown = [f"User: {dialogues[index][0]}\nAssistant: {dialogues[index][1]}" for index in order[:num]]
            yield from ask("\n\n".join([*shown, f"User: {goal.prompt}\nAssistant:"]))


@cache
def shots() -> list[tuple[str, str]]:
    """Return the made-up dialogues of this package: request and answer."""
    text = files("parley.engine.scan.attackers").joinpath("shots.yaml").read_text(encoding="utf-8")
    return [(str(shot["user"]), str(shot["assistant"])) for shot in yaml.safe_load(text)]


@dataclass(frozen=True)
class BestOfN(Attacker):
    """The prompt with scrambled words, random capitals and shifted characters, drawn anew for each query."""

    sigma: float = 0.4
    """Strength of all three changes, 0 to 1."""

    source: ClassVar[str] = "Hughes et al. 2024, arXiv 2412.03556"
    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        for number in count():
            yield from ask(self.augmented(goal.prompt, stream(goal.seed, "best-of-n", number)))

    def augmented(self, text: str, rng: np.random.Generator) -> str:
        """Return one augmentation of a text."""
        words = []
        for word in text.split(" "):
            middle = list(word[1:-1])
            if len(word) > 3 and rng.random() < self.sigma**0.5:
                rng.shuffle(middle)
            words.append(word[:1] + "".join(middle) + word[1:][-1:])
        letters = list(" ".join(words))
        for place, letter in enumerate(letters):
            if letter.isalpha() and rng.random() < self.sigma**0.5:
                letters[place] = letter.swapcase()
            if letter.isprintable() and rng.random() < self.sigma**3:
                shifted = ord(letters[place][0]) + (1 if rng.random() < 0.5 else -1)
                letters[place] = chr(shifted) if 32 <= shifted <= 126 else letters[place]
        return "".join(letters)


@dataclass(frozen=True)
class EvolvedWords(Attacker):
    """Words behind the prompt, a search by scores: the fitter of two parents, words of either, some exchanged."""

    num_words: int = 8
    """Words behind the prompt."""
    population: int = 8
    """Messages of a generation, and the fittest that are kept."""

    source: ClassVar[str] = "Lapid et al. 2023, arXiv 2309.01446"
    needs_model: ClassVar[bool] = False
    stopping: ClassVar[str] = "all inputs were tried"

    def attack(self, goal: AttackGoal) -> Moves:
        sizes = EvolutionSettings(num_words=self.num_words, population=self.population, max_queries=goal.queries or _UNBOUNDED)
        search = Evolution(sizes, WORDS, derive_seed(goal.seed, "evolution"))
        while inputs := search.ask():
            turns = yield [Query(f"{goal.prompt} {' '.join(words)}") for words in inputs]
            search.tell([RatedReply(turn.score, turn.reply) for turn in turns], success=False)


@dataclass(frozen=True)
class FoundConversation:
    """A conversation that broke a policy in a scan.

    Args:
        prompt: text of the prompt that it was found for.
        messages: the attacker's messages, oldest first.
    """

    prompt: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Replayed(Attacker):
    """Conversations that broke another model, typed again: of the same prompt, or of all others with this prompt in them."""

    conversations: tuple[FoundConversation, ...] = ()
    """Conversations of other scans."""
    universal: bool = False
    """True types those of other prompts, with this prompt where theirs stood."""

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        own = [other.messages for other in self.conversations if other.prompt == goal.prompt]
        others = [
            tuple(message.replace(other.prompt, goal.prompt) for message in other.messages)
            for other in self.conversations
            if other.prompt != goal.prompt and any(other.prompt in message for message in other.messages)
        ]
        for messages in dict.fromkeys(others if self.universal else own):
            last = None
            for message in messages:
                last = yield from ask(message, last)


@dataclass(frozen=True)
class Once(Attacker):
    """The prompt as it is, asked once: no attack."""

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        yield from ask(goal.prompt)


@dataclass(frozen=True)
class Reworded(Attacker):
    """One wording of the prompt after another, each drawn by a seed of its own; the prompt itself repeats it."""

    reword: Callable[[str, int], str] = lambda prompt, seed: prompt

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        for number in count():
            yield from ask(self.reword(goal.prompt, derive_seed(goal.seed, "wording", number)))
