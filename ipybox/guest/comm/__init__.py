"""What ipybox puts into a kernel of another Jupyter server: tool calls as messages of a comm, and generated packages.

`ipybox.jupyter_engine` sends `bridge` as source, and the runtime of generated packages as files, with `http` of this
package in place of `ipybox.guest.tools.http`. That needs ipykernel and pydantic, but no installation of ipybox.
"""
