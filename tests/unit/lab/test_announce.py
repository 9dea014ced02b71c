"""What an amphora of the lab tells its network when it has an address."""

import ipaddress
import struct

from lab.openstack.amphora.announce import frame

MAC = bytes.fromhex("fa163e010203")


def test_address_of_ipv4_is_told_by_a_gratuitous_arp():
    sent = frame(MAC, "10.96.0.7")
    packed = ipaddress.ip_address("10.96.0.7").packed
    assert sent[:14] == b"\xff" * 6 + MAC + b"\x08\x06"
    assert (sent[22:28], sent[28:32], sent[38:42]) == (MAC, packed, packed)


def test_address_of_ipv6_is_told_by_a_neighbour_advertisement_with_a_right_checksum():
    sent = frame(MAC, "fd96::7")
    header, body = sent[14:54], sent[54:]
    packed = ipaddress.ip_address("fd96::7").packed
    assert (body[0], body[8:24], body[26:32]) == (136, packed, MAC)
    assert struct.unpack("!H", header[4:6])[0] == len(body)
    pseudo = header[8:40] + struct.pack("!II", len(body), 58)
    words = struct.unpack(f"!{len(pseudo + body) // 2}H", pseudo + body)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
