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
