"""What the daemons of this host say of themselves at one moment, each asked once.

In: a running cluster. Out: which nodes are not attached, and why; which links are out of service.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.flitnet import ctl
from tools.flitnet.errors import FlitnetError

if TYPE_CHECKING:
    from tools.flitnet.cluster import Cluster


@dataclass(frozen=True)
class Heard:
    cluster: Cluster
    nodes: dict[str, dict[str, Any]]  # those of this host that answer
    # By the fabric; nothing, if it is on another host or does not answer.
    links: list[dict[str, Any]] | None
    attached: set[str]  # by the fabric's word

    def links_down(self) -> list[str]:
        """As the fabric says, or where it is on another host, the nodes here of their own."""
        if self.cluster.part.fabric:
            return [link["link"] for link in self.links or [] if not link["up"]]
        return [node for node, said in self.nodes.items() if said["link_down"]]

    def absent(self) -> dict[str, str]:
        """Nodes that are not attached, their daemon alive or not, and why. Whose cable was pulled
        by `flitnet link` is none of them."""
        if not self.cluster.part.fabric:
            wanted = self.cluster.here
        elif self.links is None:
            return {node: "the fabric does not answer" for node in self.cluster.nodes}
        else:
            wanted = self.cluster.nodes
        found = {node: self._why_absent(node) for node in wanted}
        return {node: reason for node, reason in found.items() if reason}

    def _why_absent(self, node: str) -> str:
        pulled = node in self.links_down()
        if node in self.cluster.here:
            said = self.nodes.get(node)
            if said is None:
                return f"it does not answer; see {self.cluster.run}/log"
            # The fabric may know of its cable before the node does, or the other way round.
            if not (said["attached"] or said["link_down"] or pulled):
                return str(said["reason"] or "not yet")
        known = node in self.attached or pulled or not self.cluster.part.fabric
        return "" if known else "the fabric does not hear it"


def listen(cluster: Cluster) -> Heard:
    """Asks the fabric, if it is here, and the nodes; these not behind a fabric that lives and does
    not answer, for they may be in its process."""
    links, attached = None, set()
    if cluster.part.fabric:
        with contextlib.suppress(FlitnetError):
            attached = attached_nodes(cluster.status())
            links = ctl.ask(cluster.run / "fabricd.ctl", {"cmd": "links"})["links"]
    silent = cluster.part.fabric and links is None and cluster.alive("fabricd")
    return Heard(cluster, {} if silent else nodes_of(cluster), links, attached)


def nodes_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What the nodes of this host say of themselves, those that answer."""
    found = {}
    for node in cluster.here:
        with contextlib.suppress(FlitnetError):
            found[node] = cluster.node_status(node)
    return found


def attached_nodes(status: dict[str, Any]) -> set[str]:
    """Names of the nodes that fabricd's status calls attached."""
    return {node["name"] for node in status.get("nodes", []) if node.get("attached")}
