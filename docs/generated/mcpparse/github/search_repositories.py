"""Parses what `search_repositories` of the server `github` returns: a JSON object with a page of matches."""

import json

from mcptools.github.search_repositories import ParseResult, Repository


def parse(result: str) -> ParseResult:
    """The repositories in a result of `search_repositories` with minimal or full output.

    Raises:
        ValueError: The text is no such result.
    """
    try:
        document = json.loads(result)
        return ParseResult(
            total=document["total_count"],
            repositories=[
                Repository(
                    name=item["name"],
                    full_name=item["full_name"],
                    url=item["html_url"],
                    # GitHub leaves out what a repository doesn't have, or says null.
                    description=item.get("description") or "",
                    language=item.get("language") or "",
                    stargazers_count=item["stargazers_count"],
                    forks_count=item["forks_count"],
                    updated_at=item["updated_at"],
                )
                for item in document["items"]
            ],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise ValueError(f"no result of search_repositories ({exc!r}): {result[:200]!r}") from exc
