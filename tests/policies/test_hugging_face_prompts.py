"""Prompts with slots, ends of replies and typed inputs, with a tokenizer that merges across boundaries."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.envs.core.errors import ConfigError, DataError
from parley.policies.chat.model import Message

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.chat.templates import template_of
from parley.policies.hugging_face.tokens import InputRules
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.policies.byte_pairs import BEGIN_ID, CHAT, END_ID, TURN_ID, byte_model
from tests.policies.small_hugging_face import t5

TURNS = (Message("system", "be {}"), Message("user", "{prompt} {}"), Message("assistant", "ok {}"), Message("user", "go on"))


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    return byte_model()


def victim_of(parts: tuple[Any, Any], length: int = 4, template: Any = None, **settings: Any) -> HuggingFaceCausal:
    return HuggingFaceCausal(*parts, length, template, **settings)


def own_prompt(tokenizer: Any, turns: list[tuple[str, str]]) -> list[int]:
    messages = [{"role": role, "content": content} for role, content in turns]
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    return ids


def test_slots_of_several_turns_share_the_searched_tokens_in_order(parts: tuple[Any, Any]) -> None:
    model, tokenizer = parts
    victim = victim_of(parts, 5, TURNS, prompt="tell me")
    words = tokenizer(" hello you are fool", add_special_tokens=False).input_ids[:5]
    assert len(words) == 5
    slots = victim.slot_texts(words)
    assert "".join(slots) == victim.tokenizer.decode(words)
    turns = [("system", f"be {slots[0]}"), ("user", f"tell me {slots[1]}"), ("assistant", f"ok {slots[2]}"), ("user", "go on")]
    assert victim.typed(words) == own_prompt(tokenizer, turns)
    ids, places = victim.prompt(victim.target("hello"))
    read = list(ids)
    for place, word in zip(places, words, strict=True):
        read[place] = word
    assert tokenizer.decode(read) == tokenizer.decode(victim.typed(words))
    reply_T = victim.target("hello")
    wanted_TV = model(input_ids=torch.tensor([[*read, *reply_T.tolist()]])).logits[0, len(read) - 1 : -1]
    found_TV = victim.reply_logits(victim.embedding_VE[torch.tensor([words])], reply_T[None])[0]
    torch.testing.assert_close(found_TV, wanted_TV, rtol=1e-4, atol=1e-4)


def test_inputs_that_give_other_tokens_when_they_are_typed_are_told_apart(parts: tuple[Any, Any]) -> None:
    victim = victim_of(parts)
    words = victim.searchable_V.nonzero()[:, 0]
    rows = words[torch.randint(len(words), (300, 4), generator=torch.Generator().manual_seed(3))]
    allowed = victim.allows(rows).tolist()
    marks = "<|begin|>user\n", "<|turn|>\n<|begin|>assistant\n"
    before, after = (victim.tokenizer(text, add_special_tokens=False).input_ids for text in marks)
    for ok, ids in zip(allowed, rows.tolist(), strict=True):
        typed = own_prompt(victim.tokenizer, [("user", victim.tokenizer.decode(ids))])
        assert ok == (typed == [*before, *ids, *after]) == victim.retokenises(ids)
    assert 0 < sum(allowed) < 300, "some are, and some are not"
    assert bool(victim_of(parts, rules=InputRules(typed=False)).allows(rows).all())


def test_the_end_of_a_turn_is_the_end_that_is_searched_and_every_end_ends(parts: tuple[Any, Any]) -> None:
    model, tokenizer = parts
    victim = victim_of(parts)
    assert (set(victim.end_ids), victim.end_id) == ({END_ID, TURN_ID}, TURN_ID)
    assert victim.target("hello").tolist()[-1] == TURN_ID
    assert TURN_ID not in victim_of(parts, end=False).target("hello").tolist()
    assert not victim.searchable_V[[END_ID, BEGIN_ID, TURN_ID]].any()
    ended = set()
    for text in ("hello", "fool", "you", "oh well", "a", "printer", "is", "me", "there", "here"):
        read = own_prompt(tokenizer, [("user", text)])
        said = model.generate(torch.tensor([read]), do_sample=False, max_new_tokens=40)[0, len(read) :].tolist()
        reply, has_ended = victim.say(read, 40)
        assert reply == [word for word in said if word not in (END_ID, TURN_ID)]
        assert has_ended == (said[-1] in (END_ID, TURN_ID))
        ended.add(said[-1])
    assert len(ended) > 1


def test_a_draw_follows_from_its_seed(parts: tuple[Any, Any]) -> None:
    victim = victim_of(parts)
    read = victim.typed(victim.tokenizer("hello you", add_special_tokens=False).input_ids)
    draws = [victim.say(read, 12, temperature=2.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert draws[0] not in draws[2:]


def test_a_reply_ends_where_the_model_reads_no_more(parts: tuple[Any, Any]) -> None:
    model, tokenizer = parts
    silent = victim_of(parts)
    silent.end_ids = ()
    read = own_prompt(tokenizer, [("user", "hello")])
    reply, ended = silent.say(read, 10_000)
    assert (len(reply), ended) == (model.config.n_positions - len(read) + 1, False)


def test_an_encoder_reads_what_was_typed(parts: tuple[Any, Any]) -> None:
    victim = t5()
    words = victim.tokenizer("you are well", add_special_tokens=False).input_ids
    assert victim.typed(words) == [*words, victim.end_id]
    said = victim.model.generate(torch.tensor([victim.typed(words)]), do_sample=False, num_beams=1, max_new_tokens=6)[0, 1:]
    reply, ended = victim.say(victim.typed(words), 6)
    assert [*reply, *([victim.end_id] if ended else [])] == said.tolist()


def test_an_alphabet_limits_the_tokens_of_inputs(parts: tuple[Any, Any]) -> None:
    def texts(alphabet: str) -> set[str]:
        victim = victim_of(parts, 2, rules=InputRules(alphabet=alphabet))
        return {victim.tokenizer.decode([i]) for i in victim.searchable_V.nonzero()[:, 0].tolist()}

    whole = texts("any")
    assert texts("ascii") == {text for text in whole if text.isascii()}
    assert texts("letters") == {text for text in whole if set(text) <= {" ", *string.ascii_letters}}
    assert texts("lower") == {text for text in whole if set(text) <= {" ", *string.ascii_lowercase}} < texts("letters")
    assert texts("[0-9]") == set(string.digits)
    with pytest.raises(ConfigError, match="no token may stand in an input"):
        texts("lowre")


def test_rules_hold_for_tokens_and_for_whole_inputs(parts: tuple[Any, Any]) -> None:
    victim = victim_of(parts, 2, rules=InputRules(typed=False, forbidden=("Fool",)))
    tokens = [victim.text([i, i])[: len(victim.text([i, i])) // 2] for i in victim.searchable_V.nonzero()[:, 0].tolist()]
    assert not any("fool" in token for token in tokens)
    f, ool = (victim.tokenizer(text, add_special_tokens=False).input_ids for text in ("f", "ool"))
    assert victim_of(parts, 1 + len(ool), rules=InputRules(typed=False, forbidden=("Fool",))).allows(
        torch.tensor([[*f, *ool], [*ool, *f]])
    ).tolist() == [False, True]
    with pytest.raises(ConfigError, match="another length"):
        _ = victim_of(parts, 9, rules=InputRules(start="hello")).start_ids


@pytest.mark.parametrize("template", ["suffix", "prefix", "system", TURNS])
def test_a_start_is_led_by_a_blank_where_its_place_asks_for_one(parts: tuple[Any, Any], template: Any) -> None:
    """As it is written "hello" is read as one token behind a blank, and as another one at the beginning of a text."""
    rules, named = (
        InputRules(start="hello you are a"),
        template_of(template, has_prompts=True) if template is not TURNS else TURNS,
    )
    victim = victim_of(parts, 5, named, prompt="tell me", rules=rules)
    ids = victim.start_ids
    assert ids is not None
    assert victim.retokenises(ids)
    assert "".join(victim.slot_texts(ids)).strip() == "hello you are a"
    assert bool(victim.allows(torch.tensor([ids]))[0])


@pytest.mark.parametrize(
    ("template", "prompt", "message"),
    [
        ((Message("user", "hello"),), None, "a place for the input"),
        ((Message("user", "{prompt} {}"),), None, "the targets have none"),
        ((Message("user", "{}"),), "tell me", "no place for them"),
        ((Message("user", "{}{}{}{}{}"),), None, "more slots than"),
    ],
)
def test_templates_that_do_not_fit_are_refused(parts: tuple[Any, Any], template: Any, prompt: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        victim_of(parts, 4, template, prompt=prompt)


def test_a_chat_template_that_leaves_the_system_out_has_it_in_the_users_message(
    parts: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, tokenizer = parts
    kept = tokenizer.chat_template
    tokenizer.name_or_path = "hf:here"
    tokenizer.chat_template = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}"
    try:
        victim = victim_of(parts, 4, template_of("system", has_prompts=True), prompt="tell me")
        assert victim.template == "{}\n\ntell me"
        assert "hf:here: the chat template does not take messages of these roles" in caplog.text
        tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}{% endfor %}"
        with pytest.raises(ConfigError, match=r"leaves slots out(.|\n)*where: hf:here"):
            victim_of(parts, 4, (Message("user", "{}"),))
        tokenizer.chat_template = "{{ raise_exception('no system') }}"
        with pytest.raises(ConfigError, match=r"does not take these messages(.|\n)*where: hf:here(.|\n)*no system"):
            victim_of(parts, 4)
    finally:
        tokenizer.chat_template = kept


@pytest.mark.parametrize("content", ["m['content']", "m['content'] | trim"])
def test_the_beginning_of_an_answer_is_gone_on_with_to_its_last_blank(parts: tuple[Any, Any], content: str) -> None:
    _, tokenizer = parts
    kept = tokenizer.chat_template
    tokenizer.chat_template = CHAT.replace("m['content']", content)
    try:
        chat = (Message("user", "tell me {}"), Message("assistant", "Sure, here is "))
        victim = victim_of(parts, 4, chat)
        assert victim.template == "<|begin|>user\ntell me {}<|turn|>\n<|begin|>assistant\nSure, here is "
        begun = (chat[0], Message("assistant", "  Sure"))
        if "trim" in content:
            with pytest.raises(ConfigError, match="does not leave the beginning of an answer as it is"):
                victim_of(parts, 4, begun)
    finally:
        tokenizer.chat_template = kept


def test_messages_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": turn.role, "content": turn.content} for turn in TURNS]))
    assert template_of(str(path), has_prompts=True) == TURNS
    assert template_of(None, has_prompts=True) == (Message("user", "{prompt} {}"),)
    for content in ("[]", '[{"role": "user"}]', '[{"role": "judge", "content": "{}"}]', '[{"role": "user", "content": 1}]'):
        path.write_text(content)
        with pytest.raises(DataError):
            template_of(str(path), has_prompts=True)
    with pytest.raises(ConfigError, match="did you mean 'suffix'"):
        template_of("sufix", has_prompts=True)
