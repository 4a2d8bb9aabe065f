"""The hosts of a job that ``xdevice launch`` starts."""

import argparse
from dataclasses import replace
from typing import Any, NamedTuple

from xdevice.distributed.launcher_variables import Nodes, nodes_in
from xdevice.distributed.process_info import LOCALHOST, check_ipv4
from xdevice.errors import ArgumentError


class _RequiredOption(NamedTuple):
    """An option that the launchers of several hosts need."""

    name: str
    value: Any
    meaning: str


def nodes_of(options: argparse.Namespace) -> Nodes:
    """The job's hosts by the options, else by the environment, else this host alone."""
    options_of_hosts = (options.nnodes, options.node_rank, options.hosts, options.master_addr)
    if options.engine != "mpi" and all(option is None for option in options_of_hosts):
        nodes = nodes_in()
        if nodes is not None:
            return _nodes_of_environment(nodes, options.master_port)
    return _nodes_of_options(options)


def _nodes_of_environment(nodes: Nodes, master_port: int | None) -> Nodes:
    nodes = replace(nodes, port=master_port or nodes.port)
    check_ipv4(nodes.address, *nodes.hosts)
    if nodes.count == 1:
        return Nodes(1, 0, LOCALHOST, master_port)
    if nodes.port is None:
        raise ArgumentError(
            f"{nodes.source} does not tell a port; give all launchers the same --master-port"
        )
    return nodes


def _nodes_of_options(options: argparse.Namespace) -> Nodes:
    hosts = _hosts_of(options.hosts)
    count = options.nnodes or len(hosts) or 1
    if hosts and (len(hosts) != count or not all(hosts)):
        named_hosts = [host for host in hosts if host]
        raise ArgumentError(f"--hosts {options.hosts!r} names {len(named_hosts)} of {count} nodes")
    if count > 1:
        _check_required_options(options, hosts, count)
    node = options.node_rank or 0
    if node >= count:
        raise ArgumentError(
            f"no node {node} among {count}; --node-rank counts from 0 to {count - 1}"
        )
    address = LOCALHOST
    if options.master_addr:
        address = options.master_addr
    elif hosts:
        address = hosts[0]
    check_ipv4(address, *hosts)
    return Nodes(count, node, address, options.master_port, hosts)


def _hosts_of(names: str | None) -> list[str]:
    """The hosts in a list with commas; an empty name is kept, for the error that reports it."""
    if names is None:
        return []
    return [name.strip() for name in names.split(",")]


def _check_required_options(options: argparse.Namespace, hosts: list[str], count: int) -> None:
    required_options = (
        _RequiredOption(
            "--node-rank",
            options.node_rank,
            "0 on the first node, 1 on the next",
        ),
        _RequiredOption(
            "--master-addr",
            options.master_addr or hosts or None,
            "the first node's address, as the others reach it",
        ),
        _RequiredOption(
            "--master-port",
            options.master_port,
            "the first of the job's ports, the same on all nodes, such as 29400",
        ),
    )
    for name, value, meaning in required_options:
        if value is None:
            raise ArgumentError(f"{count} nodes meet only if each is given {name}; it is {meaning}")
