"""Tables of text for people."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format rows as columns: text is aligned to the left, numbers to the right."""
    printed = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *printed, strict=True)]
    right = [
        bool(printed) and all(row[number].isdigit() for row in printed)
        for number in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            value.rjust(width) if number else value.ljust(width)
            for value, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (head, *printed)
    )
