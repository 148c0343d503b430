/* The words behind a back end's name in a VM file: `rate=20M delay=5ms loss=0.1% queue=256 size=16M`. */
#ifndef DRIVERS_OPTIONS_H
#define DRIVERS_OPTIONS_H

#include <takt/types.h>

/* The value of `key`; if it is not there `otherwise`, and so if it makes no sense (option_unknown() tells of
 * that). */
u64 option_number(const char *options, const char *key, u64 otherwise); /* 256, 20M, 1G: thousands */
u64 option_bytes(const char *options, const char *key, u64 otherwise);  /* 64K, 16M, 1G: 1024s */
u64 option_ns(const char *options, const char *key, u64 otherwise);     /* 5ms, 100us, 1s, 500ns */
u32 option_share(const char *options, const char *key,
                 u32 otherwise); /* 0.1%, as a part of 2^32; at most 100% */
bool option_has(const char *options, const char *key);
/* The value of `key`, cut off after size - 1 bytes, terminated. False: it is not there. */
bool option_word(const char *options, const char *key, char *buf, size_t size);
/* Is the value of `key` this word? */
bool option_is(const char *options, const char *key, const char *word);
/* Six bytes such as 02:00:00:00:00:01. False: not there. */
bool option_mac(const char *options, const char *key, u8 mac[6]);

/* Which of these a key is for; the list ends with key NULL. */
struct option_kind {
    const char *key;
    enum { OPTION_NUMBER, OPTION_BYTES, OPTION_NS, OPTION_SHARE, OPTION_MAC, OPTION_WORD } kind;
};
/* The first word that is none of those or whose value makes no sense, NULL if all is well. */
const char *option_unknown(const char *options, const struct option_kind *known);

#endif
