"""What the kernel and the loader read of a program: the headers of a 64-bit ELF file."""

import struct

EXECUTABLE, SHARED_OBJECT = 2, 3  # e_type; a program at a random address is a shared object
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine
INTERPRETER, STACK, RELRO, DYNAMIC = 3, 0x6474E551, 0x6474E552, 2  # p_type
NEEDED, FLAGS, FLAGS_1 = 1, 30, 0x6FFFFFFB  # d_tag
BIND_NOW = 8  # in FLAGS
EXECUTE = 1  # in p_flags


class Elf:
    """The headers of one program.

    ``segments`` has the flags of each segment by its type, ``dynamic`` the values by tag.
    """

    def __init__(self, path):
        data = path.read_bytes()
        assert data[:5] == b"\x7fELF\x02", f"{path} is no 64-bit ELF file"
        self.type, machine = struct.unpack_from("<HH", data, 16)
        self.machine = MACHINES[machine]
        (start,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        self.segments, self.dynamic = {}, {}
        for index in range(count):
            kind, flags, offset, *_, length = struct.unpack_from(
                "<IIQQQQ", data, start + index * size
            )
            self.segments[kind] = flags
            if kind == DYNAMIC:
                self.dynamic = dict(struct.iter_unpack("<QQ", data[offset : offset + length]))
