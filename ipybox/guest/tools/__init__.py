"""The runtime of generated packages: the client of the tool server, and the models of parameters and results.

    client ──► http ──► protocol: a call, and its reply     results ──► content: what becomes of a reply
       └──► tool ──► models ──► schema_check                arguments: what becomes JSON

Generated packages import it in the kernel, as `ipybox.tool_exec.client` and `ipybox.tool_exec.models`.
"""
