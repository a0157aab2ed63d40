"""What mkdocs does beside building pages: two pages from the root, and links that leave `docs/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {"contributing.md": ROOT / "CONTRIBUTING.md", "changelog.md": ROOT / "CHANGELOG.md"}
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside of `docs/`."""
    for name, path in PAGES.items():
        files.append(File.generated(config, name, content=path.read_text().replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of `docs/` to those pages; others become the path of the file in the repository."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        text, up, name, anchor = match[1], match[2], match[3], match[4] or ""
        target = (folder / up / name).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        own = {path: f"{'../' * page.file.src_uri.count('/')}{title}" for title, path in PAGES.items()}
        if target in own:
            return f"[{text}]({own[target]}{anchor})"
        return f"{text} (`{target.relative_to(ROOT)}`)"

    return LINK.sub(replaced, markdown)
