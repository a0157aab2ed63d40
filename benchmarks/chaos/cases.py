"""The runs that are disturbed: verbs of all systems at the size of a demonstration.

FOLDER stands for the folder of the harness. A run that later ones read has a name of its own there, such as FOLDER/negotiator:
the one that nothing disturbed.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = '''
"""A chat model that counts what it is asked."""

import sitecustomize


def model(messages):
    text = messages[-1]["content"]
    if sitecustomize.PLAN is not None:
        sitecustomize.note("question", text=text)
    words = text.split()
    return "hello there"[: 2 + 3 * sum(words.count(word) for word in ("please", "kindly"))]
'''
POLICY = """
name: numbers
rules: [{name: no code, must_not: {contains: SAVE50}}]
limits: {breach.none: 0.5}
prompts: [{file: prompts.csv, column: prompt}]
attacks: [role-play, character-noise]
"""
FILES = {
    "model.py": MODEL,
    "policy.yaml": POLICY,
    "prompts.csv": "prompt\n" + "".join(f"what is number {number} ?\n" for number in range(20)),
    "pairs.csv": "prompt,target\n" + "".join(f"tell me {number},hello there\n" for number in range(12)),
    "human.txt": "".join(f"hello number {number}\tgood day , my name is person {number}\n" for number in range(60)),
    "machine.txt": "".join(f"hello number {number}\ti do not know\n" for number in range(60)),
    "words.txt": "please kindly " + " ".join(f"w{number}" for number in range(30)),
}
"""What the commands read, by name in FOLDER."""


@dataclass(frozen=True)
class Case:
    """A command, and what it is disturbed by.

    Args:
        words: the words behind `parley`, without --run.
        unit: what is counted as done again: "items" of its work, "questions" to a model, or "updates" of weights.
        disturbances: what is done to it, see `DISTURBANCES`.
        needs: names of the runs that it reads.
        status: exit status of the undisturbed command.
    """

    words: str
    unit: str = "items"
    disturbances: tuple[str, ...] = ("early", "middle", "writing")
    needs: tuple[str, ...] = ()
    status: int = 0

    @property
    def verb(self) -> str:
        """Return the words of the verb as the table has them."""
        head = []
        for word in self.words.split():
            if word.startswith("-") or "/" in word:
                break
            head.append(word)
        return " ".join(head)


EARLY, MIDDLE, WRITING = ("early",), ("middle",), ("writing",)
KILLS = ("early", "middle", "writing")
MORE = (*KILLS, "clock", "clock back", "copied", "moved", "disk", "second")
RAY = ("driver", "actor", "raylet", "head")
DISTURBANCES = {
    "driver killed in the first fifth": ("early",),
    "driver killed in the middle": ("middle",),
    "driver killed while it wrote, half of the file on the disk": ("writing",),
    "driver killed, with Ray": ("driver",),
    "actor killed": ("actor",),
    "raylet killed": ("raylet",),
    "Ray's head (GCS) killed": ("head",),
    "clock set back by 3 hours in the middle": ("clock",),
    "killed, clock set back by 3 hours, gone on with": ("clock back",),
    "killed, folder copied, the copy gone on with": ("copied",),
    "killed, folder moved, gone on with there": ("moved",),
    "disk full from the middle on, then room again": ("disk",),
    "a second writer of the run in the middle": ("second",),
}
"""What is done, in words, by the disturbances that the table counts together."""
CASES = {
    "selfplay": Case("selfplay --dialogues 60 --set shard_size=5", disturbances=MORE),
    "ranking": Case("evaluate ranking --limit 20 --set shard_size=2 --set num_erased=5", disturbances=MORE),
    "text": Case(
        "search text --model FOLDER/model.py:model --targets FOLDER/pairs.csv --words FOLDER/words.txt --set limit=12 "
        "--set shard_size=1 --set search.num_words=5 --set search.population=8 --set search.max_queries=40",
        "questions",
        MORE,
    ),
    "scan": Case("scan FOLDER/policy.yaml --model FOLDER/model.py:model", "questions", MORE),
    "negotiator": Case("train negotiator demo --limit 200 --set fit.max_epochs=6", "updates", (*KILLS, "copied", "disk")),
    "attack-ranking": Case("attack ranking --limit 12 --set budget=40 --set shard_size=2", disturbances=MIDDLE),
    "secret": Case("evaluate secret quick --dialogues 10 --set shard_size=10", disturbances=WRITING),
    "collaboration": Case("evaluate collaboration demo --set shard_size=4", disturbances=EARLY),
    "audit": Case("perturb audit demo --limit 40 --set shard_size=8", disturbances=MIDDLE),
    "judges": Case(
        "evaluate adversarial --human FOLDER/human.txt --machine FOLDER/machine.txt",
        disturbances=WRITING,
    ),
    "liar": Case(
        "train liar quick --set scenarios=40 --set learning.updates=4 --set save_every=2", "updates", disturbances=EARLY
    ),
    "editor": Case("train editor --limit 20 --set learning.updates=4 --set save_every=2", "updates", disturbances=MIDDLE),
    "dynonet": Case("train dynonet demo --limit 60 --set selfplay=4", "updates", disturbances=WRITING),
    "matcher": Case("train matcher demo --limit 200 --set fit.max_epochs=2", "updates", disturbances=EARLY),
    "seq2seq": Case("train seq2seq demo --limit 300 --set fit.max_epochs=5", "updates", disturbances=MIDDLE),
    "lm": Case("train lm demo --limit 300 --set fit.max_epochs=5", "updates", disturbances=WRITING),
    "reply": Case("reply quick --model FOLDER/seq2seq --limit 60 --set shard_size=10", needs=("seq2seq",), disturbances=EARLY),
    "search": Case(
        "search demo --model FOLDER/seq2seq --lm FOLDER/lm --limit 12 --set shard_size=2 --set search.restarts=1",
        needs=("seq2seq", "lm"),
        disturbances=MIDDLE,
    ),
    "robustness": Case(
        "evaluate robustness demo --model FOLDER/seq2seq --limit 40 --set shard_size=10",
        needs=("seq2seq",),
        disturbances=WRITING,
    ),
    "reactive": Case(
        "attack reactive --target FOLDER/negotiator --speaker FOLDER/negotiator --dialogues 12 --set shard_size=2 "
        "--set search.replies=2 --set search.finalists=2",
        needs=("negotiator",),
        disturbances=EARLY,
    ),
    "adversary": Case(
        "train adversary demo --target FOLDER/negotiator --set reinforce.dialogues=384 --set save_every=2",
        "updates",
        needs=("negotiator",),
        disturbances=MIDDLE,
    ),
    "selfplay-ray": Case("selfplay --dialogues 60 --set shard_size=5 --workers 2", disturbances=RAY),
    "search-ray": Case(
        "search demo --model FOLDER/seq2seq --lm FOLDER/lm --limit 12 --set shard_size=2 --set search.restarts=1 --workers 2",
        disturbances=RAY,
        needs=("seq2seq", "lm"),
    ),
    "adversary-ray": Case(
        "train adversary demo --target FOLDER/negotiator --set reinforce.dialogues=384 --set save_every=2 --env-runners 1",
        "updates",
        disturbances=RAY,
        needs=("negotiator",),
    ),
}
