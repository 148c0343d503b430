/* The options after the name of a back end in a VM file: words KEY=VALUE such as `rate=20M
 * delay=5ms loss=0.1% queue=256 size=16M`. */
#ifndef DRIVERS_OPTIONS_H
#define DRIVERS_OPTIONS_H

#include <takt/types.h>

/* The next four functions return the value of `key`. They return `otherwise` if the key is not
 * there or its value makes no sense; option_unknown() finds values that make no sense. */

/* A number with a decimal unit or none: 256, 20M, 1G. */
u64 option_number(const char *options, const char *key, u64 otherwise);
/* Bytes, in powers of 1024: 64K, 16M, 1G. */
u64 option_bytes(const char *options, const char *key, u64 otherwise);
/* A time, in nanoseconds: 5ms, 100us, 1s, 500ns. */
u64 option_ns(const char *options, const char *key, u64 otherwise);
/* A share of at most 100%, such as 0.1%, in parts of 2^32. */
u32 option_share(const char *options, const char *key, u32 otherwise);

/* Returns whether the key is there. */
bool option_has(const char *options, const char *key);
/* Copies the value of `key`, cut off after size - 1 bytes and terminated. Returns false if it is
 * not there. */
bool option_word(const char *options, const char *key, char *buf, size_t size);
/* Returns whether the value of `key` is this word. */
bool option_is(const char *options, const char *key, const char *word);
/* Reads an Ethernet address such as 02:00:00:00:00:01. Returns false if the key is not there or its
 * value is not an address. */
bool option_mac(const char *options, const char *key, u8 mac[6]);

/* A key that a back end knows, and which of the functions above reads it. A list of these ends with
 * key NULL. */
struct option_kind {
    const char *key;
    enum {
        OPTION_NUMBER,
        OPTION_BYTES,
        OPTION_NS,
        OPTION_SHARE,
        OPTION_MAC,
        OPTION_WORD,
        OPTION_YES_NO
    } kind;
};
/* Returns the first word whose key is not known or whose value makes no sense, or NULL if there is
 * none. */
const char *option_unknown(const char *options, const struct option_kind *known);

#endif
