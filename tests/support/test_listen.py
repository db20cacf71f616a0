import errno
import socket

import pytest

from ipybox.support.listen import is_local, listen


def test_what_is_sent_goes_at_once():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_port_that_is_none_is_an_error(port: int):
    with pytest.raises(OSError, match=f"can't listen on localhost port {port}: the port must be between") as raised:
        listen("localhost", port)
    assert raised.value.errno == errno.EINVAL


def test_address_of_another_machine_is_an_error():
    with pytest.raises(OSError, match=r"can't listen on 192.0.2.1 port 0: .*[Aa]ssign"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize(("host", "local"), [("localhost:1", True), ("[::1]:1", True), ("[", False), ("x.org", False)])
def test_hosts_of_this_machine_are_local(host: str, local: bool):
    assert is_local(host) == local
