"""Reasoning is parted from the reply, whatever marks stand around it."""

from __future__ import annotations

import pytest

from parley.policies.chat.answers import OwnChatModel
from parley.policies.chat.completions import MARKS, PartedText, before_end_mark, is_tool_call, opens_thinking, part_thinking
from parley.policies.chat.model import Answer, AnswerKind, ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings


@pytest.mark.parametrize(("start", "end"), MARKS)
def test_reasoning_between_marks_is_no_reply(start: str, end: str) -> None:
    assert part_thinking(f"{start}\nSorry or not?\n{end}\n\ni am fine") == ("i am fine", "Sorry or not?", True)
    assert part_thinking(f"Sorry or not?\n{end}i am fine") == ("i am fine", "Sorry or not?", True)
    assert part_thinking(f" {start}Let me think") == ("", "Let me think", False)
    assert part_thinking(f"{start}a{end}\n{start}b{end}c") == ("c", "a\nb", True)


def test_a_mark_behind_the_first_words_of_a_reply_is_text() -> None:
    for text in ("i am fine", "write <think> first", "", " both ends "):
        assert part_thinking(text) == (text, "", True)


def test_a_prompt_may_have_begun_to_think() -> None:
    assert part_thinking("and so on", begun=True) == ("", "and so on", False)
    assert part_thinking("and so</think>fine", begun=True) == ("fine", "and so", True)


def test_channels_have_one_final_message() -> None:
    text = "<|channel|>analysis<|message|>They greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"
    assert part_thinking(text) == ("Hello.", "They greet.", True)
    assert part_thinking("<|channel|>analysis<|message|>They gr") == ("", "They gr", False)
    assert part_thinking("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>") == ("b", "a", True)


def test_sentences_end_thinking_only_where_they_began_it() -> None:
    text = "Here is my thought process:\n\nThey greet.\n\nHere is my response:\n\nHello."
    assert part_thinking(text) == ("Hello.", "They greet.", True)
    assert part_thinking("Here is my response: hello") == ("Here is my response: hello", "", True)
    assert part_thinking("Here is my thought process: They") == ("", "They", False)


@pytest.mark.parametrize("name", ["answer", "response"])
def test_marks_around_a_reply_behind_thinking_are_no_part_of_it(name: str) -> None:
    assert part_thinking(f"<think>\na\n</think>\n<{name}>\nb\n</{name}>") == ("b", "a", True)
    assert part_thinking(f"<think>a</think><{name}>b is") == ("b is", "a", True)
    assert part_thinking(f"<{name}>b</{name}>") == (f"<{name}>b</{name}>", "", True)


@pytest.mark.parametrize(("start", "end"), MARKS)
def test_a_prompt_that_ends_with_a_start_begins_thinking(start: str, end: str) -> None:
    assert opens_thinking(f"<|im_start|>assistant\n{start}\n")
    assert not opens_thinking(f"<|im_start|>assistant\n{start}\n\n{end}\n\n")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer("yes"), AnswerKind.REPLY),
        (Answer("ye", "length"), AnswerKind.CUT),
        (Answer("", "length", reasoning="hm"), AnswerKind.CUT_IN_THINKING),
        (Answer(" \n", "length"), AnswerKind.CUT_IN_THINKING),
        (Answer("", reasoning="42"), AnswerKind.ONLY_THINKING),
        (Answer("", "refusal", withheld="no"), AnswerKind.REFUSED),
        (Answer("", "content_filter", withheld="half"), AnswerKind.FILTERED),
        (Answer("half", "content_filter"), AnswerKind.FILTERED),
        (Answer("", "tool_calls"), AnswerKind.TOOL_CALL),
        (Answer(""), AnswerKind.EMPTY),
    ],
)
def test_an_answer_has_one_kind(answer: Answer, kind: AnswerKind) -> None:
    assert answer.kind is kind
    assert answer.is_reply == (kind in (AnswerKind.REPLY, AnswerKind.CUT))
    assert bool(answer.text.strip()) == answer.is_reply, "text is a reply"
    assert answer.withheld == {AnswerKind.REFUSED: "no", AnswerKind.FILTERED: "half"}.get(kind, "")


def test_an_unknown_finish_reason_is_named() -> None:
    with pytest.raises(ValueError, match=r"finish_reason is one of stop, length, .* got 'done'"):
        Answer("yes", "done")


def test_a_model_of_ones_own_may_say_what_it_thinks() -> None:
    texts = iter(["<think>hm</think> yes", "<think>hm", "yes"] * 2)
    for parts, expected in ((True, ["yes", "", "yes"]), (False, ["<think>hm</think> yes", "<think>hm", "yes"])):
        model = OwnChatModel("mine", lambda messages: next(texts), ChatModelSettings(thinking="part" if parts else "keep"))
        answers = model.answer([(Message("user", "well?"),)] * 3, decoding=ChatDecoding())
        assert [answer.text for answer in answers] == expected
    assert OwnChatModel("mine", print).answers_depend_on != model.answers_depend_on


@pytest.mark.parametrize(
    "text",
    [
        "<THINK>hm</THINK>yes",
        "<think time=3>hm</think>yes",
        "<reflection>hm</reflection>yes",
        "<inner_thoughts>hm</inner_thoughts> yes",
        "<|begin_of_thought|>hm<|end_of_thought|><|begin_of_solution|>yes<|end_of_solution|>",
        "<unused94>thought\nhm<unused95>yes",
        "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\nyes\n[END FINAL RESPONSE]",
        "analysisHm.assistantfinalyes",
    ],
)
def test_marks_of_other_names_and_shapes_are_parted(text: str) -> None:
    parted = part_thinking(text)
    assert (parted.reply, parted.closed) == ("yes", True)
    assert parted.reasoning.strip(".").lower() == "hm"


def test_a_thought_within_a_thought_is_none_of_the_reply() -> None:
    assert part_thinking("<think>a <think>b</think> c</think>d").reply == "d"
    assert part_thinking("<think>they want <think> from me</think>d").reply == "d"


def test_channels_without_their_tokens_or_with_a_call_alone_have_no_reply() -> None:
    assert part_thinking("analysisWe need") == PartedText("", "We need", False)
    assert part_thinking("analysis of the text: good").reply == "analysis of the text: good"
    called = part_thinking("<|channel|>commentary to=f <|constrain|>json<|message|>{}<|call|>")
    assert (called.reply, called.closed) == ("", False)


def test_the_call_of_a_tool_as_text_is_one() -> None:
    assert is_tool_call('<tool_call>\n{"name": "f"}\n</tool_call>')
    assert is_tool_call('[TOOL_CALLS][{"name": "f"}]')
    assert not is_tool_call("write <tool_call> to call it")


@pytest.mark.parametrize(
    "text",
    [
        "<thinking-cap>is a fine name for an element</thinking-cap>",
        "<design-thinking>a way to work</design-thinking>",
        "<unthinkable>is none</unthinkable> of the names",
        "<thinking hard> I would say Tuesday.",
        "<thoughtful/> is an empty element",
        "analysisResult = compute(x)",
        "analysisX is the best of the tools",
        "analysisServices.Thing is a class; it needs We as well",
        "You close it with `</think>`, and then you answer.",
        'The mark "</think>" ends what was thought.',
    ],
)
def test_a_text_of_names_that_begin_alike_or_of_marks_in_quotes_is_a_reply(text: str) -> None:
    assert part_thinking(text) == PartedText(text, "", True)


@pytest.mark.parametrize("beginning", ["Here are my reasoning steps:", "Here is my thought process:"])
def test_a_whole_reply_that_begins_in_the_words_of_thinking_is_a_reply_and_one_that_was_cut_is_none(beginning: str) -> None:
    text = f"{beginning} first I add, then I divide."
    assert part_thinking(text, ended=True) == PartedText(text, "", True)
    assert part_thinking(text) == PartedText("", "first I add, then I divide.", False)


def test_a_prompt_may_end_with_the_words_of_thinking() -> None:
    assert opens_thinking("<|assistant|>\nHere are my reasoning steps:\n")
    assert part_thinking("hm\n[BEGIN FINAL RESPONSE]\nyes", begun=True) == PartedText("yes", "hm", True)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("yes<|im_end|>", "yes"),
        ("yes.\n<|im_end|>\n", "yes."),
        ("yes. <end_of_turn>", "yes."),
        ("yes</s>", "yes"),
        ("yes</s></s>", "yes"),
        ("<|eot_id|>", ""),
        ("yes<|im_end|>\n<|im_start|>user\nand you?", "yes"),
        ("yes<|end|>user: and you?", "yes"),
        ("Yes.<|endoftext|>The weather is fine", "Yes."),
    ],
)
def test_a_text_ends_at_the_mark_of_an_end(text: str, reply: str) -> None:
    assert before_end_mark(text) == reply


@pytest.mark.parametrize(
    "text",
    [
        "It was <s>ten</s>",
        "<s>ten</s> nine",
        "In that format the mark is </s>",
        "ChatML uses <|im_start|> and <|im_end|> to mark turns.",
        "ChatML looks so:\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>",
        "```\nhi<|im_end|>\n<|im_start|>user\n```",
        "End a turn with `<|eot_id|>`",
        'The last token is "<|endoftext|>"',
        "The marks are:\n<|end|>\n<|endoftext|>",
        "Between two texts stands one: a<|endoftext|>b",
    ],
)
def test_a_text_about_marks_of_an_end_stays_whole(text: str) -> None:
    assert before_end_mark(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> is the mark that Qwen writes",
        "[TOOL_CALLS] is the mark that Mistral writes",
        "<|python_tag|> is a token of Llama 3.1",
        "<function=NAME is how it begins",
        "<function_call> is deprecated",
        "[Tool] hammer",
    ],
)
def test_a_text_about_the_mark_of_a_call_is_a_reply(text: str) -> None:
    assert not is_tool_call(text)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>\n</function>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>",
        '[TOOL_CALLS]f[ARGS]{"a": 1}',
        '<|python_tag|>f.call(query="x")',
        "<function=f>{}</function>",
    ],
)
def test_calls_of_other_makers_are_calls(text: str) -> None:
    assert is_tool_call(text)


@pytest.mark.parametrize("text", ["\u200b", " \n", "\ufeff\u2060", "\u200b \u200b"])
def test_what_nobody_sees_is_no_reply(text: str) -> None:
    answer = Answer(text)
    assert (answer.kind, answer.text) == (AnswerKind.EMPTY, "")
