"""The address and the network interface of a process."""

import socket

import psutil
import pytest

from xdevice.backends.kit import gloo
from xdevice.distributed.rendezvous.interfaces import interfaces, own_address, stands_for_loopback
from xdevice.errors import DistributedError


def test_every_ipv4_address_has_its_interface():
    there = psutil.net_if_addrs()
    wanted = {
        each.address: name
        for name, all_ in there.items()
        for each in all_
        if each.family == socket.AF_INET
    }
    assert interfaces() == wanted
    assert "127.0.0.1" in wanted


def test_an_address_of_this_host_is_its_own():
    for address in interfaces():
        assert own_address(address, [address, "127.0.0.1"]) == address


def test_on_loopback_alone_there_is_no_other():
    assert (
        own_address("127.0.0.1", ["127.0.0.1"] * 2)
        == "127.0.0.1"
        == own_address("localhost", ["localhost"])
    )
    assert not stands_for_loopback("127.0.0.1")
    assert not stands_for_loopback("localhost")


def test_gloo_is_given_the_interface_unless_the_user_names_one(monkeypatch):
    monkeypatch.delenv(gloo.INTERFACE, raising=False)
    assert gloo.settings(["10.0.0.1", "10.0.0.2"], "10.0.0.1", "eth0") == {gloo.INTERFACE: "eth0"}
    assert gloo.settings(["127.0.0.1", "localhost"], "127.0.0.1", "lo") == {gloo.INTERFACE: "lo"}
    assert gloo.settings(["a", "b"], "10.0.0.1", None) == {}
    with pytest.raises(
        DistributedError, match=r"this host is 127.0.1.1 to itself.* or set GLOO_SOCKET_IFNAME"
    ):
        gloo.settings(["node1", "node2"], "127.0.1.1", None)
    monkeypatch.setenv(gloo.INTERFACE, "eth1")
    assert gloo.settings(["node1", "node2"], "127.0.1.1", None) == {}


def test_an_address_is_refused_where_the_first_of_its_interface_is_in_another_subnet(monkeypatch):
    monkeypatch.delenv(gloo.INTERFACE, raising=False)
    loopback = interfaces()["127.0.0.1"]
    hosts = ["10.213.9.1", "10.213.9.2"]
    gloo.check_first_address(hosts, "127.0.0.9", loopback)  # of one subnet with the first
    gloo.check_first_address(hosts[:1] * 2, hosts[0], loopback)  # of one host
    gloo.check_first_address(hosts, hosts[0], None)
    says = f"10.213.9.1 is not the first of {loopback}.* uses the first, 127.0.0.1, .*GLOO_SOCKET_IFNAME={loopback}"
    with pytest.raises(DistributedError, match=says):
        gloo.check_first_address(hosts, hosts[0], loopback)
    monkeypatch.setenv(gloo.INTERFACE, loopback)
    gloo.check_first_address(hosts, hosts[0], loopback)
