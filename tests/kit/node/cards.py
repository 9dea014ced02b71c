"""A tree like sysfs, with a network card and its virtual functions."""

import shutil

VENDOR, PRODUCT = "8086", "10ca"


def add_card(sysfs, card="ens1", slot="0000:03:00.0", functions=4):
    """A card with VFs `ens1v0` and so on; their PCI addresses."""
    devices, interfaces = sysfs / "bus/pci/devices", sysfs / "class/net"
    physical = devices / slot
    (physical / "net" / card).mkdir(parents=True)
    interfaces.mkdir(parents=True, exist_ok=True)
    (interfaces / card).symlink_to(physical / "net" / card)
    (physical / "net" / card / "device").symlink_to(physical)
    slots = []
    for number in range(functions):
        bus, function = slot.rsplit(":", 1)[0], number
        name = f"{bus}:10.{function}"
        device = devices / name
        bring_back(sysfs, name, f"{card}v{number}")
        (device / "vendor").write_text(f"0x{VENDOR}\n")
        (device / "device").write_text(f"0x{PRODUCT}\n")
        (device / "physfn").symlink_to(physical)
        (physical / f"virtfn{number}").symlink_to(device)
        slots.append(name)
    return slots


def take_away(sysfs, slot):
    """The VF's interface moves into a namespace; its name."""
    (interface,) = (sysfs / "bus/pci/devices" / slot / "net").iterdir()
    shutil.rmtree(interface)
    return interface.name


def bring_back(sysfs, slot, name):
    """The VF's interface is in the node's own namespace, and down."""
    interface = sysfs / "bus/pci/devices" / slot / "net" / name
    interface.mkdir(parents=True)
    (interface / "flags").write_text("0x1002\n")


def set_up(sysfs, slot):
    """Somebody sets the VF's interface up."""
    (interface,) = (sysfs / "bus/pci/devices" / slot / "net").iterdir()
    (interface / "flags").write_text("0x1003\n")


def give_to(sysfs, slot, driver):
    """A driver gets the device."""
    drivers = sysfs / "bus/pci/drivers" / driver
    drivers.mkdir(parents=True, exist_ok=True)
    link = sysfs / "bus/pci/devices" / slot / "driver"
    link.unlink(missing_ok=True)
    link.symlink_to(drivers)
