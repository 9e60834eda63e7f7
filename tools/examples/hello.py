"""Says hello to another node: a message there and an answer back, by pyverbs.

Debian's python3-pyverbs is built for /usr/bin/python3:

    flitnet exec n0 -- /usr/bin/python3 hello.py server 7471
    flitnet exec n1 -- /usr/bin/python3 hello.py client 127.1.0.1 7471
"""

from __future__ import annotations

import sys

import pyverbs.cm_enums as cm
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

BYTES = 64


def endpoint(address: str | None, port: str) -> CMID:
    """A listening endpoint without an address, a connecting one with it."""
    if address is None:
        found = AddrInfo(
            src="0.0.0.0", src_service=port, port_space=cm.RDMA_PS_TCP, flags=cm.RAI_PASSIVE
        )
    else:
        found = AddrInfo(dst=address, dst_service=port, port_space=cm.RDMA_PS_TCP)
    return CMID(creator=found, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1), sq_sig_all=1))


def say(cmid: CMID, mr, text: str) -> None:
    mr.write(text.encode().ljust(BYTES, b"\0"), BYTES)
    cmid.post_send(mr)
    cmid.get_send_comp()


def hear(cmid: CMID, mr) -> None:
    cmid.get_recv_comp()
    print("heard:", mr.read(BYTES, 0).rstrip(b"\0").decode(), flush=True)


def main() -> int:
    match sys.argv[1:]:
        case ["server", port]:
            listener = endpoint(None, port)
            listener.listen()
            cmid = listener.get_request()
        case ["client", address, port]:
            cmid = endpoint(address, port)
        case _:
            print("usage: hello.py server PORT | hello.py client ADDRESS PORT", file=sys.stderr)
            return 2
    serves = sys.argv[1] == "server"
    heard, said = cmid.reg_msgs(BYTES), cmid.reg_msgs(BYTES)
    cmid.post_recv(heard)  # before the connection stands, so that the first message finds it
    cmid.accept() if serves else cmid.connect()
    if serves:
        hear(cmid, heard)
        say(cmid, said, "hello to you, from Python")
    else:
        say(cmid, said, "hello from Python")
        hear(cmid, heard)
    cmid.disconnect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
