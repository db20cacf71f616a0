"""The latest commits of a user's most starred repositories: implementation."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mcptools.github import list_commits, search_repositories

from .api import Commit, Repo


def run(username: str, top_n_repos: int, last_n_commits: int) -> list[Repo]:
    """Searches once, then asks for the commits of all repositories at once."""
    found = search_repositories.run_parsed(
        search_repositories.Params(
            query=f"user:{username}",
            sort=search_repositories.Sort.stars,
            order=search_repositories.Order.desc,
            perPage=top_n_repos,
        )
    )
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(partial(_with_commits, last_n_commits), found.repositories))


def _with_commits(last_n_commits: int, repository: search_repositories.Repository) -> Repo:
    owner, _, name = repository.full_name.partition("/")
    listed = list_commits.run(list_commits.Params(owner=owner, repo=name, perPage=last_n_commits))
    return Repo(
        name=repository.name,
        stars=repository.stargazers_count,
        url=repository.url,
        commits=[
            Commit(
                message=item["commit"]["message"].partition("\n")[0],
                sha=item["sha"],
                url=item["html_url"],
                author=item["commit"]["author"]["name"],
                date=item["commit"]["author"]["date"],
            )
            for item in json.loads(listed)
        ],
    )
