/* What lwIP asks of a port: little-endian, the compiler's own types, assertions that end the VM. */
#ifndef NETSTACK_ARCH_CC_H
#define NETSTACK_ARCH_CC_H

#include <stdint.h>
#include <sys/types.h> /* ssize_t */

#ifndef BYTE_ORDER /* a C library may have said so already */
#define BYTE_ORDER LITTLE_ENDIAN
#endif
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

/* A broken invariant of lwIP or of ours. */
void net_panic(const char *why) __attribute__((noreturn));

#endif
