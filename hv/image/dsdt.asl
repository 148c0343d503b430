/* The devices of a VM that is a PC, for its operating system (hv/image/firmware.h). Each VM has the
 * same ones here. Where it has no virtio device, the page of that one reads as an empty slot. */
DefinitionBlock ("", "DSDT", 2, "TAKT", "TAKTPC", 1)
{
    Name (\_S5, Package () { 5, 5, 0, 0 })

    Scope (\_SB)
    {
        Device (COM1)
        {
            Name (_HID, EisaId ("PNP0501"))
            Name (_UID, 1)
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x3F8, 0x3F8, 1, 8)
                Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive) { 4 }
            })
        }

        /* The PCI bus (hv/passthrough/pcbus.c). Devices are where the machine has them, between the
         * end of the VM's RAM, which PCIM holds, and the IOAPIC; or else above 224 GiB. */
        OperationRegion (PCIW, SystemMemory, 0x000E1FF0, 4)
        Field (PCIW, DWordAcc, NoLock, Preserve)
        {
            PCIM, 32
        }

        Device (PCI0)
        {
            Name (_HID, EisaId ("PNP0A03"))
            Name (_UID, 0)
            Name (WIND, ResourceTemplate ()
            {
                WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
                    0, 0, 0, 0, 1)
                IO (Decode16, 0x0CF8, 0x0CF8, 1, 8)
                WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode, EntireRange,
                    0, 0x1000, 0xFFFF, 0, 0xF000)
                DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable,
                    ReadWrite, 0, 0xC0000000, 0xFEBFFFFF, 0, 0x3EC00000, , , LOWW)
                QWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable,
                    ReadWrite, 0, 0x3800000000, 0x3FFFFFFFFF, 0, 0x800000000)
            })
            Method (_CRS, 0, Serialized)
            {
                CreateDWordField (WIND, ^LOWW._MIN, LMIN)
                CreateDWordField (WIND, ^LOWW._LEN, LLEN)
                LMIN = PCIM
                LLEN = 0xFEC00000 - PCIM
                Return (WIND)
            }
        }

        /* Its other end is the store (hv/nodes/storeline.c). */
        Device (COM2)
        {
            Name (_HID, EisaId ("PNP0501"))
            Name (_UID, 2)
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x2F8, 0x2F8, 1, 8)
                Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive) { 3 }
            })
        }

        /* The power button, and the device that says when it was pressed: a hardware-reduced
         * machine has a Generic Event Device (ACPI 6.4, 5.6.9) in place of a fixed register. Each
         * interrupt of its pin is one press of the button. */
        Device (PWRB)
        {
            Name (_HID, EisaId ("PNP0C0C"))
            Name (_UID, 0)
        }

        Device (GED0)
        {
            Name (_HID, "ACPI0013")
            Name (_UID, 0)
            Name (_CRS, ResourceTemplate ()
            {
                Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 5 }
            })
            Method (_EVT, 1, Serialized)
            {
                Notify (PWRB, 0x80)
            }
        }

#define VIRTIO(NAME, NUMBER, BASE, PIN)                                                 \
        Device (NAME)                                                                   \
        {                                                                               \
            Name (_HID, "LNRO0005")                                                     \
            Name (_UID, NUMBER)                                                         \
            Name (_CCA, One)                                                            \
            Name (_CRS, ResourceTemplate ()                                             \
            {                                                                           \
                Memory32Fixed (ReadWrite, BASE, 0x1000)                                 \
                Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive) { PIN }      \
            })                                                                          \
        }

        VIRTIO (VIR0, 0, 0xFED00000, 16)
        VIRTIO (VIR1, 1, 0xFED01000, 17)
        VIRTIO (VIR2, 2, 0xFED02000, 18)
        VIRTIO (VIR3, 3, 0xFED03000, 19)
        VIRTIO (VIR4, 4, 0xFED04000, 20)
        VIRTIO (VIR5, 5, 0xFED05000, 21)
        VIRTIO (VIR6, 6, 0xFED06000, 22)
        VIRTIO (VIR7, 7, 0xFED07000, 23)
    }
}
