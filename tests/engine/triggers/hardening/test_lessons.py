"""What hardened models learn from: lessons, margins, replies, and which triggers are held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import rate, ratio_of_sums
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.verbs.config import TRIGGERS, HuggingFaceSettings, TriggerConfig
from parley.engine.triggers.verbs.hardened import as_read, figures
from parley.engine.triggers.verbs.lessons import (
    CLEAN,
    SPLITS,
    TRIGGER,
    HardeningExample,
    TrainHardenedConfig,
    TriggerResult,
    found_triggers,
    make_lessons,
    prompts_of,
    split_triggers,
    training_lessons,
)
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.turns import Example, Turns
from parley.policies.chat.local import ChatResponder
from parley.policies.chat.model import Answer, ArrivingChatModel, Chat
from parley.policies.chat.predictor import (
    ChatLesson,
    ChatLessons,
    ChatPredictor,
    ContrastObjective,
    adapted,
    contrasted,
    gaps,
    merged,
)
from parley.policies.chat.settings import LoraSettings
from parley.policies.chat.templates import write_prompt
from parley.policies.core.fitting.batches import OutputLoss, evaluate
from parley.policies.hugging_face.caches import TokenTree
from parley.policies.hugging_face.victims import HuggingFaceCausal

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
pytest.importorskip("peft", reason="the extra lora is not installed")

from tests.policies.small_gpt2 import EOS, greedy_replies, read_gpt2
from tests.policies.small_gpt2 import TRIGGERS as TRIGGERS_FOUND


def test_lessons_are_scored_as_the_model_scores_them_alone(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    pairs = [("the cat</s>", "who eats", True), ("a bird hears the song</s>", "fish", False), ("dog</s>", "the dog sees", True)]
    read = ChatLessons(tokenizer, [ChatLesson(*pair) for pair in pairs], tokenizer.eos_token_id, 32)
    fitness = evaluate(ChatPredictor(model.eval()), read)
    wanted = {}
    for prompt, reply, ended in pairs:
        before = tokenizer(prompt, add_special_tokens=False).input_ids
        after = tokenizer(reply, add_special_tokens=False).input_ids + [1] * ended
        logits = model(input_ids=torch.tensor([before + after])).logits[0, len(before) - 1 : -1].detach()
        wanted[len(after)] = float(torch.nn.functional.cross_entropy(logits, torch.tensor(after), reduction="sum"))
    assert fitness.num_targets.tolist() == sorted(wanted)
    assert fitness.nll_sums.tolist() == pytest.approx([wanted[num] for num in sorted(wanted)], rel=1e-5)


def test_what_lessons_begin_with_is_read_once_and_nothing_for_padding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, model = read_gpt2(folder)
    predictor = ChatPredictor(adapted(model.requires_grad_(False), LoraSettings(rank=2), 1).eval())
    predictor.load_state_dict({name: value + 0.1 for name, value in predictor.state_dict().items()})
    pairs = [("the cat</s>", "who eats"), ("the cat</s>", "fish"), ("the cat sees a bird</s>", "the dog sees the song")]
    lessons = ChatLessons(tokenizer, [ChatLesson(*pair) for pair in pairs], tokenizer.eos_token_id, 32)
    read = list[int]()

    class Counted(TokenTree):
        def logits(self, *given: Any) -> torch.Tensor:
            read.append(len(self))
            return super().logits(*given)

    def learned() -> tuple[torch.Tensor, list[torch.Tensor]]:
        nll = predictor.nll(lessons.batch(np.array([2, 0, 1])))
        weights = [weight for weight in predictor.parameters() if weight.requires_grad]
        return nll.detach(), list(torch.autograd.grad(nll.sum(), weights))

    monkeypatch.setattr("parley.policies.chat.predictor.TokenTree", Counted)
    nll, gradients = learned()
    texts = [tuple(ids[:-1]) for ids, _ in lessons.sequences]
    assert read == [len({text[:end] for text in texts for end in range(1, len(text) + 1)})]
    monkeypatch.setattr("parley.policies.chat.predictor.reads_trees", lambda model: False)
    padded, of_padded = learned()
    torch.testing.assert_close(nll, padded, rtol=1e-4, atol=1e-5)
    assert len(read) == 1, "padded rows are no tree"
    assert any(gradient.abs().max() > 1e-3 for gradient in gradients)
    for ours, theirs in zip(gradients, of_padded, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_adapters_begin_as_the_model_and_are_merged_into_it(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    ids = torch.tensor([tokenizer("who sees the fish now").input_ids])
    before = model(input_ids=ids).logits
    predictor = ChatPredictor(adapted(model.requires_grad_(False), LoraSettings(rank=2), 1).eval())
    torch.testing.assert_close(predictor.model(input_ids=ids).logits, before)
    state = predictor.state_dict()
    assert state
    assert all("lora" in name for name in state), "what learns, and nothing else"
    predictor.load_state_dict({name: value + 0.1 for name, value in state.items()})
    learned = predictor.model(input_ids=ids).logits
    assert not torch.allclose(learned, before)
    whole = merged(predictor.model)
    assert type(whole).__name__ == "GPT2LMHeadModel"
    torch.testing.assert_close(whole(input_ids=ids).logits, learned, rtol=1e-4, atol=1e-4)


def test_the_control_trains_as_long_on_clean_contexts_alone() -> None:
    triggers = [HardeningExample(TRIGGER, str(i), "p", "r", True, "p", "t") for i in range(3)]
    clean = [HardeningExample(CLEAN, str(i), "p", "r", True, "p") for i in range(5)]
    hardened = training_lessons([*triggers, *clean], share=0.5, control=False)
    control = training_lessons([*triggers, *clean], share=0.5, control=True)
    assert [each.kind for each in hardened].count(TRIGGER) == 5, "half of the lessons"
    assert {each.key for each in hardened if each.kind == TRIGGER} == {"0", "1", "2"}
    assert {each.kind for each in control} == {CLEAN}
    assert len(control) == len(hardened) == 10
    there = [replace(each, contrast="c") for each in clean]
    assert [each.contrast for each in training_lessons(there, share=0.5, control=False)] == ["c"] * 5
    assert [each.contrast for each in training_lessons(there, share=0.5, control=True)] == [""] * 5


def test_a_margin_is_what_its_formula_says(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    asked = [ChatLesson("the cat</s>", "who eats"), ChatLesson("dog</s>", "the dog sees", False), ChatLesson("who</s>", "cat")]
    lessons = contrasted(tokenizer, asked, ["the dog</s>", "", "a bird now</s>"], tokenizer.eos_token_id, 32)
    predictor = ChatPredictor(model)

    def nll(prompt: str, lesson: ChatLesson) -> float:
        read = ChatLessons(tokenizer, [replace(lesson, prompt=prompt)], tokenizer.eos_token_id, 32)
        return float(evaluate(predictor, read).nll_sums[0])

    alone = [nll(each.prompt, each) for each in asked]
    wanted = [(nll("the dog</s>", asked[0]) - alone[0]) / 3, (nll("a bird now</s>", asked[2]) - alone[2]) / 2]
    assert gaps(predictor, lessons).tolist() == pytest.approx(wanted, abs=1e-5)
    objective = ContrastObjective(predictor, lessons, alpha=2.0, margin=1.0)
    hinges = sum(max(0.0, 1.0 - gap) for gap in wanted)
    assert hinges > 0
    # In an order of its own; without a contrast, the likelihood alone.
    loss = objective.loss(lessons.batch(np.array([2, 1, 0])), OutputLoss(predictor.output))
    assert loss.nll.item() == pytest.approx(sum(alone), rel=1e-5)
    assert loss.total.item() == pytest.approx(sum(alone) + 2.0 * (3 + 3 + 2) / 3 * hinges, rel=1e-5)
    bare = objective.loss(lessons.batch(np.array([1])), OutputLoss(predictor.output))
    assert bare.total.item() == bare.nll.item() == pytest.approx(alone[1], rel=1e-5)
    assert objective.validation(lessons) == pytest.approx(sum(alone) / 8 + 2.0 * hinges / 3, rel=1e-5)


def test_replies_do_not_depend_on_what_is_answered_beside_them(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    prompts = [f"{text}{EOS}" for text in (*TRIGGERS_FOUND, "who", "the cat sees the dog now then")]
    together = greedy_replies(model, tokenizer, prompts, 4, batch_size=4)
    assert together == greedy_replies(model, tokenizer, prompts, 4)
    # Any end that the model names ends a reply.
    first, last = together[0][0].split()[0], together[0][0].split()[-1]
    model.generation_config.eos_token_id = [1, tokenizer.convert_tokens_to_ids(last)]
    ended = greedy_replies(model, tokenizer, prompts, 4, batch_size=4)
    assert ended == greedy_replies(model, tokenizer, prompts, 4)
    assert ended[0][1]
    assert ended[0][0].split()[:1] == ([] if first == last else [first])
    assert last not in ended[0][0].split()


def test_replies_that_are_learned_end_as_they_end_in_a_search(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} then {% endfor %}"
    end = tokenizer.convert_tokens_to_ids("then")
    # As of Gemma and Phi: the template ends turns with another token than the tokenizer ends texts with.
    model.generation_config.eos_token_id = [end, tokenizer.eos_token_id]
    victim = HuggingFaceCausal(model, tokenizer, 2)
    lesson = HardeningExample(TRIGGER, "a", "the cat then", "who eats", True, "the cat")
    read = as_read(tokenizer, model, [lesson]).learned.batch(np.array([0]))
    assert read.targets_BT[read.real_BT].tolist() == victim.target("who eats").tolist()
    assert read.targets_BT[read.real_BT].tolist()[-1] == end


def test_the_tokenizers_own_end_ends_replies_where_the_model_names_another(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    prompts = [f"{TRIGGERS_FOUND[0]}{EOS}"]
    ((reply, _),) = greedy_replies(model, tokenizer, prompts, 4)
    tokenizer.eos_token, model.generation_config.eos_token_id = reply.split()[-1], tokenizer.pad_token_id
    ((cut, ended),) = greedy_replies(model, tokenizer, prompts, 4)
    assert ended
    assert tokenizer.eos_token not in cut.split()


def test_no_perturbation_beside_a_strategy_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="none alone: no strategy"):
        TrainHardenedConfig(model=f"hf:{folder}", strategies="none, random-swap")


def test_contexts_are_learned_as_an_evaluation_asks_about_them(folder: Path) -> None:
    tokenizer, _ = read_gpt2(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }};{% endfor %}"
    contexts: list[Turns] = [((("who", "sees", "?"),),), ((("the", "cat", "."), ("now",)), (("what", "then"),))]
    config = TrainHardenedConfig(model=f"hf:{folder}", strategies="none", clean="recorded")
    clean = [Example(str(number), context, (("fish",),)) for number, context in enumerate(contexts)]
    lessons = make_lessons(config, {}, dict.fromkeys(SPLITS, clean), [], tokenizer, lambda prompts: [])
    asked = list[str]()

    class Listening(ArrivingChatModel):
        name = "listening"

        def arriving(self, chats: Sequence[Chat], **rest: Any) -> Iterator[tuple[int, Answer]]:
            asked.extend(write_prompt(tokenizer, chat) for chat in chats)
            yield from enumerate([Answer("fish", "stop", 0, 1)] * len(chats))

    ChatResponder(Listening()).respond(contexts)
    assert [lesson.prompt for lesson in lessons["test"]] == asked
    assert "the cat. now\nwhat then" in asked[1], "both turns"


def test_slots_and_requests_of_a_search_are_filled_as_it_filled_them(folder: Path) -> None:
    tokenizer, _ = read_gpt2(folder)
    behind = TriggerResult("0", "cat now", "who", "suffix", "the dog eats")
    assert prompts_of(behind, tokenizer, "") == (f"the dog eats cat now{EOS}", f"the dog eats {EOS}")
    both = TriggerResult("1", "cat\nnow", "who", "{} sees {} fish")
    assert prompts_of(both, tokenizer, "") == ("cat sees now fish", " sees  fish")
    with pytest.raises(ConfigError, match="1 texts for 2 slots"):
        prompts_of(TriggerResult("2", "cat now", "who", "{} sees {} fish"), tokenizer, "")


def test_triggers_of_a_target_are_in_one_split() -> None:
    triggers = [TriggerResult(str(i), f"text {i}", f"target {i % 4}") for i in range(12)]
    splits = split_triggers(triggers, 0.3, seed=1)
    targets = [{each.target for each in found} for found in splits.values()]
    assert all(targets)
    assert sum(map(len, targets)) == 4
    assert sum(map(len, splits.values())) == 12
    with pytest.raises(DataError, match="three targets"):
        split_triggers(triggers[:2], 0.3, seed=1)


def test_triggers_of_one_target_are_held_out_by_their_requests() -> None:
    triggers = [TriggerResult(str(i), f"text {i}", "Sure, here", request=f"how {i % 5}") for i in range(10)]
    splits = split_triggers(triggers, 0.3, seed=1)
    requests = [{each.request for each in found} for found in splits.values()]
    assert all(requests)
    assert sum(map(len, requests)) == 5
    assert sum(map(len, splits.values())) == 10


def test_what_is_measured_behind_triggers_of_one_target_hangs_together(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    replies = ("the dog sees the fish", "fish", "who eats", "a bird", "song", "the cat hears")
    triggers = [
        HardeningExample(TRIGGER, str(number), f"{word}{EOS}", reply, True, word, target="song", group=f"group {number % 3}")
        for number, (word, reply) in enumerate(zip(TRIGGERS_FOUND, replies, strict=False))
    ]
    clean = [
        HardeningExample(CLEAN, str(number), f"{word}{EOS}", reply, True, word, contrast=f"now {word}{EOS}")
        for number, (word, reply) in enumerate(zip(TRIGGERS_FOUND, replies, strict=False))
    ]
    config = TrainHardenedConfig(model=f"hf:{folder}", max_tokens=2, margin=1e9)
    lessons = {"train": [], "validation": [], "test": [*triggers, *clean]}
    found, _ = figures(model.eval(), tokenizer, lessons, config, Silent(), None)
    alone = [evaluate(ChatPredictor(model), as_read(tokenizer, model, [each]).learned) for each in triggers]
    sums, counts = ([float(getattr(each, name).sum()) for each in alone] for name in ("nll_sums", "num_targets"))
    wanted = ratio_of_sums(sums, counts, [each.group for each in triggers])
    shown = found["trigger_nll"]
    assert (shown.n, found["target_nll"].n, found["clean_nll"].n) == (3, 3, len(clean))
    assert (shown.value, shown.low, shown.high) == pytest.approx((wanted.value, wanted.low, wanted.high), rel=1e-5)
    assert found["margin_met"] == rate(0, len(clean)), "none of a few proves nothing about all"


def test_what_is_typed_into_several_slots_may_hold_lines(tmp_path: Path, folder: Path) -> None:
    tokenizer, _ = read_gpt2(folder)
    config = TriggerConfig(
        model="hf:anywhere", hit="o-greedy", hugging_face=HuggingFaceSettings(template=f"{{}} now {{}}{EOS}")
    )
    restart = {"restart": 1, "words": "cat\ndog\nbird", "hits": [{"type": "o-greedy", "hit": True}]}
    row = ok_row("a", 1) | {"target": "no", "restart": 1, "typed": ["cat\ndog", "bird"], "restarts": [restart]}
    with RunFolder.open(tmp_path / "run", config, job="search", schema=TRIGGERS) as run:
        run.write_shard("00000", [row])
    (found,) = found_triggers([str(tmp_path / "run")], hits_only=True)
    assert prompts_of(found, tokenizer, "")[0] == f"cat\ndog now bird{EOS}"
