"""An update of `parley train chat-rl` beside one of trl's GRPOTrainer: conversations of one answer, the same prompts.

Needs `pip install trl==1.16.0 accelerate datasets`, in an environment of its own. Both put adapters of rank 16 on the linear
layers of SmolLM2-135M-Instruct in float32, draw four answers of at most 32 tokens to each of two prompts at temperature 1, and
make a step on all eight with the KL to the start at .05 (trl: an estimate of it on drawn tokens; ours: exact over the
vocabulary). A reward by the number of an answer makes all of them lessons. Draws differ, so tokens do: they are counted.

"ratio" is of processor seconds of an update, the first of each left out; "ratio_of_tokens" of seconds for each token of the
answers, which are not as long. "identical": both learned from as many answers to the
same prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_chat import smollm2
from parley.engine.chat.rl.algorithm import ChatReinforce, ChatReinforceAlgorithmConfig
from parley.engine.chat.rl.runner import ChatLearnerSpec, RecordedChatModel, SecretSeat
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.ray.session import connect
from parley.engine.core.verbs.supervised import built
from parley.envs.secret.game import DEFENDER, SecretRules
from parley.policies.chat.local import load_local
from parley.policies.chat.settings import ChatModelSettings, ChatSeat, LoraSettings

SEED, TRIES, TOKENS, RANK = 1, 4, 32, 16
RULES = SecretRules(max_messages=1)
Prompts = list[list[dict[str, str]]]


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Updates of a defender that answers harmless users."""

    scenarios: int = 2
    """Prompts of an update, each answered four times."""
    updates: int = 4
    """Updates of both; two in the quick form."""


@dataclass
class Update:
    """What an update cost and read.

    Args:
        seconds: of the processor.
        answers: that it learned from.
        tokens: of these answers.
    """

    seconds: float
    answers: int
    tokens: int


class Rewarded(ChatReinforce):
    """Answers are paid by their number, so that no scenario is without a lesson."""

    def rewards(self, played: Sequence[Any]) -> np.ndarray:
        """Return the rewards."""
        return np.arange(len(played), dtype=np.float64) % TRIES


def ours(options: Options, updates: int) -> tuple[list[Update], Prompts]:
    """Make our updates; return them and their prompts, each once."""
    rule = ChatReinforceConfig(scenarios=options.scenarios, tries=TRIES, max_tokens=TOKENS, supervised_weight=0.0)
    seat = ChatSeat(batch_size=options.scenarios * TRIES)
    spec = ChatLearnerSpec(smollm2(), "", SecretSeat(DEFENDER, RULES), LoraSettings(rank=RANK), seat, SEED)
    settings = ChatReinforceAlgorithmConfig(Rewarded).conversations(reinforce=rule, spec=spec, opponents=[])
    made, prompts, answer = list[Update](), Prompts(), RecordedChatModel.answer

    def noted(model: RecordedChatModel, chats: Sequence[Any], **rest: Any) -> list[Any]:
        prompts.extend([{"role": message.role, "content": message.content} for message in chat] for chat in chats)
        return answer(model, chats, **rest)

    with patch.object(RecordedChatModel, "answer", noted), connect(num_cpus=1), built(settings) as algorithm:
        for _ in range(updates):
            clock = Clock()
            with clock.running():
                algorithm.train()
            made.append(Update(clock.seconds, int(algorithm.last["dialogues"]), int(algorithm.last["tokens"])))
    return made, prompts[::TRIES]


def theirs(options: Options, updates: int, prompts: Prompts) -> list[Update]:
    """Make trl's updates with the same prompts, in the same order."""
    from datasets import Dataset  # type: ignore[import-not-found]  # of the other environment
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    made, clocks = list[Update](), list[Clock]()

    class Noted(GRPOTrainer):
        def training_step(self, *given: Any, **rest: Any) -> Any:
            clocks.append(Clock())
            with clocks[-1].running():
                return super().training_step(*given, **rest)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            scored = super()._generate_and_score_completions(inputs)
            made.append(Update(0.0, len(scored["completion_mask"]), int(scored["completion_mask"].sum())))
            return scored

    base = load_local(smollm2(), ChatModelSettings())
    num = options.scenarios * TRIES
    with TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=num, num_generations=TRIES, max_completion_length=TOKENS, beta=0.05,
            temperature=1.0, learning_rate=1e-4, use_cpu=True, bf16=False, report_to="none", max_steps=updates,
            save_strategy="no", gradient_checkpointing=False, disable_tqdm=True, shuffle_dataset=False, logging_steps=10**6,
        )  # fmt: skip
        trainer = Noted(
            model=base.model.requires_grad_(True), processing_class=base.tokenizer, args=settings,
            reward_funcs=lambda completions, **_: [float(number % TRIES) for number, _ in enumerate(completions)],
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"),
        )  # fmt: skip
        trainer.train()
    for update, clock in zip(made, clocks, strict=True):
        update.seconds = clock.seconds
    return made


def _for_a_token(made: Sequence[Update]) -> float:
    return sum(update.seconds for update in made[1:]) / sum(update.tokens for update in made[1:])


def measure(options: Options) -> Result:
    """Make updates both ways."""
    updates = 2 if options.quick else options.updates
    own, prompts = ours(options, updates)
    peer = theirs(options, updates, prompts)
    seconds = [median(update.seconds for update in made[1:]) for made in (own, peer)]
    return Result(
        ratio=seconds[1] / seconds[0],
        identical=[update.answers for update in own] == [update.answers for update in peer],
        figures={
            "ours_s": seconds[0],
            "reference_s": seconds[1],
            "ratio_of_tokens": _for_a_token(peer) / _for_a_token(own),
            "answers": own[-1].answers,
            "own_tokens": [update.tokens for update in own],
            "reference_tokens": [update.tokens for update in peer],
        },
    )


if __name__ == "__main__":
    run("peer_reinforce", Options, measure)
