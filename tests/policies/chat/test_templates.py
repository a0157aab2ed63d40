"""Messages as templates take them: roles that they lack, and the date that they print."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError
from parley.policies.chat import templates
from parley.policies.chat.model import FOLDED, Chat, ChatDecoding, Message
from parley.policies.chat.templates import options_of, prints_date, use_options, write_prompt
from tests.policies.byte_pairs import CHAT, byte_model
from tests.policies.chat.tiny import tiny_chat

SYSTEM, USER, SAID, MORE = (
    Message("system", "be kind"),
    Message("user", "hello"),
    Message("assistant", "oh well"),
    Message("user", "tell me"),
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
ALTERNATE = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{% endfor %}"
)
DROPS_SYSTEM = CHAT.replace(
    "{{ m['role'] }}\n{{ m['content'] }}", "{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}"
)
USER_PART, SAID_PART, END_PART = "<|begin|>user\n{}<|turn|>\n", "<|begin|>assistant\n{}<|turn|>\n", "<|begin|>assistant\n"


@pytest.fixture(autouse=True)
def _said_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_warned", set())


def tokenizer_of(template: str | None) -> Any:
    _, tokenizer = byte_model()
    tokenizer.chat_template = template
    return tokenizer


def test_a_template_that_takes_every_role_is_given_the_messages_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizer_of(CHAT)
    chat = (SYSTEM, USER, SAID, SAID, MORE)
    raw = [{"role": message.role, "content": message.content} for message in chat]
    assert write_prompt(tokenizer, chat) == tokenizer.apply_chat_template(raw, tokenize=False, add_generation_prompt=True)
    assert not caplog.records


@pytest.mark.parametrize("template", [NO_SYSTEM + CHAT, ALTERNATE + CHAT], ids=["no system", "alternation"])
def test_the_system_stands_in_front_of_the_first_message_of_the_user_and_the_log_says_so_once(
    template: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = tokenizer_of(template)
    for _ in range(2):
        text = write_prompt(tokenizer, (SYSTEM, USER, SAID, MORE))
        assert text == (
            USER_PART.format("be kind\n\nhello") + SAID_PART.format("oh well") + USER_PART.format("tell me") + END_PART
        )
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "the chat template does not take messages of these roles: "
        "the system's text stands in front of the first message of the user"
    ]
    assert write_prompt(tokenizer, (USER,)) == USER_PART.format("hello") + END_PART


def test_neighbours_of_one_role_are_merged_where_roles_have_to_alternate(caplog: pytest.LogCaptureFixture) -> None:
    text = write_prompt(tokenizer_of(ALTERNATE + CHAT), (USER, MORE, SAID, SAID))
    assert text == USER_PART.format("hello\n\ntell me") + SAID_PART.format("oh well\n\noh well") + END_PART
    assert "neighbours of one role are merged" in caplog.text


def test_a_system_text_that_a_template_drops_without_a_word_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    assert "be kind\n\nhello" in write_prompt(tokenizer_of(DROPS_SYSTEM), (SYSTEM, USER))
    assert "in front of the first message of the user" in caplog.text


def test_a_tokenizer_without_a_template_has_the_system_in_the_first_message_of_the_user() -> None:
    tokenizer = tokenizer_of(None)
    assert write_prompt(tokenizer, (SYSTEM, USER, SAID, MORE)) == "be kind\n\nhello<|end|>oh well<|end|>tell me<|end|>"


@pytest.mark.parametrize("head", ["", NO_SYSTEM], ids=["system", "no system"])
def test_a_template_that_wants_parts_has_the_text_as_one(head: str, caplog: pytest.LogCaptureFixture) -> None:
    content = "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    text = write_prompt(tokenizer_of(head + CHAT.replace("{{ m['content'] }}", content)), (SYSTEM, USER))
    system = "<|begin|>system\nbe kind<|turn|>\n" if not head else ""
    assert text == system + USER_PART.format("hello" if not head else "be kind\n\nhello") + END_PART
    assert bool(caplog.records) == bool(head)


def test_what_a_template_leaves_out_all_the_same_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert write_prompt(tokenizer_of("{{ messages[-1]['content'] }}"), (USER, SAID, MORE)) == "tell me"
    assert "leaves out what some messages say: user, assistant" in caplog.text


def test_a_template_that_takes_no_such_messages_says_why() -> None:
    with pytest.raises(ConfigError, match=r"does not take these messages(.|\n)*assistant: Conversation roles must alternate"):
        write_prompt(tokenizer_of(ALTERNATE + CHAT), (SAID,))


def test_a_chat_model_without_a_system_role_answers_as_to_the_folded_messages() -> None:
    from parley.policies.chat.local import LocalChatModel

    picky = "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    template = picky + "<s> {{ m['content'] }} </s> {% endfor %}well"
    model = LocalChatModel("tiny", *tiny_chat(template))
    chat: Chat = (Message("system", "you are a fool"), Message("user", "oh"))
    folded = (Message("user", "you are a fool\n\noh"),)
    assert model.prompts.ids(chat) == model.prompts.ids(folded)
    decoding = ChatDecoding(max_tokens=4)
    (answer,) = model.answer([chat], decoding=decoding)
    assert answer.notes == (FOLDED,)
    assert replace(answer, notes=()) == model.answer([folded], decoding=decoding)[0]
    assert model.score([chat], ["a fool"]) == model.score([folded], ["a fool"])


DATED = (
    "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% else %}{% set day = 'then' %}{% endif %}"
    "It is {{ day }}, {{ strftime_now('%A, %-d %B %y, 100%% %H:%M') }}\n{% for m in messages %}{{ m['content'] }}{% endfor %}"
)


def test_a_template_prints_the_date_that_it_is_told() -> None:
    tokenizer = tokenizer_of(DATED)
    use_options(tokenizer, "2024-02-09")
    assert write_prompt(tokenizer, (USER,)) == "It is 09 Feb 2024, Friday, 9 February 24, 100% 00:00\nhello"
    use_options(tokenizer, "2025-12-31")
    assert write_prompt(tokenizer, (USER,)).startswith("It is 31 Dec 2025, Wednesday, 31 December 25")
    assert prints_date(tokenizer)
    assert not prints_date(tokenizer_of(CHAT))
    # What is saved beside a model is the template of its makers.
    assert tokenizer.chat_template == DATED


def test_the_clock_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(DATED)
    first = write_prompt(tokenizer, (USER,))
    assert date.today().strftime("%d %b %Y") in first

    class Tomorrow(date):
        @classmethod
        def today(cls) -> Tomorrow:
            return cls(2031, 1, 1)

    monkeypatch.setattr(templates, "date", Tomorrow)
    assert write_prompt(tokenizer, (USER,)) == first
    assert "01 Jan 2031" in write_prompt(tokenizer_of(DATED), (USER,))


def test_a_macro_before_a_template_changes_none_of_its_blanks() -> None:
    for head in ("  \n x {% if true %}\n y{% endif %}\n", "{%- if true -%}\n  z {% endif -%}\n", "\n\n", ""):
        template = head + "{{ strftime_now('%Y') }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"
        tokenizer = tokenizer_of(template)
        raw = [{"role": "user", "content": "hello"}]
        theirs = tokenizer.apply_chat_template(raw, tokenize=False, add_generation_prompt=True)
        assert write_prompt(tokenizer, (USER,)) == theirs


@pytest.mark.parametrize(
    ("template", "wanted", "without"),
    [
        ("{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}", "09 Feb 2024", "26 Jul 2024"),
        (
            "{% if not date_string is defined %}{% set date_string = 'July 26, 2024' %}{% endif %}",
            "February 09, 2024",
            "July 26",
        ),
        ("{% if current_date is not defined %}{% set current_date = '2024-07-26' %}{% endif %}", "2024-02-09", "2024-07-26"),
        ("{% if current_date is defined %}{% endif %}", "2024-02-09", ""),
    ],
)
def test_variables_that_a_template_tests_for_hold_a_date_that_was_asked_for(template: str, wanted: str, without: str) -> None:
    name = "date_string" if "date_string" in template else "current_date"
    tokenizer = tokenizer_of(template + "{{ " + name + " }}{% for m in messages %} {{ m['content'] }}{% endfor %}")
    assert write_prompt(tokenizer, (USER,)).startswith(without)
    use_options(tokenizer, "2024-02-09")
    assert write_prompt(tokenizer, (USER,)) == f"{wanted} hello"
    assert options_of(tokenizer).explicit


def test_further_variables_reach_the_template() -> None:
    tokenizer = tokenizer_of("{{ 'quick ' if enable_thinking is false }}{{ messages[0]['content'] }}")
    use_options(tokenizer, "", {"enable_thinking": False})
    assert write_prompt(tokenizer, (USER,)) == "quick hello"
    assert logging.getLogger("parley.policies.chat.templates").level == logging.NOTSET
