"""What ipybox does differently for some MCP clients, by the name that they give in `clientInfo`.

Each difference was measured with the real client (docs/mcp-server.md). It applies to that client only, because the
others would pay for it with context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext


@dataclass(frozen=True)
class ClientTraits:
    """What a client does with a server's answers."""

    #: Whether it shows the server's `instructions` to the model.
    shows_instructions: bool = True
    #: Whether it shows defaults of parameters to the model.
    shows_defaults: bool = True
    #: Whether the model can read resources at no cost.
    reads_resources: bool = True
    #: Whether images reach the model as pictures.
    shows_images: bool = True
    #: Whether it joins the text blocks of a result without a break.
    joins_texts: bool = False
    #: Whether it rejects a result whose text is JSON but not an object.
    parses_texts: bool = False
    #: Whether it shows the message of a form as Markdown, as VS Code does; unknown clients may.
    renders_forms: bool = True


_TRAITS: Final[Mapping[str, ClientTraits]] = {
    "claude-code": ClientTraits(reads_resources=False, renders_forms=False),
    "Cline": ClientTraits(shows_instructions=False, shows_images=False),
    "codex-mcp-client": ClientTraits(shows_defaults=False, renders_forms=False),
    "copilot-cli": ClientTraits(shows_instructions=False, shows_images=False, joins_texts=True, renders_forms=False),
    "gemini-cli-mcp-client": ClientTraits(parses_texts=True),
    # The SDK's, whose application receives the message.
    "mcp": ClientTraits(renders_forms=False),
    "qwen-code-mcp-client": ClientTraits(joins_texts=True),
}

#: The traits of clients without known differences.
OTHERS: Final = ClientTraits()


def traits_named(client: str) -> ClientTraits:
    """Returns the traits of the client with this name."""
    return _TRAITS.get(client, OTHERS)


def traits_of(ctx: "ServerRequestContext[Any, Any]", *, resources: bool) -> ClientTraits:
    """Returns the traits of the client that made a request; with `resources`, it is one that reads resources."""
    match ctx.params:
        case {"clientInfo": {"name": str(name)}}:  # `initialize` itself: the session has no client yet
            pass
        case {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": str(name)}}}:
            pass
        case _:
            client = ctx.session.client_params
            name = "" if client is None else client.client_info.name
    traits = traits_named(name)
    return replace(traits, reads_resources=True) if resources else traits


def announced(tools: Mapping[str, Any], *, resources: bool) -> dict[str, Any]:
    """Returns the server's capabilities, given those of its tools.

    The SDK would also announce prompts, although there are none. For resources, Claude Code gives the model three
    tools, which cost 520 tokens per request, or 16 if deferred (`benchmarks`); the model can read the files anyway.
    There is no listChanged: a truncated output contains the address of its resource.
    """
    return {"tools": dict(tools), **({"resources": {}} if resources else {})}
