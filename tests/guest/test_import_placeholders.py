"""The gateway imports placeholders of modules that it does not use."""

import subprocess
import sys


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_gateway_imports_no_notebooks_no_validation_and_no_web_application():
    unused = "{'jinja2', 'jsonschema', 'jupyter_events', 'jupyter_server.serverapp', 'nbformat', 'prometheus_client'}"
    assert output(f"import sys, ipybox.guest.gateway_app; print({unused} & sys.modules.keys())") == "set()"


def test_a_kernel_imports_no_debugger_but_code_can():
    code = "import sys, ipybox.guest.kernel, ipykernel.debugger; print('debugpy' in sys.modules, end=' '); "
    assert output(code + "import debugpy; print('debugpy' in sys.modules)") == "False True"


def test_a_name_that_a_placeholder_does_not_have_is_that_of_the_module():
    code = "from ipybox.guest.import_placeholders import placeholders\nwith placeholders():\n    import nbformat\n"
    code += "    from prometheus_client import Counter, Gauge\n"
    names = "nbformat.read.__module__, Counter.__module__, Gauge.__module__"
    assert output(f"{code}print({names})") == "nbformat prometheus_client.metrics ipybox.guest.import_placeholders"
