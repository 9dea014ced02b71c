"""Relative links in the documents, and the files that the documents name."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "tests/**/README.md")
    for path in ROOT.glob(pattern)
)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def prose(path: Path) -> str:
    """Return the text of a document without its fenced code."""
    return FENCED.sub("", (ROOT / path).read_text())


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and GitLab derive them."""
    slugs: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(prose(path)):
        text = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{slugs[slug]}" if slugs[slug] else slug)
        slugs[slug] += 1
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_relative_link_leads_to_a_file_and_a_heading(document):
    broken = []
    for link in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / document.parent / path).resolve() if path else ROOT / document
        if not target.exists() or (anchor and anchor not in anchors(target.relative_to(ROOT))):
            broken.append(link)
    assert not broken


def test_every_page_of_docs_is_linked_from_the_readme():
    links = set(LINK.findall(prose(Path("README.md"))))
    pages = {str(path) for path in DOCUMENTS if path.parent == Path("docs")}
    assert pages <= links


def test_every_file_that_the_map_names_exists():
    named = set(re.findall(r"`([\w/.-]+(?:\.py|\.c|/))`", prose(Path("ARCHITECTURE.md"))))
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "kuryr_k8s").rglob("*")}
    missing = [
        name
        for name in named
        if not any(file == name or f"/{file}".endswith(f"/{name.rstrip('/')}") for file in files)
    ]
    assert not missing
