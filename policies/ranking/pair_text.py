"""How a cross-encoder's tokenizer writes a pair of context and reply: with marks between, or in a chat template.

Tokenizers of decoders often put nothing between two texts, so that a model reads them as one. Rerankers of that kind come with
a chat template whose roles are `query` and `document`, as sentence-transformers 6.2 reads them; without one they are refused.
"""

from __future__ import annotations

from typing import Any

from parley.envs.core.errors import CheckpointError

Read = dict[str, list[int]]
"""A text as a tokenizer gives it: token ids and what goes with them."""
_PROBES = ("alpha", "bravo", "charlie")


class PairTemplate:
    """Write pairs as the chat template of a tokenizer does.

    Args:
        tokenizer: with a chat template.
        prompt: what the system says before the pair; nothing where it is empty.

    Raises:
        CheckpointError: the template does not write both texts.
    """

    def __init__(self, tokenizer: Any, prompt: str = "") -> None:
        self._tokenizer, self._prompt = tokenizer, prompt
        self._in_parts = False
        if not self._writes_both():
            self._in_parts = True
            if not self._writes_both():
                fix = "give the folder a chat template that writes the roles query and document, or name another ranker"
                where = tokenizer.name_or_path or None
                raise CheckpointError("the chat template writes no pair of query and document", where=where, fix=fix)

    def text(self, context: str, reply: str) -> str:
        """Return the text of a pair."""
        pairs = [("system", self._prompt)] * bool(self._prompt) + [("query", context), ("document", reply)]
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if self._in_parts else text} for role, text in pairs
        ]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False))

    def tokens(self, context: str, reply: str) -> Read:
        """Return the tokens of a pair; the template writes all marks."""
        return dict(self._tokenizer(self.text(context, reply), add_special_tokens=False, verbose=False))

    def read(self, context: str, reply: str, longest: float) -> Read:
        """Return the tokens of a pair, of whose context the beginning is cut where there are too many."""
        read = self.tokens(context, reply)
        while (excess := len(read["input_ids"]) - longest) > 0 and context:
            context = without_first_tokens(self._tokenizer, context, int(excess))
            read = self.tokens(context, reply)
        return read

    def _writes_both(self) -> bool:
        first, second, third = _PROBES
        try:
            written = [self.text(first, second), self.text(third, second), self.text(first, third)]
        # A template raises whatever it likes.
        except Exception:
            return False
        return written[0] != written[1] and written[0] != written[2]


def require_separator(tokenizer: Any) -> None:
    """Check that a tokenizer marks where a context ends and a reply begins.

    Raises:
        CheckpointError: it puts nothing between two texts.
    """
    first, second = _PROBES[:2]
    alone = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (first, second)]
    pair = tokenizer(first, second)
    has_one_type = len({*(pair.get("token_type_ids") or [0])}) == 1
    if has_one_type and _stand_together(pair["input_ids"], *alone):
        raise CheckpointError(
            "the tokenizer puts nothing between a context and a reply, so the model would read them as one text",
            where=tokenizer.name_or_path or None,
            got=repr(tokenizer.decode(pair["input_ids"])),
            fix="name a folder with a chat template for the roles query and document (chat_template.jinja), or another ranker",
        )


def without_first_tokens(tokenizer: Any, text: str, num: int) -> str:
    """Return a text without what its first tokens stand for, so many and at least one character."""
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return text[max(1, *(end for _, end in spans[:num])) if len(spans) > num else len(text) :]


def _stand_together(pair: list[int], first: list[int], second: list[int]) -> bool:
    """Return whether the tokens of two texts stand behind one another in a pair."""
    both = [*first, *second]
    return any(pair[start : start + len(both)] == both for start in range(len(pair) - len(both) + 1))
