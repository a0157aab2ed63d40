"""HTML from templates: everything that is filled in is escaped unless this package has made it."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup


def fill(template: str, **values: Any) -> Markup:
    """Return a template with its values.

    Args:
        template: its path below `engine/`, such as "negotiation/page/dialogue.html".
        values: what stands in it by name; a name that is missing is an error.
    """
    return Markup(_environment().get_template(template).render(**values))


def line(pattern: str, *values: Any, **named: Any) -> Markup:
    """One line of HTML, `pattern` in the syntax of `str.format`; values are escaped."""
    return Markup(pattern).format(*values, **named)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("parley.engine", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
