"""The list of jobs that train one model (`TRAININGS`), the type of a list's entries (`Entry`), and figures for TensorBoard.

`Scalars` writes a training's figures as TensorBoard reads them: `tensorboard --logdir RUN`. The run's event log remains the
record; this is a second view for users who watch many runs. So a failure to write is a warning and ends nothing. The calling
thread writes: the writer thread of tensorboardX's own `SummaryWriter` dies of a full disk, and its caller then waits for ever.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.engine.core.verbs.job import Job


@dataclass(frozen=True)
class Entry:
    """One job on the command line.

    Args:
        words: the words on the command line, such as ("train", "negotiator").
        summary: one line of help.
        target: "module:ATTRIBUTE" of the `Job`.
        examples: commands to copy and paste.
        reports: whether a finished run is shown as a page at once.
        argument: name, in capitals, of what may be typed after the preset; empty for nothing.
    """

    words: tuple[str, ...]
    summary: str
    target: str
    examples: tuple[str, ...]
    reports: bool = False
    argument: str = ""

    @classmethod
    def of(cls, words: str, summary: str, target: str, *examples: str, reports: bool = False, argument: str = "") -> Entry:
        """Return the entry of a job by its words as typed."""
        return cls(tuple(words.split()), summary, target, examples, reports, argument)

    def load(self) -> Job[Any, Any, Any]:
        """Import and return the job."""
        module, _, attribute = self.target.partition(":")
        job: Job[Any, Any, Any] = getattr(importlib.import_module(module), attribute)
        return job


TRAININGS = (
    Entry.of(
        "train negotiator",
        "fit a negotiation agent to recorded dialogues",
        "parley.engine.negotiation.verbs.negotiator:TRAIN_NEGOTIATOR",
        "parley train negotiator                       # Deal or No Deal, fast recipe",
        "parley train negotiator lewis2017             # the released recipe, 30 + 2 epochs",
        "parley train negotiator demo --run runs/small # the embedded corpus",
    ),
    Entry.of(
        "train rl",
        "train a goal-based agent by self-play against a frozen one (RLlib)",
        "parley.engine.negotiation.verbs.training:TRAIN_RL",
        "parley train rl --target runs/negotiator",
        "parley train rl --target runs/negotiator --env-runners 8 --address 10.0.0.1:6379",
        "parley train rl --target runs/negotiator --set reinforce.dialogues=200000 --run runs/rl-long",
    ),
    Entry.of(
        "train adversary",
        "train an adversary against a frozen target (RLlib)",
        "parley.engine.negotiation.verbs.training:TRAIN_ADVERSARY",
        "parley train adversary --target runs/negotiator",
        "parley train adversary --target runs/rl --learner runs/negotiator --run runs/adversary-rl",
        "parley train adversary --target runs/negotiator --seeds 3 --trainers 2",
    ),
    Entry.of(
        "train target",
        "harden a target against frozen adversaries (RLlib)",
        "parley.engine.negotiation.verbs.training:TRAIN_TARGET",
        "parley train target --target runs/rl --adversaries runs/adversary-rl --partner runs/negotiator",
        "parley train target --adversaries runs/a1,runs/a2,runs/a3 --set opponents.sampling=prioritised",
        "parley train target --set opponents.partner_share=0.25 --set reinforce.dialogues=40000",
    ),
    Entry.of(
        "train chat",
        "fit an adapter of a chat model to seats of the secret game, or to recorded negotiations (extra lora)",
        "parley.engine.chat.verbs.train_chat:TRAIN_CHAT",
        "parley train chat --base gguf:SmolLM2-135M-Instruct.gguf --role defender",
        "parley train chat --base hf:models/chat --role attacker --dialogues 2000 --run runs/attacker",
        "parley train chat quick --base hf:models/chat --game negotiation  # 80 dialogues of Deal or No Deal",
    ),
    Entry.of(
        "train chat-rl",
        "train an adapter of a chat model in the secret game by reinforcement, against any player (RLlib, extra lora)",
        "parley.engine.chat.verbs.chat_rl:TRAIN_CHAT_RL",
        "parley train chat-rl --start hf:runs/chat --opponents ask,spell,mix",
        "parley train chat-rl --start hf:runs/attacker --role attacker --opponents openai:http://127.0.0.1:8000/v1#llama",
        "parley train chat-rl quick --base gguf:SmolLM2-135M-Instruct.gguf",
    ),
    Entry.of(
        "train seq2seq",
        "fit a sequence-to-sequence dialogue model to pairs of utterance and reply",
        "parley.engine.responders.seq2seq:TRAIN_SEQ2SEQ",
        "parley train seq2seq                          # the built-in help desk",
        "parley train seq2seq dialogue                 # two turns of context, the reply links of #ubuntu",
        "parley train seq2seq he2018 --device cuda     # published sizes and recipe, on Ubuntu",
    ),
    Entry.of(
        "train lm",
        "fit a language model to the utterances of a corpus of pairs",
        "parley.engine.responders.seq2seq:TRAIN_LM",
        "parley train lm                               # the built-in help desk",
        "parley train lm --corpus switchboard --set sizes.dropout=0.3",
        "parley train lm he2018 --device cuda          # published sizes and recipe, on Ubuntu",
    ),
    Entry.of(
        "train vhred",
        "fit a response model with a latent variable to dialogues",
        "parley.engine.responders.vhred:TRAIN_VHRED",
        "parley train vhred                            # half the published widths, the conversations of #ubuntu",
        "parley train vhred demo                       # the built-in help desk",
        "parley train vhred niu2018 --device cuda      # published sizes and recipe",
    ),
    Entry.of(
        "train paraphraser",
        "fit a paraphraser (pointer-generator network) to pairs of paraphrases",
        "parley.engine.responders.paraphraser:TRAIN_PARAPHRASER",
        "parley train paraphraser                      # MSR pairs",
        "parley train paraphraser demo                 # the built-in help desk, in seconds",
        "parley train paraphraser --corpus mine.tsv --set vocabulary=20000",
    ),
    Entry.of(
        "train adversarial",
        "train a response model against perturbations of its contexts",
        "parley.engine.perturb.verbs.adversarial:TRAIN_ADVERSARIAL",
        "parley train adversarial --model runs/seq2seq",
        "parley train adversarial --model runs/seq2seq --strategies antonym --run runs/adversarial-antonym",
        "parley train adversarial demo --model runs/demo/model",
    ),
    Entry.of(
        "train hardened",
        "harden a Hugging Face model against triggers that searches found, and perturbed contexts",
        "parley.engine.triggers.verbs.hardened:TRAIN_HARDENED",
        "parley train hardened --model hf:MODEL --searches runs/search,runs/search-universal",
        "parley train hardened --model hf:MODEL --searches runs/search --control --run runs/hardened-control",
        "parley train hardened full --model hf:MODEL --strategies random-swap,character-noise",
    ),
    Entry.of(
        "train reranking",
        "reward a response model for replies that other contexts would not call forth",
        "parley.engine.perturb.verbs.reranking:TRAIN_RERANKING",
        "parley train reranking --model runs/seq2seq --set reranking.weight=0.3",
        "parley train reranking niu2018 --model runs/seq2seq   # the paper's reward, self-critical",
        "parley train reranking demo --model runs/demo/model",
    ),
    Entry.of(
        "train discriminator",
        "fit a discriminator to tell a generator's replies from people's",
        "parley.engine.generation.verbs.discriminator:TRAIN_DISCRIMINATOR",
        "parley train discriminator --generator runs/seq2seq                  # the built-in help desk",
        "parley train discriminator --generator runs/seq2seq --prefixes       # for rewards of partial replies",
        "parley train discriminator li2017 --generator runs/dialogue --backward runs/backward",
    ),
    Entry.of(
        "train dynonet",
        "fit a bot that looks for the friend both have, with a knowledge graph that changes as people talk",
        "parley.engine.mutual_friends.verbs.dynonet:TRAIN_DYNONET",
        "parley train dynonet                          # the built-in chats, a third of the published widths",
        "parley train dynonet he2017 --run runs/dynonet-1 --seed 1",
        "parley train dynonet --start runs/dynonet --against confusing-entity,none --run runs/hardened",
    ),
    Entry.of(
        "train liar",
        "train a liar that keeps a player of MutualFriends from finding the common friend (RLlib)",
        "parley.engine.mutual_friends.verbs.agents:TRAIN_LIAR",
        "parley train liar quick                       # against the scripted player, a minute",
        "parley train liar --model runs/dynonet --scenarios 500",
        "parley train liar --model mine.py:Bot --set game.lies=5 --set learning.updates=60",
    ),
    Entry.of(
        "train matcher",
        "fit a model that matches replies with contexts (SMN, DAM, MRFN), or harden one",
        "parley.engine.ranking.verbs.matcher:TRAIN_MATCHER",
        "parley train matcher                          # a small SMN, the built-in help desk",
        "parley train matcher dam-paper --corpus ubuntu_dialogues --device cuda",
        "parley train matcher --start runs/matcher --against iiw,search --run runs/matcher-hardened",
    ),
    Entry.of(
        "train hardened-ranker",
        "harden a Hugging Face bi-encoder or cross-encoder; before, after and control in one table",
        "parley.engine.ranking.verbs.hardened:TRAIN_HARDENED_RANKER",
        "parley train hardened-ranker --model hf:BIENCODER --corpus faq.csv#shares=70:15:15",
        "parley train hardened-ranker full --model hf:CROSSENCODER --against character-noise,misspellings,iiw",
        "parley train hardened-ranker --model hf:BIENCODER --corpus ubuntu_irc --limit 2000 --set fit.max_epochs=1",
    ),
    Entry.of(
        "train editor",
        "train a policy that edits replies to mislead a frozen ranker (RLlib)",
        "parley.engine.ranking.verbs.editor:TRAIN_EDITOR",
        "parley train editor                           # against TF-IDF, the built-in help desk",
        "parley train editor --model runs/matcher --limit 200 --run runs/editor-matcher",
        "parley train editor --model bm25 --set game.edits=3",
    ),
)


FOLDER = "tensorboard"

logger = logging.getLogger(__name__)


class Scalars:
    """A writer of scalars by step, for a `with` block.

    Args:
        run: the run's folder.
        behind: last saved step, -1 for not even the start; later steps of an interrupted process are superseded.
    """

    def __init__(self, run: Path, behind: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._folder = run / FOLDER
        self._writer: Any = None
        with self._warning_of_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(self._folder / "events"))
            self._write(behind + 1, session_log=SessionLog(status=SessionLog.START))

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            with self._warning_of_errors():
                self._writer.close()

    def add(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write the figures of one step; after a failure to write, do nothing."""
        from tensorboardX.summary import scalar

        if self._writer is not None:
            with self._warning_of_errors():
                for name, value in figures.items():
                    self._write(step, summary=scalar(name, value))
                self._writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(step=step, wall_time=time.time(), **content))

    @contextmanager
    def _warning_of_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._writer = None
            logger.warning("%s: figures for TensorBoard are no longer written: %s", self._folder, error)
