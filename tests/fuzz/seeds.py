#!/usr/bin/env python3
"""tests/fuzz/seeds.py DIR: writes good inputs for fuzz_net to DIR/fuzz_net, as its one_segment(),
one_packet() and so on read them."""
import os
import struct
import sys

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
OWNER, PLAIN = b"\1\1", b"\0\1"  # the model; the peer scales its windows
OWN, RELEASE, READ = b"\6", b"\7", b"\x08"
US, PEER = b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2"


def counted(data):
    return struct.pack(">H", len(data)) + data


def frame(data):
    return b"\0" + counted(data)


def packet(protocol, data, to_socket=0, change=b"\0"):
    """What follows the IP header, whose sums are filled in."""
    return b"\1" + counted(data) + bytes([protocol == 6, to_socket]) + change


def segment(flags=ACK, data=b"", offset=0, ack=0):
    return struct.pack(">BBh", 2, flags, offset) + counted(data) + struct.pack(">h", ack)


def send(n):
    return bytes([9, n])


def wait(eight_ms):
    return bytes([10, eight_ms])


def early_ack(on):
    return bytes([11, on])


def flood(n):
    return bytes([12, n])


def ip(protocol, body, head=b"\x45\0", fragment=0):
    return US + PEER + b"\x08\0" + head + struct.pack(">HHHBBH", 20 + len(body), 1, fragment, 64,
                                                      protocol, 0) + \
        bytes([10, 0, 0, 2, 10, 0, 0, 1]) + body


def udp(data, length=None, port=5001):
    return struct.pack(">HHHH", 4000, port, 8 + len(data) if length is None else length, 0) + data


ARP = (
    b"\xff" * 6
    + PEER
    + b"\x08\x06\0\1\x08\0\6\4\0\1"
    + PEER
    + bytes([10, 0, 0, 2])
    + b"\0" * 6
    + bytes([10, 0, 0, 1])
)
DATA = bytes(range(256))

SEEDS = {
    "in-order": OWNER
    + segment(data=DATA)
    + segment(data=DATA)
    + READ
    + segment(data=DATA)
    + READ
    + wait(40),
    "plain": PLAIN + segment(data=DATA) + READ + send(200) + segment(ack=200) + wait(40),
    "owned": OWNER + OWN + segment(data=DATA) * 4 + RELEASE + READ + wait(40),
    "owned-gap": OWNER
    + OWN
    + segment(data=DATA)
    + segment(data=DATA, offset=256)
    + segment(data=DATA) * 3
    + RELEASE
    + READ,
    "gap": OWNER
    + segment(data=DATA, offset=256)
    + segment(data=DATA, offset=768)
    + segment(data=DATA) * 4
    + READ,
    "overlap": OWNER
    + segment(data=DATA)
    + segment(data=DATA, offset=-100)
    + segment(data=DATA, offset=-256)
    + READ,
    "fin": OWNER + segment(data=DATA) + segment(FIN | ACK) + READ + READ + wait(200),
    "fin-owned": OWNER + OWN + segment(FIN | ACK, DATA) + segment(data=DATA) + RELEASE + READ,
    "reset": OWNER + OWN + segment(data=DATA) + segment(RST) + RELEASE + READ + send(10),
    "syn-again": OWNER
    + segment(SYN)
    + segment(SYN | ACK, offset=100)
    + segment(URG | ACK, DATA)
    + READ,
    "send": OWNER + send(255) * 6 + segment(ack=255) + wait(255) + segment(ack=600) + wait(20),
    "send-owned": OWNER
    + OWN
    + segment(data=DATA)
    + send(255)
    + segment(data=DATA, ack=255)
    + wait(60)
    + RELEASE
    + READ,
    "flood": OWNER + flood(63) + READ + flood(63) + OWN + flood(63) + RELEASE + READ * 8,
    "switch": OWNER
    + early_ack(0)
    + OWN
    + segment(data=DATA)
    + early_ack(1)
    + segment(data=DATA)
    + RELEASE
    + READ,
    "datagram": OWNER
    + packet(17, udp(DATA))
    + frame(ip(17, udp(DATA)))
    + READ
    + packet(17, udp(DATA, length=4))
    + READ,
    "tcp-options": OWNER
    + packet(
        6,
        struct.pack(">HHIIBBHHH", 0, 0, 1, 1, 0x80, SYN, 1000, 0, 0)
        + b"\2\4\5\xb4\1\3\3\7\4\2\0\0",
        1,
    ),
    "arp": OWNER + frame(ARP) + frame(ARP[:30]) + wait(255),
    "icmp": OWNER
    + frame(ip(1, b"\x08\0\0\0\0\1\0\1" + DATA))
    + frame(ip(1, b"\3\3\0\0\0\0\0\0" + ip(17, udp(b"", port=1))[14:])),
    "ip-odd": OWNER
    + frame(ip(6, DATA, head=b"\x4f\0"))
    + frame(ip(17, udp(DATA), fragment=0x2000))
    + frame(ip(6, b""))
    + packet(6, DATA, change=b"\1\2\xff"),
}


def main():
    directory = os.path.join(sys.argv[1], "fuzz_net")
    os.makedirs(directory, exist_ok=True)
    for name, data in SEEDS.items():
        with open(os.path.join(directory, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
