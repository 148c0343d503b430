/* What lwIP asks of the platform that it runs on: little-endian byte order, the compiler's own
 * types, and assertions that end the VM. */
#ifndef NETSTACK_ARCH_CC_H
#define NETSTACK_ARCH_CC_H

#include <stdint.h>
#include <sys/types.h> /* ssize_t */

#ifndef BYTE_ORDER /* a C library may have defined it already */
#define BYTE_ORDER LITTLE_ENDIAN
#endif
/* The compiler makes one instruction of these; lwIP's own are functions. */
#define lwip_htons(x)      __builtin_bswap16(x)
#define lwip_htonl(x)      __builtin_bswap32(x)
#define LWIP_NO_INTTYPES_H 1
#define LWIP_NO_UNISTD_H   1
#define LWIP_NO_CTYPE_H    1
#define X8_F               "02x"
#define U16_F              "u"
#define S16_F              "d"
#define X16_F              "x"
#define U32_F              "u"
#define S32_F              "d"
#define X32_F              "x"
#define SZT_F              "lu"

#define LWIP_PLATFORM_DIAG(x)
#define LWIP_PLATFORM_ASSERT(why) net_panic(why)

/* Ends the guest because an invariant of lwIP or of the stack does not hold. `why` is a sentence
 * that says which. */
void net_panic(const char *why) __attribute__((noreturn));

#endif
