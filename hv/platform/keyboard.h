/* A keyboard: PS/2, or a USB one for which the firmware imitates that. Its keys become the bytes
 * that a serial terminal would send. The layout is that of the USA. */
#ifndef HV_PLATFORM_KEYBOARD_H
#define HV_PLATFORM_KEYBOARD_H

#include "platform/firmware.h"

struct keys {
    bool shift, ctrl, caps;
    bool extended; /* the byte before was 0xe0 */
    u8 skip;       /* bytes of the Pause key that are still to come */
};

#define KEY_BYTES 5 /* the longest sequence of a key, and the terminator */

/* One scan code of set 1. Writes what the key stands for to `out`, terminated; empty if nothing. */
void keys_feed(struct keys *k, u8 code, char out[KEY_BYTES]);

/* Looks for the controller and switches the keyboard and its interrupt on; `input` then hears of
 * keys, on WORK_CPU as a handler of an interrupt does. Returns false if there is no controller or
 * its interrupt cannot be connected. If the firmware says that there is none
 * (a->no_keyboard_controller), no port is touched. Nothing is polled: on machines where the
 * firmware imitates the controller each access of its ports stops all CPUs for a while. */
bool keyboard_start(const struct acpi_info *a, void (*input)(const char *s, unsigned n));

#endif
