"""What servers of chat completions say where they refuse: of length, moderation, keys, quota, fields and roles.

Wordings follow the makers' own pages and public reports of them; no two makers agree on any. `answer_kinds.py` plays them.
"""

# ruff: noqa: E501  # each wording stands on a line of its own

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.policies.chat.fake_server import Said

SAY = "i am fine , thank you for asking me so kindly"
"""The reply of every kind that has one."""
LONG = 60
"""Words that a model of the kinds `long-` reads at most."""
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def choice(content: Any, reason: Any = "stop", index: int = 0, **message: Any) -> dict[str, Any]:
    return {"index": index, "finish_reason": reason, "message": {"role": "assistant", "content": content, **message}}


def body_of(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "x", "object": "chat.completion", "choices": list(choices), "usage": USAGE, **fields}


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def said(document: Any, status: int = 200, **headers: str) -> Said:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(json.dumps(document).encode(), status, {"Content-Type": "application/json", **names})


SHAPES: dict[str, Callable[[str], Any]] = {
    "openai": error,
    "list": lambda text: [error(text, code=400)],
    "object": lambda text: {"object": "error", "message": text, "type": "BadRequestError", "code": 400},
    "error": lambda text: {"error": text, "error_type": "validation"},
    "message": lambda text: {"message": text},
    "detail": lambda text: {"detail": text},
    "raw": lambda text: error(
        "Provider returned error", code=400, metadata={"raw": json.dumps(error(text)), "provider_name": "x"}
    ),
    "code": lambda text: error(text, code="context_length_exceeded"),
    "type": lambda text: error(text, type="exceed_context_size_error", n_ctx=LONG),
    "number": lambda text: {"error_code": 336007, "error_msg": text},
    "empty": lambda text: "",
}
"""Bodies of errors in use, by their words."""
LONG_KINDS: dict[str, tuple[int, str, str]] = {
    "long-sglang": (400, "openai", "The input ({n} tokens) is longer than the model's context length ({most} tokens)."),
    "long-sglang-total": (
        400,
        "object",
        "Requested token count exceeds the model's maximum context length of {most} tokens. You requested a total of {more} tokens: "
        "{n} tokens from the input messages and 5 tokens for the completion.",
    ),
    "long-tgi": (
        422,
        "error",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {most}. Given: {n} `inputs` tokens and 5 "
        "`max_new_tokens`",
    ),
    "long-tgi-inputs": (422, "error", "Input validation error: `inputs` must have less than {most} tokens. Given: {n}"),
    "long-lmstudio": (
        400,
        "error",
        "Trying to keep the first {n} tokens when context the overflows. However, the model is loaded with context length of only "
        "{most} tokens, which is not enough.",
    ),
    "long-lmstudio-keep": (
        400,
        "error",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
    ),
    "long-anthropic": (400, "openai", "prompt is too long: {n} tokens > {most} maximum"),
    "long-gemini": (400, "list", "The input token count ({n}) exceeds the maximum number of tokens allowed ({most})."),
    "long-bedrock": (400, "message", "Input is too long for requested model."),
    "long-mistral": (
        400,
        "object",
        "Prompt contains {n} tokens and 0 draft tokens, too large for model with {most} maximum context length",
    ),
    "long-vllm": (400, "openai", "This model's maximum context length is {most} tokens. However, you requested {n} tokens."),
    "long-vllm-messages": (
        400,
        "openai",
        "This model's maximum context length is {most} tokens. However, you requested {more} tokens ({n} in the messages, 5 in the "
        "completion). Please reduce the length of the messages or completion.",
    ),
    "long-vllm-prompt": (400, "object", "The prompt (total length {n}) is longer than the maximum model length of {most}."),
    "long-vllm-negative": (400, "object", "max_tokens must be at least 1, got -{n}."),
    "long-openai": (400, "code", "Your input is too much."),
    "long-openai-words": (400, "openai", "Your input exceeds the context window of this model."),
    "long-xai": (400, "error", "This model's maximum prompt length is {most} but the request contains {n} tokens."),
    "long-groq": (400, "openai", "Please reduce the length of the messages or completion."),
    "long-copilot": (400, "openai", "prompt token count of {n} exceeds the limit of {most}"),
    "long-kimi": (400, "openai", "Invalid request: Your request exceeded model token limit: {most} (requested: {n})"),
    "long-minimax": (400, "openai", "invalid params, context window exceeds limit (2013)"),
    "long-dashscope": (400, "openai", "Range of input length should be [1, {most}]"),
    "long-tensorrt": (400, "detail", "Prompt length ({n}) exceeds maximum input length ({most})."),
    "long-figures": (400, "openai", "{n} tokens were sent where at most {most} are taken"),
    "long-413": (413, "openai", "Request too large for this model: please reduce your message size and try again."),
    "long-413-empty": (413, "empty", ""),
    "long-tpm": (
        429,
        "openai",
        "Request too large for m on tokens per min (TPM): Limit {most}, Requested {n}. The input or output tokens must be reduced in "
        "order to run successfully.",
    ),
    "long-500": (500, "openai", "the request exceeds the available context size ({n} tokens), try increasing it"),
    "long-500-ollama": (500, "error", "input length exceeds maximum context length"),
    "long-llama": (400, "type", "the request exceeds the available size, try increasing it"),
    "long-litellm": (
        400,
        "openai",
        'litellm.ContextWindowExceededError: AnthropicException - {{"error":{{"message":"prompt is too long: {n} tokens > {most} '
        'maximum"}}}}',
    ),
    "long-openrouter": (400, "raw", "prompt is too long: {n} tokens > {most} maximum"),
    "long-number": (400, "message", "Input Tokens Exceeded: Number of input tokens exceeds maximum length."),
    "long-sequence": (422, "detail", "Input sequence length exceeds {most}"),
    "long-below": (400, "openai", "Please ensure that the number of input tokens is below {most}"),
    "long-supports": (400, "openai", "Your prompt is {n} tokens; this model supports up to {most}."),
    "long-above": (400, "object", "The length of the input ({n}) is above the limit for this deployment"),
    "long-question": (400, "number", "the max length of current question is {most}"),
    "long-total": (400, "openai", "Total tokens of input exceed max message tokens"),
    "long-limit": (400, "openai", "Token limit exceeded."),
    "long-allowed": (400, "openai", "maximum allowed input length is {most} tokens"),
    "long-500-shift": (500, "openai", "context shift is disabled"),
}
"""What servers say to more than `LONG` words: status, shape of the body, words."""


def long_error(name: str, num_words: int) -> Said:
    """Return what a kind of server says to so many words."""
    status, shape, words = LONG_KINDS[name]
    document = SHAPES[shape](words.format(n=num_words, more=num_words + 5, most=LONG))
    return said(document, status) if document else Said(b"", status)


MODERATED: dict[str, tuple[int, Any]] = {
    "block-azure": (
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            type=None,
            param="prompt",
            code="content_filter",
            innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"violence": {"filtered": True}}},
        ),
    ),
    "block-openai": (
        400,
        error("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", code="invalid_prompt"),
    ),
    "block-policy": (
        400,
        error("Your request was rejected as a result of our safety system.", code="content_policy_violation"),
    ),
    "block-litellm": (
        400,
        error(
            "litellm.ContentPolicyViolationError: AzureException - The response was filtered due to the prompt triggering Azure "
            "OpenAI's content management policy.",
            code="400",
        ),
    ),
    "block-openrouter": (
        403,
        error(
            'm requires moderation on P. Your input was flagged for "violence". No credits were charged.',
            code=403,
            metadata={"reasons": ["violence"], "flagged_input": "..."},
        ),
    ),
    "block-xai": (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines.",
        },
    ),
    "block-deepseek": (400, error("Content Exists Risk", type="invalid_request_error", code="invalid_request_error")),
    "block-qwen": (
        400,
        error(
            "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content.",
            code="data_inspection_failed",
        ),
    ),
    "block-anthropic": (400, error("Output blocked by content filtering policy", type="invalid_request_error")),
    "block-403": (403, error("blocked by moderation")),
    "block-403-text": (403, {"detail": "The text was blocked by our content policy"}),
    "block-422": (422, error("the prompt was rejected by the guardrail")),
    "block-451": (451, ""),
    "block-code": (403, error("Request was blocked", type="blocked", code="content_blocked")),
    "block-injection": (403, error("x", code="prompt_injection_detected")),
    "block-guardrails": (400, error("Input blocked: PII detected", type="guardrails_violation")),
    "block-terms": (400, error("Prompt blocked: violates our Terms of Service")),
    "block-sensitive": (400, error("Your request holds sensitive information", code="InputTextSensitiveContentDetected")),
    "block-number": (400, {"error_code": 336104, "error_msg": "prompt is unsafe"}),
    "block-chinese": (400, error("\u8f93\u5165\u53ef\u80fd\u5305\u542b\u654f\u611f\u5185\u5bb9", code="1301")),
    "block-gateway": (446, error("The guardrail checks defined in the config failed.", type="hooks_failed")),
}
"""What servers say to a text that moderation stops: status and body."""
FORBIDDEN: dict[str, tuple[int, Any]] = {
    "forbidden-key": (403, error("Your API key does not have permission to use this model")),
    "forbidden-model": (403, error("Project p does not have access to model m", code="model_not_found")),
    "forbidden-region": (
        403,
        error("Country, region, or territory not supported", code="unsupported_country_region_territory"),
    ),
    "forbidden-account": (403, error("Your account was suspended for violations of our content policy")),
    "forbidden-empty": (403, ""),
    "forbidden-plain": (403, error("forbidden")),
}
"""What servers say with status 403 of a key, an account or a place, or without a reason."""
QUOTA: dict[str, tuple[int, Any, dict[str, str]]] = {
    "quota": (
        429,
        error("You exceeded your current quota, please check your plan and billing details.", code="insufficient_quota"),
        {},
    ),
    "quota-type": (429, error("slow down", type="insufficient_quota"), {"Retry_After": "1"}),
    "quota-words": (429, error("You exceeded your current quota, please check your plan and billing details."), {}),
    "quota-402": (402, error("Insufficient Balance", code="invalid_request_error"), {}),
    "quota-402-empty": (402, "", {}),
    "quota-billing": (429, error("The billing hard limit has been reached", code="billing_hard_limit_reached"), {}),
    "quota-anthropic": (400, error("Your credit balance is too low to access the API. Please go to Plans & Billing."), {}),
    "quota-balance": (429, error("Your account balance is insufficient"), {}),
    "quota-message": (429, error("insufficient_quota"), {}),
    "quota-month": (429, error("Monthly usage limit reached"), {}),
    "quota-budget": (429, error("You have exceeded your budget"), {}),
    "quota-arrears": (400, error("Access denied, your account is not in good standing.", code="Arrearage"), {}),
    "quota-403": (403, error("Key limit exceeded (total limit). Manage it using https://host/keys", code=403), {}),
}
"""What servers say where nothing is left to pay with: status, body, headers."""
RATE = "You exceeded your current quota, please check your plan and billing details. Quota exceeded for metric: requests, limit: 15. "
"""A limit by the minute in the words of a spent quota, as Gemini says it; it has to be waited for."""


Playing = Callable[[int, dict[str, Any]], Said]


def _unless(status: int, refusal: Callable[[dict[str, Any]], Any]) -> Playing:
    """Return what answers, unless `refusal` gives a document for the body of a request."""

    def play(number: int, body: dict[str, Any]) -> Said:
        document = refusal(body)
        return said(body_of(choice(SAY))) if document is None else said(document, status)

    return play


def _without(field: str, status: int, document: Any) -> Playing:
    return _unless(status, lambda body: document if field in body else None)


def _unsupported(field: str) -> Any:
    hint = " Use 'max_completion_tokens' instead." if field == "max_tokens" else ""
    message = f"Unsupported parameter: '{field}' is not supported with this model.{hint}"
    return error(message, type="invalid_request_error", param=field, code="unsupported_parameter")


def _value(body: dict[str, Any]) -> Any:
    given = body.get("temperature", 1)
    message = (
        f"Unsupported value: 'temperature' does not support {given} with this model. Only the default (1) value is supported."
    )
    return None if given == 1 else error(message, type="invalid_request_error", param="temperature", code="unsupported_value")


def _extra(field: str) -> Any:
    return {
        "detail": [{"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted", "input": 1}]
    }


def _first_of(*fields: str) -> Callable[[dict[str, Any]], Any]:
    return lambda body: next((_unsupported(field) for field in fields if field in body), None)


def _roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def _strict(body: dict[str, Any]) -> Any:
    roles = _roles(body)
    turns = all(one != other for one, other in itertools.pairwise(roles)) and roles[0] == "user"
    return None if turns else error("Conversation roles must alternate user/assistant/user/assistant/...")


NO_SYSTEM = {"object": "error", "message": "System role not supported", "type": "BadRequestError", "param": None, "code": 400}
FIELDS: dict[str, tuple[Playing, str]] = {
    "no-temp": (_unless(400, _value), "temperature"),
    "no-temp-deprecated": (_without("temperature", 400, error("`temperature` is deprecated for this model.")), "temperature"),
    "no-temp-zero": (
        _unless(
            422,
            lambda body: (
                {"error": "Input validation error: `temperature` must be strictly positive"}
                if not body.get("temperature", 1)
                else None
            ),
        ),
        "temperature",
    ),
    "no-temp-one": (
        _without("temperature", 400, error("invalid temperature: only 1 is allowed for this model")),
        "temperature",
    ),
    "no-temp-set": (
        _without("temperature", 400, error("`temperature` may only be set to 1 when thinking is enabled.")),
        "temperature",
    ),
    "no-temp-zero-range": (
        _unless(400, lambda body: None if body.get("temperature", 1) else error("Temperature must be in [0.01, 1]")),
        "temperature",
    ),
    "no-seed": (_without("seed", 422, _extra("seed")), "seed"),
    "no-seed-gemini": (
        _without("seed", 400, [error('Invalid JSON payload received. Unknown name "seed": Cannot find field.', code=400)]),
        "seed",
    ),
    "no-seed-argument": (_without("seed", 500, error("create() got an unexpected keyword argument 'seed'")), "seed"),
    "no-max-tokens": (_without("max_tokens", 400, _unsupported("max_tokens")), "max_tokens"),
    "no-limit": (_unless(400, _first_of("max_tokens", "max_completion_tokens")), "limit"),
    "no-fields": (_unless(400, _first_of("max_tokens", "temperature", "seed")), "temperature"),
    "no-system": (_unless(400, lambda body: NO_SYSTEM if "system" in _roles(body) else None), "system"),
    "no-system-500": (
        _unless(
            500,
            lambda body: error("Jinja Exception: System role not supported", code=500) if "system" in _roles(body) else None,
        ),
        "system",
    ),
    "no-system-listed": (
        _unless(
            400,
            lambda body: (
                error("messages[0].role: 'system' is not one of ['user', 'assistant']") if "system" in _roles(body) else None
            ),
        ),
        "system",
    ),
    "no-system-loc": (
        _unless(
            422,
            lambda body: (
                {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user' or 'assistant'"}]}
                if "system" in _roles(body)
                else None
            ),
        ),
        "system",
    ),
    "strict-turns": (_unless(400, _strict), "turns"),
}
"""Servers that refuse a field or a role, and the field of it."""
ROOM = 4096
LARGE: dict[str, Callable[[int], Any]] = {
    "large-vllm": lambda most: error(
        f"'max_tokens' or 'max_completion_tokens' is too large: {most}. This model's maximum context length is {ROOM} tokens and your "
        f"request has 96 input tokens ({most} > {ROOM} - 96).",
        type="BadRequestError",
        code=400,
    ),
    "large-vllm-old": lambda most: error(
        f"This model's maximum context length is {ROOM} tokens. However, you requested {most + 96} tokens (96 in the messages, {most} "
        "in the completion). Please reduce the length of the messages or completion."
    ),
    "large-tgi": lambda most: {
        "error": f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {ROOM}. Given: 96 `inputs` tokens and {most} "
        "`max_new_tokens`"
    },
    "large-openai": lambda most: error(
        f"max_tokens is too large: {most}. This model supports at most {ROOM - 96} completion tokens, whereas you provided {most}.",
        param="max_tokens",
        code="invalid_value",
    ),
    "large-anthropic": lambda most: error(
        f"input length and `max_tokens` exceed context limit: 96 + {most} > {ROOM}, decrease input length or `max_tokens` and try again"
    ),
    "large-azure": lambda most: error(
        f"max_tokens: {most} > {ROOM - 96}, which is the maximum allowed number of output tokens for m"
    ),
}
"""Refusals of a limit that leaves no room, of servers that would take 4,000 tokens."""
