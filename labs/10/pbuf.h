/* Stands in for lwIP's header of this name, so that the lab needs no lwIP: a buffer of the stack
 * begins with a structure of lwIP, which nothing in this lab looks into. */
#ifndef LAB_PBUF_H
#define LAB_PBUF_H

struct pbuf_custom {
    void *of_lwip[5];
};

#endif
