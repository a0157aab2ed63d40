"""Processor seconds until a trigger search has a loss that other tools have after so many steps.

Pairs of a harmless request and a reply, SmolLM2-135M-Instruct (`make real-models`), 20 searched tokens behind the request, one
thread. A peer is nanoGCG or TROPT itself in an environment of its own (`peer_search.py` says how that is made); without
either, nanoGCG's way rebuilt plainly (`plain_gcg.py`). Its best text after so many steps is read by Parley in float32 as it is
typed: that loss is what our search has to reach. Ours begins at the same text, has lists of the same size and as many
candidates, takes none that would be read otherwise when it is typed, and goes on until the slowest peer's seconds are over.

    python -m benchmarks.time_to_trigger --nanogcg nano/bin/python --tropt tropt/bin/python --ours exact,draft

Each search of a pair is a line of the file as soon as it ends, and is not run again; so hours of searches can be interrupted.
With --quick one pair, one step, nothing but the plain peer, and no file. `--ours` names ways of `WAYS`.

    ratio             median over pairs and peers of the peer's seconds over ours, of the first way; where ours never gets
                      there, the seconds are all that it had, and "reached" counts it as missed
    ways              of each way: that median, the worst one, the share reached, the median difference of the last losses (ours
                      less the peer's) when both have had the peer's seconds, the share of replies that begin with the target
                      when the best text is typed ("said"), and of steps, every fifth checked, whose choice is the exact one's
    identical         the loss of every best text of ours, read as it is typed, is within 1e-4 of the one that its search has
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.measure import BenchmarkOptions, Result, run
from benchmarks.plain_gcg import PlainGcg
from benchmarks.searched_chat import SEED, chat, drawn_words
from parley.engine.triggers.methods.gcg import Gcg
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.scorer import CausalScorer
from parley.engine.triggers.scorers.scorer import BestInput, Swaps
from parley.engine.triggers.searches.attack import TriggerSearch
from parley.engine.triggers.searches.batch import tasks_of
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.policies.chat.model import Message
from parley.policies.hugging_face.models import read_model
from parley.policies.hugging_face.tokens import InputRules
from parley.policies.hugging_face.victims import HuggingFaceCausal

PAIRS = (
    ("What is the capital of France?", "The capital of France is Rome."),
    ("Is water dry?", "Yes, water is dry."),
    ("What is two plus two?", "Two plus two is five."),
    ("Write a line about the sea.", "The sea is full of chairs."),
    ("Who wrote Hamlet?", "Hamlet was written by a cat."),
    ("Name a fruit.", "A lamp is a fruit."),
    ("How many days has a week?", "A week has nine days."),
    ("What colour is the sky?", "The sky is green today."),
    ("Tell me a joke.", "I only speak about trains."),
    ("What do cows drink?", "Cows drink coffee at noon."),
    ("Where do fish live?", "Fish live in tall trees."),
    ("What is the largest planet?", "The largest planet is the Moon."),
    ("Give me a recipe for tea.", "Put a shoe in the pot."),
    ("What is snow made of?", "Snow is made of sugar."),
    ("Recommend a book.", "Read the phone book twice."),
    ("How do I learn to swim?", "Ask a stone to teach you."),
    ("What comes after Monday?", "After Monday comes Friday."),
    ("Describe a horse.", "A horse has six wheels."),
    ("What is the opposite of hot?", "The opposite of hot is blue."),
    ("Say good morning.", "Good night, old piano."),
)
"""Requests and replies that do no harm."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    "exact": {},
    "screened": {"screening": True},
    "draft": {"draft": "10"},
    "buffer": {"buffer": 8},
    "momentum": {"momentum": 0.6},
    "narrow": {"candidates": 32},
    "narrow-screened": {"candidates": 32, "screening": True},
    "narrow-buffer": {"candidates": 32, "buffer": 8},
    "short-lists": {"words_per_position": 64},
}
"""Settings of our search by name; candidates are the peers' where not named."""
PLAIN, LENGTH, WORDS = "plain", 20, 256
CHECKED = 5
"""Of so many steps one is also made by the exact search, off the clock."""
MOST_DIFFERENCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Time until a loss that other tools reach."""

    nanogcg: str = ""
    """Interpreter of an environment with nanoGCG."""
    tropt: str = ""
    """Interpreter of an environment with TROPT."""
    ours: str = "exact"
    """Ways to search, with commas between them."""
    pairs: int = len(PAIRS)
    """The first of the pairs."""
    steps: int = 50
    """Of the peers."""
    candidates: int = 128
    """Of a step."""
    file: Path = Path("runs/time_to_trigger.jsonl")
    """Searches that have ended."""


@dataclass(frozen=True)
class SearchLine:
    """A search of a pair.

    Args:
        key: pair, contestant, steps of the peers and candidates.
        seconds, losses: of each step, the processor's since the beginning, and the least loss so far.
        text: the best input.
        typed: loss of that text as it is read when it is typed.
        said: whether the reply to it begins with the target.
        exact: whether checked steps chose as the exact search did.
    """

    key: list[Any]
    seconds: list[float]
    losses: list[float]
    text: str
    typed: float
    said: bool
    exact: list[bool]

    def reached(self, loss: float) -> float | None:
        """Return the seconds until a loss; None if it never was as low."""
        return next((second for second, low in zip(self.seconds, self.losses, strict=True) if low <= loss), None)

    def loss_at(self, seconds: float) -> float:
        """Return the least loss by that time."""
        return min((low for second, low in zip(self.seconds, self.losses, strict=True) if second <= seconds), default=torch.inf)


class _OverError(Exception):
    """Time is over."""


class Arena:
    """One pair, in the model that is searched.

    Args:
        victim: the model behind the request.
        target_T: tokens of the reply.
        start_N: tokens that every search begins at.
        number: of the pair.
        options: of the benchmark.
    """

    def __init__(self, victim: Any, target_T: Tensor, start_N: Tensor, number: int, options: Options) -> None:
        self.victim, self.target_T, self.start_N, self.number, self.options = victim, target_T, start_N, number, options

    def line(self, name: str, steps: Sequence[tuple[float, float, Any]], exact: Sequence[bool] = ()) -> SearchLine:
        """Return the line of a search; its inputs are texts, or tokens where the model has no texts."""
        least = min(steps, key=lambda step: step[1])[2]
        losses = [min(loss for _, loss, _ in steps[: number + 1]) for number in range(len(steps))]
        key = [self.number, name, self.options.steps, self.options.candidates]
        typed, said = self.read(least)
        return SearchLine(key, [second for second, _, _ in steps], losses, str(least), typed, said, list(exact))

    @torch.no_grad()
    def read(self, best: Any) -> tuple[float, bool]:
        """Return the mean nats of the target behind an input as it is typed, and whether it is the likeliest reply."""
        if isinstance(best, str):
            ids = self.victim.read_text(best)
        else:
            before, places = self.victim.prompt(self.target_T)
            ids = list(before)
            for place, word in zip(places, best, strict=True):
                ids[place] = word
        read_1S = torch.tensor([[*ids, *self.target_T.tolist()]])
        logits_TV = self.victim.model(input_ids=read_1S).logits[0, -len(self.target_T) - 1 : -1]
        nats = torch.nn.functional.cross_entropy(logits_TV, self.target_T)
        return float(nats), bool((logits_TV.argmax(-1) == self.target_T).all())

    def plain(self) -> SearchLine:
        """Search in nanoGCG's way, rebuilt plainly; typed texts are not looked at."""
        before, places = self.victim.prompt(self.target_T)
        plain = PlainGcg(self.victim.model, before[: places[0]], before[places[-1] + 1 :], self.target_T)
        words_N, steps, began = self.start_N.clone(), list[tuple[float, float, Any]](), time.process_time()
        for number in range(self.options.steps):
            slopes_NV = plain.slopes(words_N).masked_fill_(~self.victim.searchable_V, torch.inf)
            lists_NW, rng = slopes_NV.topk(WORDS, largest=False).indices, stream(SEED, PLAIN, self.number, number)
            at_G, ranks_G = (torch.from_numpy(rng.integers(most, size=self.options.candidates)) for most in (LENGTH, WORDS))
            tried_GN = words_N.repeat(len(at_G), 1)
            tried_GN[torch.arange(len(at_G)), at_G] = lists_NW[at_G, ranks_G]
            loss_G = plain.losses(tried_GN)
            words_N = tried_GN[int(loss_G.argmin())]
            steps.append((time.process_time() - began, float(loss_G.min()), words_N.tolist()))
        return self.line(PLAIN, steps)

    def ours(self, way: str, seconds: float) -> SearchLine:
        """Search by one of our ways, for so many seconds."""
        given = {"candidates": self.options.candidates, "words_per_position": WORDS, **WAYS[way]}
        method = Gcg(restarts=1, max_sweeps=10_000, stop_on_hit=False, **given)
        search: Any = TriggerSearch(self.victim, method, objective=TriggerObjective(kind="likelihood"))
        steps, off, began = list[tuple[float, float, Any]](), [0.0], time.process_time()
        step, name = search.method.step, getattr(self.victim, "text", list)

        def clocked(states: Any) -> None:
            step(states)
            now = time.process_time() - began - off[0]
            steps.append((now, states[0].best.loss, name(states[0].best.words.tolist())))
            if now >= seconds:
                raise _OverError

        search.method.step = clocked
        search.method.goal.initial = lambda _: self.start_N[None].clone()
        exact = list[bool]()
        scorer = getattr(search.method.scorer, "inner", search.method.scorer)
        if scorer.draft or scorer.rough:
            scorer.best_swap = _checked(scorer, CausalScorer(self.victim, search.objective), exact, off)
        with suppress(_OverError):
            list(search.run(tasks_of({"": self.target_T}, 1, SEED)))
        return self.line(f"ours {way}", steps, exact)

    def peer(self, name: str, python: str, file: Path, start: str) -> SearchLine:
        """Let a peer search."""
        prompt, target = PAIRS[self.number]
        asked = {"peer": name, "file": str(file), "prompt": prompt, "target": target, "start": start, "seed": SEED}
        asked |= {"candidates": self.options.candidates, "steps": self.options.steps}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
        script = str(Path(__file__).with_name("peer_search.py"))
        done = subprocess.run([python, script, json.dumps(asked)], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ConfigError("the other tool failed", where=f"--{name}", got=last, fix=f"run {script} in its environment")
        # The first entry is the text that it begins at.
        return self.line(name, json.loads(done.stdout.splitlines()[-1])[1:])


Chooser = Callable[[Sequence[BestInput], Swaps, Tensor], tuple[Tensor, Tensor]]


def _checked(scorer: CausalScorer, exact: CausalScorer, alike: list[bool], off: list[float]) -> Chooser:
    """Return the scorer's choice, which every few calls is held against the exact one, off the clock."""
    choose, calls = scorer.best_swap, [0]

    def checked(incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        choice_B, loss_B = choose(incumbents, swaps, beat_B)
        calls[0] += 1
        if calls[0] % CHECKED == 1:
            began = time.process_time()
            alike.append(bool(exact.best_swap(incumbents, swaps, beat_B)[0].equal(choice_B)))
            off[0] += time.process_time() - began
        return choice_B, loss_B

    return checked


def arenas(options: Options) -> tuple[list[Arena], Path | None]:
    """Return the pairs in their model, and its file; with --quick one pair of the model that other benchmarks search."""
    victim = chat(LENGTH, "cpu")
    if options.quick:
        return [Arena(victim, victim.target_T, drawn_words(victim, "chat input", 1)[0], 0, options)], None
    if victim.file is None:
        raise ConfigError("SmolLM2-135M is not here", where="time_to_trigger", fix="make real-models, or --quick")
    tokenizer, model = read_model(f"gguf:{victim.file}")
    template, rules = (Message("user", "{prompt}{}"),), InputRules(alphabet="ascii", start=" x" * LENGTH)
    base = HuggingFaceCausal(model, tokenizer, LENGTH, template, prompt=PAIRS[0][0], end=False, rules=rules)
    made = []
    for number, (prompt, target) in enumerate(PAIRS[: options.pairs]):
        behind = base.behind(prompt)
        start = behind.start_ids
        assert start is not None, "the rules name a start"
        made.append(Arena(behind, behind.target(target), torch.tensor(start), number, options))
    return made, victim.file


def measure(options: Options) -> Result:
    """Run the searches that the file lacks, and compare all of them."""
    if options.quick:
        options = replace(options, pairs=1, steps=1, candidates=32, nanogcg="", tropt="")
    ways = options.ours.split(",")
    if unknown := sorted(set(ways) - set(WAYS)):
        raise ConfigError("a way to search is unknown", where="--ours", got=", ".join(unknown), fix=f"of {', '.join(WAYS)}")
    peers = {name: python for name, python in (("nanogcg", options.nanogcg), ("tropt", options.tropt)) if python}
    made, file = arenas(options)
    lines = {} if options.quick else read_lines(options.file)
    for arena in made:

        def line(name: str, search: Callable[[], SearchLine], number: int = arena.number) -> SearchLine:
            key = (number, name, options.steps, options.candidates)
            if key not in lines:
                lines[key] = search()
                if not options.quick:
                    options.file.parent.mkdir(parents=True, exist_ok=True)
                    with options.file.open("a", encoding="utf-8") as stored:
                        stored.write(json.dumps(asdict(lines[key])) + "\n")
            return lines[key]

        start = " x" * LENGTH
        theirs = [
            line(name, partial(arena.peer, name, python, cast("Path", file), start)) for name, python in peers.items()
        ] or [line(PLAIN, arena.plain)]
        longest = max(search.seconds[-1] for search in theirs)
        for way in ways:
            line(f"ours {way}", partial(arena.ours, way, longest))
    names, numbers = list(peers) or [PLAIN], [arena.number for arena in made]
    of = {key[:2]: search for key, search in lines.items() if key[2:] == (options.steps, options.candidates)}
    compared = {way: compare(of, way, names, numbers) for way in ways}
    searches = [of[number, f"ours {way}"] for number in numbers for way in ways]
    off = max(abs(search.typed - search.losses[-1]) for search in searches)
    return Result(
        ratio=compared[ways[0]]["ratio"],
        identical=off <= MOST_DIFFERENCE,
        figures={
            "pairs": len(made),
            "peers": names,
            "steps": options.steps,
            "candidates": options.candidates,
            "ways": compared,
            "peers_said": {name: mean(of[number, name].said for number in numbers) for name in names},
            "most_different_nats": off,
            "peers_different_nats": max(abs(of[n, name].typed - of[n, name].losses[-1]) for n in numbers for name in names),
        },
    )


def read_lines(file: Path) -> dict[tuple[Any, ...], SearchLine]:
    """Return the searches of a file by key; a line that was cut is left out."""
    lines = {}
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        with suppress(ValueError):
            line = SearchLine(**json.loads(text))
            lines[tuple(line.key)] = line
    return lines


def compare(of: Mapping[tuple[Any, ...], SearchLine], way: str, peers: Sequence[str], numbers: Sequence[int]) -> dict[str, Any]:
    """Compare a way of ours with all peers.

    Args:
        of: searches by pair and contestant.
        way: of ours.
        peers: their names.
        numbers: of the pairs.
    """
    ratios, reached, worse = list[float](), list[bool](), list[float]()
    for number in numbers:
        ours = of[number, f"ours {way}"]
        for peer in peers:
            theirs = of[number, peer]
            seconds = ours.reached(theirs.typed)
            reached.append(seconds is not None)
            ratios.append(theirs.seconds[-1] / (ours.seconds[-1] if seconds is None else seconds))
            worse.append(ours.loss_at(max(theirs.seconds[-1], ours.seconds[0])) - theirs.typed)
    exact = [alike for number in numbers for alike in of[number, f"ours {way}"].exact]
    return {
        "ratio": median(ratios),
        "worst": min(ratios),
        "reached": mean(reached),
        "median_difference_nats": median(worse),
        "said": mean(of[number, f"ours {way}"].said for number in numbers),
        "exact_choices": mean(exact) if exact else 1.0,
    }


if __name__ == "__main__":
    run("time_to_trigger", Options, measure)
