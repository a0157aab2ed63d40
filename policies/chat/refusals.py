"""Refusals of servers of chat completions: their meaning, the errors they raise, and the keys that must not be shown.

No two makers agree on statuses, codes or words, so all three are read, and the numbers in a message. Texts of the request are
ignored, because a server may repeat them. Wordings are those of OpenAI and Azure, vLLM, SGLang, TGI, llama.cpp's server,
LM Studio, Ollama, TensorRT-LLM, Mistral, Anthropic, Gemini, Bedrock, xAI, Groq, DeepSeek, Kimi, DashScope, OpenRouter and
LiteLLM, taken from their pages and from public reports.

Keys are read from the environment at each request, sent to one server, and removed from everything that is shown or kept: no
name, attribute, row, log or error holds one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from parley.envs.core.errors import ConfigError, ModelError, ParleyError, RefusedModelError
from parley.policies.chat.model import Answer, ChatTooLongError, refuses_order, refuses_system
from parley.policies.chat.settings import LIMITS

KEYS = ("PARLEY_API_KEY", "OPENAI_API_KEY")
"""Environment variables of a key for all servers, in this order."""
_OF_HOSTS = f"{KEYS[0]}_"
_KEYS, _OF_HOSTS_BYTES = frozenset(name.encode() for name in KEYS), _OF_HOSTS.encode()
_SHORTEST = 8
"""Least length of a key that is removed from texts; servers without keys are given shorter ones, such as `none`."""
_BEGINNING = 4
"""Characters of a key that a server may show."""


def key_variables(url: str) -> tuple[str, ...]:
    """Return the environment variables of a server's key, in the order in which they are read.

    Those of its host and port come first, then of its host, then those for all servers. Of https://api.example.com:8443/v1 the
    first two are PARLEY_API_KEY_API_EXAMPLE_COM_8443 and PARLEY_API_KEY_API_EXAMPLE_COM.
    """
    parts = urlsplit(url)
    host = re.sub(r"[^A-Z0-9]", "_", (parts.hostname or "").upper())
    by_port = [f"{KEYS[0]}_{host}_{parts.port}"] if parts.port else []
    return *by_port, f"{KEYS[0]}_{host}", *KEYS


def api_key(url: str) -> str:
    """Return the key of a server; empty for none, or if the variable of its host is empty.

    Raises:
        ConfigError: the variable holds characters that no header can; the message does not show it.
    """
    *of_host, general, openai = key_variables(url)
    for variable in (*of_host, general, openai):
        if variable not in os.environ:
            continue
        key = os.environ[variable].strip()
        if not key.isascii() or (key and not key.isprintable()) or " " in key:
            fix = "export it anew, without quotes, blanks and line breaks inside"
            raise ConfigError("the key holds characters that no key has", where=variable, fix=fix)
        if key or variable in of_host:
            return key
    return ""


def without_keys(body: bytes) -> bytes:
    """Return a response without any key of this process, also where JSON, HTML or an address escapes it."""
    for key in _secrets():
        body = re.sub("".join(map(_escaped, key)).encode(), b"[key]", body, flags=re.IGNORECASE)
    return body


def holds_keys() -> bool:
    """Return whether this process has a key that responses may repeat."""
    return bool(_secrets())


def answer_without_keys(answer: Answer) -> Answer:
    """Return an answer without any key of this process, such as one spread over several parts."""
    text, reasoning, withheld = (
        without_keys(part.encode()).decode() for part in (answer.text, answer.reasoning, answer.withheld)
    )
    return replace(answer, text=text, reasoning=reasoning, withheld=withheld)


def blotted(text: str) -> str:
    """Return the text of an error without keys, whole or shortened."""
    shown = without_keys(text.encode("utf-8", "replace")).decode()
    begins = "".join(rf"|\b{re.escape(key[:_BEGINNING])}[\w*.…-]*" for key in _secrets())
    return re.sub(rf"\b(sk|pk|key)-[\w*.…-]{{4,}}|[\w.-]*\*{{3,}}[\w*.-]*{begins}", "[key]", shown)


def _secrets() -> list[str]:
    # Names as bytes: each text that is read is decoded anew, for every answer.
    names = [name.decode() for name in os.environb if name in _KEYS or name.startswith(_OF_HOSTS_BYTES)]
    named = (os.environ[name].strip() for name in names if name in os.environ)
    return sorted({key for key in named if len(key) >= _SHORTEST and key.isascii()}, key=len, reverse=True)


def _escaped(character: str) -> str:
    code = ord(character)
    plain = re.escape(character)
    return rf"(?:\\*{plain}|\\+u{code:04x}|&#0*{code};|&#x0*{code:x};|%{code:02x})"


NUM_LOGPROBS = ("top_logprobs", "logprobs")
"""Fields that say how many log probabilities are asked for."""
NO_LOGPROBS = (
    "ask a server that shows them (vLLM, llama.cpp, OpenAI; of given replies vLLM, or one that takes echo behind "
    "/completions), a model whose weights are here, or go on with text alone: --set chat.logprobs=no"
)
"""A fix for a server that shows no log probabilities."""
_SHOWN = 160
_DEEPEST = 6
_SAID_AGAIN = 12
BUSY = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that may succeed later."""


class RefusalKind(Enum):
    """The kinds of refusals."""

    TOO_LONG = auto()
    """The messages are longer than the model reads."""
    NO_ROOM = auto()
    """The messages fit, and leave less room than an answer was allowed."""
    FILTERED = auto()
    """Moderation stops the text."""
    CUT_IN_THINKING = auto()
    """All tokens of an answer went to reasoning, which some servers say by an error."""
    QUOTA = auto()
    """Nothing is left to pay with."""
    KEY = auto()
    """The key is wrong, or there is none."""
    NO_MODEL = auto()
    """The server has no such address or model."""
    FIELD = auto()
    """A field of the request is unknown, or takes no value but its default."""
    VALUE = auto()
    """A field of the request takes other values."""
    SYSTEM = auto()
    """No message of the system is taken."""
    TURNS = auto()
    """Roles have to alternate."""
    FORBIDDEN = auto()
    """Status 403 without a reason: about the text, or about the account."""
    BUSY = auto()
    """It may succeed later."""
    OTHER = auto()
    """Anything else."""


class RefusalReading(NamedTuple):
    """The meaning of a refusal.

    Args:
        kind: of the refusal.
        field: of the request, where it is about one.
        room: tokens that an answer may have at most; None where the server does not say.
    """

    kind: RefusalKind
    field: str = ""
    room: int | None = None


_LONG_CODES = frozenset(
    {
        *(
            "context_length_exceeded",
            "exceed_context_size_error",
            "context_window_exceeded",
            "prompt_too_long",
            "input_too_long",
        ),
        *("model_max_prompt_tokens_exceeded", "request_too_large", "string_above_max_length", "contextwindowexceedederror"),
    }
)
_TEXT = r"(?:input|prompt|messages?|context|sequence|question|conversation)"
_BEYOND = r"(?:is |are |was )?(?:above|over|beyond|longer than|larger than|greater than|more than)"
_LONG = re.compile(
    "|".join(
        (
            r"max(?:imum)? (?:context|model|prompt|input|sequence) (?:length|size|window)",
            r"(?:context|prompt|input)[ _](?:length|window|size) (?:is |was |has been )?(?:exceed(?:ed|s)|too \w+)",
            r"exceed(?:s|ed|ing)? (?:the |this |its )?(?:[\w']+ ){0,3}(?:context (?:size|length|window)|token limit)",
            r"exceed(?:s|ed|ing)? (?:the )?max(?:imum)? (?:number of )?(?:input |prompt )?(?:tokens|length)",
            r"longer than the (?:model's |maximum )",
            r"(?:prompt|input|messages?|request|conversation|context|sequence)(?: is| are)? too (?:long|large)",
            r"too large for model|too long to fit|context overflow|overflows? the context|context the overflows",
            r"reduce (?:the length of the|your) (?:messages?|prompt|input)|(?:decrease|shorten) (?:your )?(?:input|prompt)",
            r"token count (?:of )?\S* ?exceeds|greater than the context (?:length|size|window)|range of input length",
            r"inputs must have less than|max_tokens must be at least 1, got -|token limit (?:was |is )?exceeded",
            r"context shift is disabled|input tokens (?:is|should be|must be) (?:below|under|less)",
            # A part of a request, its length, and a bound of it.
            rf"(?:length of|tokens? (?:in|of)|{_TEXT}) (?:[^.]{{0,30}} )?(?:length )?(?:exceeds?|{_BEYOND}) (?:[^.]{{0,30}} )?"
            r"(?:\d|max|limit|tokens|context)",
            rf"max(?:imum)? (?:allowed )?(?:length|tokens|size) (?:of|for|in) (?:[^.]{{0,20}} )?{_TEXT}",
            rf"max(?:imum)? (?:allowed )?{_TEXT} (?:length|tokens|size)",
        )
    ),
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"limit|max|at most|exceed|longer|larger|greater|too (?:many|long|large)|only|allowed|up to|under|below|over|above|<|>",
    re.IGNORECASE,
)
_FILTER_CODES = frozenset(
    {
        *("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "contentpolicyviolationerror"),
        *("data_inspection_failed", "datainspectionfailed", "guardrail_intervened", "moderation_blocked", "content_moderation"),
    }
)
_FILTER = re.compile(
    "|".join(
        (
            r"content[ _-]?(?:filter|polic|management polic|safety|violat|moderat|exists risk|inspection)|datainspection",
            r"moderat(?:ion|ed)|\bflagged|guard ?rail|responsible ?ai|usage (?:polic|guideline)|acceptable use",
            r"safety (?:system|filter|polic|setting|check|guideline)|inappropriate|harmful|prohibited content|jailbreak",
            r"(?:blocked|rejected|refused|stopped) (?:by|due to|because of|for) (?:\S+ ){0,6}(?:polic|filter|safety|guard)",
            r"(?:sensitive|unsafe|offensive|toxic|explicit|illegal) (?:words?|content|information|text|material)",
            r"violat\w+ (?:\S+ ){0,5}(?:polic|guideline|terms|rules)|(?:security|safety|policy) violation|(?:is|was|as) unsafe",
            r"(?:prompt|content|input|output|text|message|answer|response)s? (?:(?:is|was|ha\w+ been) )?(?:blocked|censored)",
            r"(?:prompt|jailbreak) ?(?:injection|attack)|\bpii\b|blocked by (?:\S+ ){0,2}(?:firewall|classifier)",
            # Words of Chinese servers: sensitive, unsafe, against the rules.
            "\u654f\u611f|\u4e0d\u5b89\u5168|\u8fdd\u89c4",
        )
    ),
    re.IGNORECASE,
)
_FILTER_CODE = re.compile(
    r"content_?(?:block|filter|polic|moderat|safety|violat)|blocked_by|injection|guard_?rail|sensitive_?content|moderation|"
    r"unsafe|policy_?violation|safety_?(?:block|violat|filter|check)|prompt_?block"
)
"""A code of a moderation error, in small letters."""
_ACCOUNT = re.compile(
    r"(?:api|wrong|invalid|this|your|the)[ _-]?key\b|\baccount|organi[sz]ation|credential|suspend|deactivat|\bbanned|"
    r"subscription|unauthori[sz]ed|country, region|your (?:country|region|location|ip)\b",
    re.IGNORECASE,
)
"""Words of a refusal that is about the account, whatever else it names."""
_KEY = re.compile(r"(?:invalid|incorrect|wrong) api[ _-]?key|api[ _-]?key (?:is )?(?:not valid|invalid|expired)", re.IGNORECASE)
_QUOTA_CODES = frozenset(
    {
        *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"),
        *("insufficient_credits", "payment_required", "arrearage", "budget_exceeded", "usage_limit_reached"),
    }
)
_QUOTA = re.compile(
    r"exceeded your current quota|insufficient (?:quota|balance|credits?|funds?)|credit balance is too low|out of credits|"
    r"billing (?:hard )?limit|payment required|spending limit|key limit exceeded|check your plan and billing|"
    r"insufficient_quota|"
    r"(?:balance|credits?|funds?|quota) (?:(?:is|are|has been|have been) )?(?:insufficient|exhausted|used up|too low|depleted)|"
    r"(?:monthly|annual|yearly) (?:\w+ ){0,2}(?:limit|quota|budget)|(?:exceeded|over) (?:\w+ ){0,3}budget|"
    r"quota (?:was |is |has been )?exceeded for (?:the|this) month|budget has been exceeded|in arrears|recharge",
    re.IGNORECASE,
)
_MODEL_CODES = frozenset({"model_not_found", "invalid_model", "model_not_available"})
_TOO_MUCH_A_MINUTE = re.compile(
    r"request too large .{0,80}tokens per (?:min|day)|must be reduced in order to run", re.IGNORECASE
)
_CUT_IN_THINKING = re.compile(
    r"could not finish the message because max_tokens or model output limit was reached", re.IGNORECASE
)
_LACKS = re.compile(
    r"unsupported|not (?:be )?support|does ?n[o']t support|unknown|unrecogni[sz]ed|extra (?:inputs?|fields?)|extra_forbidden|"
    r"not (?:permitted|allowed|implemented|accepted)|unexpected|deprecat|cannot find field|only the default|no longer|"
    r"invalid (?:field|parameter|argument|key)|must be strictly positive|"
    # Only the default value is allowed.
    r"only (?:\S+ )?(?:= ?)?1 is (?:allowed|supported)|only \w+ ?= ?1 |"
    r"(?:must be|may only be|can only be) (?:set to )?1\b(?!\.?\d| or)",
    re.IGNORECASE,
)
_LACKS_FOR_SURE = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|extra_forbidden|unexpected keyword|unknown (?:field|parameter|argument|key|name)",
    re.IGNORECASE,
)
"""The same of a server that fails, whose errors may name a field without being about it."""
_RANGE = re.compile(
    r"between|less than|greater than|at most|at least|in (?:the )?range|[<>]=|\u2264|too (?:high|large)|"
    r"(?:above max|below min)imum",
    re.IGNORECASE,
)
_NUMBER = r"(\d[\d,]*)"
_SUM = re.compile(rf"{_NUMBER} \+ {_NUMBER} > {_NUMBER}")
_LESS = re.compile(rf"> {_NUMBER} - {_NUMBER}")
_CONTEXT = re.compile(rf"context (?:length|window|limit|size)(?: is| of)? {_NUMBER}|must be <= {_NUMBER}", re.IGNORECASE)
_PROMPT = re.compile(
    rf"{_NUMBER} (?:input tokens|in the (?:messages|prompt)|tokens from the input|inputs tokens)", re.IGNORECASE
)
_MOST = re.compile(
    rf"at most {_NUMBER} (?:completion|output) tokens|> {_NUMBER}, which is the maximum|"
    rf"range of max_tokens is \[1, ?{_NUMBER}\]|max(?:_completion)?_tokens\b.{{0,60}}expected a value <= {_NUMBER}|"
    rf"(?<!\+ )max_new_tokens must be <= {_NUMBER}|max(?:_\w+)?_tokens exceeds (?:the )?max(?:imum)?(?: of)? {_NUMBER}|"
    rf"(?:max_tokens|max_completion_tokens) (?:must|should|has to) be (?:less than or equal to|at most|<=) {_NUMBER}",
    re.IGNORECASE,
)
_SOON = re.compile(
    r"(?:retry|try again|retrydelay\W{1,5}) ?(?:in|after|: ?)? ?\"?(?:(\d+)m)?(\d+(?:\.\d+)?) ?(ms|s\b|sec)", re.IGNORECASE
)


@dataclass(frozen=True)
class Refusal:
    """A server's response without an answer.

    Args:
        status: of HTTP, or the one that an answer with status 200 names.
        text: its words.
        codes: codes and types of the error, in small letters.
        params: fields of the request that it names apart from its words.
        shown: the beginning of the body.
        in_answer: whether it came with status 200.
        wait_s: seconds that it asks to wait; None where it does not say.
    """

    status: int
    text: str
    codes: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()
    shown: str = ""
    in_answer: bool = False
    wait_s: float | None = None

    @classmethod
    def of_response(cls, status: int, body: bytes, request_texts: Sequence[str] = (), wait_s: float | None = None) -> Refusal:
        """Read the body of a response.

        Args:
            status: of HTTP.
            body: of the response; of any form, or empty.
            request_texts: texts of the request, which say nothing where the server says them again.
            wait_s: seconds that a header asks to wait.
        """
        try:
            document = json.loads(body.decode("utf-8-sig", "replace"), strict=False)
        except (ValueError, RecursionError):
            document = None if is_page(body) else body.decode("utf-8", "replace")
        return cls.of_document(document, status, request_texts, wait_s, excerpt(body))

    @classmethod
    def of_document(
        cls,
        document: object,
        status: int,
        request_texts: Sequence[str] = (),
        wait_s: float | None = None,
        shown: str | None = None,
    ) -> Refusal:
        """Read an error as JSON; one within an answer of status 200 has the status that it names, or 500."""
        words, codes, params = list[str](), set[str](), set[str]()
        for kind, value in _parts(document, 0):
            {"text": words.append, "code": codes.add, "param": params.add}[kind](value)
        text = " ".join(dict.fromkeys(words))
        for request_text in request_texts:
            # Shorter texts are harmless, and may be a part of any word.
            if len(request_text) >= _SAID_AGAIN:
                text = text.replace(request_text, " ")
        plain = " ".join(re.sub(r"[`'\"*]", "", text).split())
        named_status = next((int(code) for code in codes if code.isdigit() and 400 <= int(code) < 600), 500)
        beginning = excerpt(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")) if shown is None else shown
        wait = _seconds_in(text) if wait_s is None else wait_s
        return cls(
            named_status if status == 200 else status,
            plain,
            frozenset(codes),
            frozenset(params),
            beginning,
            status == 200,
            wait,
        )

    def read(self, request: Mapping[str, Any]) -> RefusalReading:
        """Return the meaning of the refusal of a request with this body."""
        if self._is_quota():
            return RefusalReading(RefusalKind.QUOTA)
        if self.status == 401 or (self.status in (400, 403) and _KEY.search(self.text)):
            return RefusalReading(RefusalKind.KEY)
        if self.status == 413 or (self.status == 429 and _TOO_MUCH_A_MINUTE.search(self.text)):
            return RefusalReading(RefusalKind.TOO_LONG)
        if self.status == 404 or (self.status in (400, 403, 422) and self.codes & _MODEL_CODES):
            return RefusalReading(RefusalKind.NO_MODEL)
        about_request = self.status in (400, 403, 406, 422, 446, 451, 500, 501)
        if about_request and (reading := self._about_the_request(request)):
            return reading
        return RefusalReading(RefusalKind.BUSY if self.status in BUSY else RefusalKind.OTHER)

    def _is_quota(self) -> bool:
        if self.status == 402 or self.codes & _QUOTA_CODES:
            return True
        # Gemini uses the same words for a limit by the minute, and then says when to come back.
        return self.status in (400, 403, 429) and self.wait_s is None and _QUOTA.search(self.text) is not None

    def _about_the_request(self, request: Mapping[str, Any]) -> RefusalReading | None:
        words = self.text
        about_who = _ACCOUNT.search(words) is not None
        speaks = self.status != 500 and not about_who and _FILTER.search(words) is not None
        coded = self.codes & _FILTER_CODES or any(_FILTER_CODE.search(code) for code in self.codes)
        if coded or speaks or self.status in (446, 451):
            return RefusalReading(RefusalKind.FILTERED)
        if self.status == 403:
            return None if about_who else RefusalReading(RefusalKind.FORBIDDEN)
        if _CUT_IN_THINKING.search(words):
            return RefusalReading(RefusalKind.CUT_IN_THINKING)
        limit = next((name for name in LIMITS if name in request), "")
        if limit and (room := self._room()) is not None:
            return RefusalReading(RefusalKind.NO_ROOM, limit, room) if room > 0 else RefusalReading(RefusalKind.TOO_LONG)
        if self.codes & _LONG_CODES or _LONG.search(words):
            return RefusalReading(RefusalKind.TOO_LONG)
        if refuses_system(words):
            return RefusalReading(RefusalKind.SYSTEM)
        if refuses_order(words):
            return RefusalReading(RefusalKind.TURNS)
        if kind := self._about_a_field(field := self._field(request), request):
            return RefusalReading(kind, field)
        return RefusalReading(RefusalKind.TOO_LONG) if self.status != 500 and self._says_too_many_tokens() else None

    def _field(self, request: Mapping[str, Any]) -> str:
        """Return the field of the request that it is about; empty for none."""
        given = [name for name in request if name not in ("model", "messages")]
        named = [name for name in given if name in self.params]
        mentioned = [name for name in given if re.search(rf"\b{re.escape(name)}\b", self.text, re.IGNORECASE)]
        other_limit = [name for name in given if name in LIMITS and any(other in self.text for other in LIMITS)]
        return next(iter([*named, *mentioned, *other_limit]), "")

    def _about_a_field(self, field: str, request: Mapping[str, Any]) -> RefusalKind | None:
        """Return the kind of a refusal of a field: unknown, other values, or None for neither."""
        if not field:
            return None
        if field in LIMITS and any(other in self.text for other in LIMITS if other != field) and "instead" in self.text:
            return RefusalKind.FIELD
        if field == "temperature" and not request[field] and self.status < 500:
            # It takes no temperature of 0, whatever its words.
            return RefusalKind.FIELD
        if request[field] and _RANGE.search(self.text):
            return RefusalKind.VALUE if self.status < 500 else None
        lacks = _LACKS_FOR_SURE if self.status >= 500 else _LACKS
        return RefusalKind.FIELD if lacks.search(f"{self.text} {' '.join(self.codes)}") else None

    def _room(self) -> int | None:
        """Return how many tokens an answer may have by the numbers in the message; None if it names none."""
        if match := _LESS.search(self.text):
            context, prompt = map(_whole, match.groups())
            return context - prompt
        if match := _SUM.search(self.text):
            prompt, _, context = map(_whole, match.groups())
            return context - prompt
        if match := _MOST.search(self.text):
            return _whole(next(filter(None, match.groups())))
        context_match, prompt_match = _CONTEXT.search(self.text), _PROMPT.search(self.text)
        if context_match and prompt_match:
            return _whole(next(filter(None, context_match.groups()))) - _whole(prompt_match[1])
        return None

    def _says_too_many_tokens(self) -> bool:
        numbers = {_whole(number) for number in re.findall(r"\d[\d,]*", self.text)}
        return "token" in self.text.lower() and len(numbers) >= 2 and _BOUND.search(self.text) is not None


def is_page(body: bytes) -> bool:
    """Return whether a body is HTML or XML."""
    return body.lstrip()[:1] == b"<"


def excerpt(body: bytes) -> str:
    """Return the beginning of a response on one line."""
    text = " ".join(body.decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_WORDS = frozenset({"message", "msg", "error_msg", "errmsg", "status_msg", "error_message", "detail", "details", "error"})
_WORDS |= {"errors", "error_description", "description", "title", "reason", "metadata"}
_CODES = frozenset({"code", "type", "error_type", "error_code", "status"})
_INNER = frozenset({"innererror", "inner_error", "provider_specific_fields"})


def _parts(value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the words, codes and fields of an error, but not the texts of the request ("input")."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield "text", value
        if value.lstrip()[:1] in ("{", "["):
            yield from _parts(_decoded(value), depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _parts(part, depth + 1)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name in _CODES and isinstance(part, str | int):
                yield "code", str(part).lower()
                # Some servers put a sentence in the place of a code.
                if isinstance(part, str) and " " in part:
                    yield "text", part
            elif name == "param" and isinstance(part, str):
                yield "param", part
            elif name == "loc" and isinstance(part, list):
                yield from (("param", name) for name in part if isinstance(name, str))
            elif name in _WORDS or (name in _INNER and isinstance(part, dict)):
                yield from _parts(part, depth + 1)
            elif name == "raw" and isinstance(part, str):
                yield from _parts(_decoded(part), depth + 1)
            elif name == "retryDelay" and isinstance(part, str):
                yield "text", f"retry in {part}"


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(number: str) -> int:
    return int(number.replace(",", ""))


def _seconds_in(text: str) -> float | None:
    """Return the seconds that a message asks to wait; None if it names none."""
    match = _SOON.search(text)
    if match is None:
        return None
    minutes, seconds, unit = match.groups()
    return 60.0 * int(minutes or 0) + float(seconds) * (0.001 if unit == "ms" else 1)


_WRONG_ADDRESS = "mend the address openai:URL#MODEL: the URL ends in /v1, the model is one that the server lists"


class AgainError(Exception):
    """An error of an attempt that may succeed later.

    Args:
        error: that is raised where no attempt is left.
        wait_s: seconds that the server asks to wait; None where it does not say.
        most_unreached: most attempts to reach a server that has never been reached; None if it has been.
        is_busy: whether the server has too much to do, so that less should be asked at once.
    """

    def __init__(
        self, error: ModelError, wait_s: float | None = None, *, most_unreached: int | None = None, is_busy: bool = False
    ) -> None:
        self.error, self.wait_s, self.most_unreached, self.is_busy = error, wait_s, most_unreached, is_busy


class UnsuitedError(Exception):
    """An error of a request that does not suit a server, and may be changed.

    Args:
        reading: the server's reason.
        error: that is raised where it cannot be changed.
    """

    def __init__(self, reading: RefusalReading, error: ModelError) -> None:
        self.reading, self.error = reading, error


def error_of(refusal: Refusal, reading: RefusalReading, where: str, url: str, proxy: str) -> Exception:
    """Return the error of a refusal that is no answer.

    Args:
        refusal: of a server.
        reading: the meaning of the refusal.
        where: address of the model.
        url: of the server.
        proxy: that was asked for it; empty for none.
    """
    shown = blotted(refusal.shown)
    status = f"HTTP 200 with error {refusal.status}" if refusal.in_answer else f"HTTP {refusal.status}"
    status = status if url else f"error {refusal.status}"
    got = f"{status}: {shown}" if shown else status
    if proxy and refusal.status in (403, 407, 502, 503, 504):
        got = f"{got}, by the proxy {proxy}"
    kind, what, fix = _told(refusal, reading, url)
    error = kind(what, where=where, got=got, fix=fix)
    if not isinstance(error, ModelError) or isinstance(error, RefusedModelError):
        return error
    if reading.kind is RefusalKind.BUSY:
        return AgainError(error, refusal.wait_s, is_busy=refusal.status in (429, 503, 529))
    changeable = (RefusalKind.FIELD, RefusalKind.SYSTEM, RefusalKind.TURNS, RefusalKind.NO_ROOM)
    is_fewer = reading.kind is RefusalKind.VALUE and reading.field in NUM_LOGPROBS
    return UnsuitedError(reading, error) if reading.kind in changeable or is_fewer else error


def _told(refusal: Refusal, reading: RefusalReading, url: str) -> tuple[type[ParleyError], str, str]:
    """Return the kind of the error, what is wrong, and how to fix it."""
    field = reading.field
    match reading.kind:
        case RefusalKind.KEY:
            taken = "takes the key for none of its own" if api_key(url) else "wants a key and there is none"
            variable = key_variables(url)[-len(KEYS) - 1]
            return (
                RefusedModelError,
                f"the server {taken}",
                f"export {KEYS[0]}=..., which is never written down; {variable} for it alone",
            )
        case RefusalKind.QUOTA:
            return (
                RefusedModelError,
                "nothing is left to pay the server with",
                "pay, or take another key; the same command resumes",
            )
        case RefusalKind.NO_MODEL:
            return RefusedModelError, "the server has no such address or model", _WRONG_ADDRESS
        case RefusalKind.BUSY:
            return ModelError, "the server asks for patience" if refusal.status == 429 else "the server fails", "resume later"
        case RefusalKind.TOO_LONG:
            return (
                ChatTooLongError,
                "the messages are longer than the model reads",
                "ask less, or what the server's model takes",
            )
        case RefusalKind.FIELD if field in (*NUM_LOGPROBS, "prompt_logprobs", "echo"):
            return RefusedModelError, "the server shows no log probabilities", NO_LOGPROBS
        case RefusalKind.FIELD:
            return ModelError, f"the server takes no field {field}", f'--set chat.extra={{"{field}": null}} leaves it out'
        case RefusalKind.VALUE:
            return ModelError, f"the server takes other values of {field}", f"ask for another {field}"
        case RefusalKind.SYSTEM:
            return ModelError, "the server takes no message of the system", "ask in other roles"
        case RefusalKind.TURNS:
            return ModelError, "the server takes roles in turns alone", "ask in other roles"
        case RefusalKind.NO_ROOM:
            return ModelError, f"the server allows an answer {reading.room} tokens", "ask for shorter answers"
    if refusal.status == 403:
        # Some servers refuse a key so, others a text that their moderation stopped, which says nothing of the next text.
        fix = f"ask what the server lets through, with a key in {KEYS[0]} that may use this model"
        return ModelError, "the server refuses the question", fix
    fix = "ask less, or what the server's model takes" if refusal.status == 400 else _WRONG_ADDRESS
    return ModelError, "the server refuses the question", fix
